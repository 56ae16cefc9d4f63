"""What a run learns from: the batches of each epoch, and that it learns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anodev2.experiment.data.batches import Augmentation, Batches
from anodev2.experiment.data.images import Split
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.training.run import train_run
from anodev2.experiment.training.task import Classification
from tiny import tiny_config, tiny_data

Batch = tuple[torch.Tensor, torch.Tensor]
CIFAR10 = Path(__file__).parents[4] / "shared/data/cifar10"


@pytest.fixture(autouse=True)
def _steps_of_32_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps an epoch of the tiny data set."""
    monkeypatch.setattr(
        "anodev2.experiment.config.recipe_for", lambda *a: replace(recipe_for(*a), batch_size=32)
    )


def test_each_epoch_trains_on_the_batches_drawn_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[torch.Tensor]] = {}
    plain = Classification.training_step

    def recording(self: Classification, batch: Batch, index: int) -> torch.Tensor:
        seen.setdefault(self.current_epoch, []).append(batch[0])
        return plain(self, batch, index)

    monkeypatch.setattr(Classification, "training_step", recording)
    data = tiny_data()
    train_run(tiny_config(seed=4), tmp_path, resume=False, data=data)
    for epoch in range(3):
        batches = Batches(
            data.train,
            mean=data.mean,
            std=data.std,
            batch_size=32,
            seed=4,
            augment=Augmentation(padding=4, flip=True),
            shuffle=True,
            epoch=lambda now=epoch: now,
        )
        pairs = zip(seen[epoch], batches, strict=True)
        assert all(torch.equal(found, images) for found, (images, _) in pairs)


def test_training_learns_to_tell_the_classes_apart(tmp_path: Path) -> None:
    result = train_run(tiny_config(epochs=6), tmp_path, resume=False, data=tiny_data())
    assert result.accuracy > 0.9
    assert result.epochs[-1]["train_loss"] < result.epochs[0]["train_loss"]  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR10.exists(), reason="../shared/data/cifar10 is missing")
def test_a_slice_of_cifar10_is_learned_beyond_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANODEV2_CACHE", str(tmp_path / "cache"))
    whole = load_data(str(CIFAR10))
    few = [Split(s.images[:2000], s.labels[:2000]) for s in (whole.train, whole.test)]
    data = replace(whole, train=few[0], test=few[1])
    result = train_run(tiny_config(epochs=4), tmp_path, resume=False, data=data)
    assert result.accuracy > 0.2
