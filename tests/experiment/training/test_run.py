"""A run in its folder: what it leaves, refuses and resumes."""

import csv
import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from anodev2.experiment.config import run_config
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import run_state, write_config
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.result import Result
from anodev2.experiment.training import run
from anodev2.experiment.training.checkpoints import model_weights, read_checkpoint
from anodev2.experiment.training.run import train_run
from anodev2.experiment.training.task import Classification
from anodev2.usage import UsageError
from tiny import Batch, stop_in_epoch, tiny_config, tiny_data

FOLDER = Path("runs/resnet4-anodev2-2-seed0")


def weights(out: Path) -> dict[str, torch.Tensor]:
    return model_weights(out / FOLDER / "checkpoints/last.ckpt")


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(autouse=True, scope="module")
def _steps_of_32_images() -> Iterator[None]:
    """Three steps an epoch of the tiny data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "anodev2.experiment.config.recipe_for",
            lambda *a: replace(recipe_for(*a), batch_size=32),
        )
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison with one finished run of three epochs."""
    out = tmp_path_factory.mktemp("finished")
    train_run(tiny_config(), out, resume=False, data=tiny_data())
    return out


def test_a_run_leaves_its_configuration_metrics_checkpoints_and_result(finished: Path) -> None:
    names = {
        path.relative_to(finished / FOLDER).as_posix() for path in (finished / FOLDER).glob("**/*")
    }
    assert {"config.yaml", "metrics.csv", "result.json"} <= names
    assert {"checkpoints/last.ckpt", "checkpoints/best.ckpt"} <= names
    assert any(name.startswith("tensorboard/events") for name in names)


def test_the_configuration_file_repeats_the_run(finished: Path) -> None:
    found = yaml.safe_load((finished / FOLDER / "config.yaml").read_text())
    assert run_config(**found) == tiny_config()


def test_metrics_have_a_row_for_each_epoch(finished: Path) -> None:
    with (finished / FOLDER / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert all(0 <= float(row["test_accuracy"]) <= 1 for row in rows)


def test_the_result_says_how_to_repeat_the_run_and_what_it_cost(finished: Path) -> None:
    result = json.loads((finished / FOLDER / "result.json").read_text())
    assert result["config"]["seed"] == 0
    assert result["parameters"] == 7930 - 7 * 257
    assert result["field_evaluations"] == {"forward": 2, "backward": 0}
    assert {"torch", "anodev2", "git_revision"} <= result["environment"].keys()
    assert [row["epoch"] for row in result["epochs"]] == [1, 2, 3]


def test_a_result_reads_back_as_it_was_written(finished: Path, tmp_path: Path) -> None:
    result = Result.read(finished / FOLDER / "result.json")
    result.write(tmp_path / "again.json")
    assert Result.read(tmp_path / "again.json") == result


def test_checkpointed_anode_evaluates_each_field_twice_a_step(tmp_path: Path) -> None:
    config = tiny_config(method="anode", epochs=1)
    result = train_run(config, tmp_path, resume=False, data=tiny_data())
    assert result.field_evaluations == {"forward": 2, "backward": 2}


def test_one_seed_gives_one_network_to_the_bit(finished: Path, tmp_path: Path) -> None:
    train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    assert equal(weights(finished), weights(tmp_path))


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_run_interrupted_in_any_epoch_resumes_to_the_same_weights(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_in_epoch(epoch, patch)
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    assert run_state(tmp_path, tiny_config()) == "unfinished"
    result = train_run(tiny_config(), tmp_path, resume=True, data=tiny_data())
    assert equal(weights(finished), weights(tmp_path))
    assert [row["epoch"] for row in result.epochs] == [1, 2, 3]


def test_a_run_names_every_environment_that_trained_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, revision in enumerate(("first", "second")):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(run, "describe_environment", lambda _, r=revision: {"git_revision": r})
            stop_in_epoch(number + 1, patch)
            train_run(tiny_config(), tmp_path, resume=None, data=tiny_data())
    monkeypatch.setattr(run, "describe_environment", lambda _: {"git_revision": "third"})
    result = train_run(tiny_config(), tmp_path, resume=True, data=tiny_data())
    assert result.trained_with("git_revision") == ["first", "second", "third"]
    found = Result.read(tmp_path / FOLDER / "result.json")
    assert found.earlier_environments == result.earlier_environments


@pytest.mark.parametrize(
    ("method", "older"), [("anode", {"p_rate": 1.0}), ("anodev2-2", {"precision": "auto"})]
)
def test_a_run_of_an_older_version_is_the_same_where_only_its_words_differ(
    tmp_path: Path, method: str, older: dict[str, object]
) -> None:
    config = tiny_config(method=method, epochs=1)
    result = train_run(config, tmp_path, resume=False, data=tiny_data())
    folder = tmp_path / "runs" / config.name
    write_config(folder / "config.yaml", result.config | older)
    replace(result, config=result.config | older).write(folder / "result.json")
    assert run_state(tmp_path, config) == "finished"


def test_a_finished_run_whose_recipe_stood_for_other_numbers_is_refused(
    finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished / "runs", tmp_path / "runs")
    path = tmp_path / FOLDER / "result.json"
    found = Result.read(path)
    replace(found, recipe=found.recipe | {"warmup": 2.0}).write(path)
    with pytest.raises(UsageError, match=r"recipe 'default' had warmup 2\.0, not 1\.0: choose"):
        run_state(tmp_path, tiny_config())
    older = {name: value for name, value in found.recipe.items() if name != "p_rate"}
    replace(found, recipe=older).write(path)
    with pytest.raises(UsageError, match=r"had p_rate 1\.0, not 3\.0"):
        run_state(tmp_path, tiny_config())


def test_after_an_interruption_ctrl_c_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stop_in_epoch(0, monkeypatch)
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    assert signal.getsignal(signal.SIGINT) is before


def test_a_loss_that_is_not_finite_ends_the_run_with_its_epoch_and_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Classification.training_step

    def poisoned(self: Classification, batch: Batch, index: int) -> torch.Tensor:
        images, labels = batch
        return plain(self, (images * (float("nan") if self.current_epoch else 1), labels), index)

    monkeypatch.setattr(Classification, "training_step", poisoned)
    with pytest.raises(RunFailure, match="the loss is nan in epoch 2, step 1"):
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    checkpoint = read_checkpoint(tmp_path / FOLDER / "checkpoints/last.ckpt")
    assert checkpoint["epoch"] == 0
    assert all(t.isfinite().all() for t in weights(tmp_path).values())


def test_why_a_run_failed_stays_in_its_folder_until_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Classification, batch: Batch, index: int) -> torch.Tensor:
        raise RunFailure("the loss is nan in epoch 1, step 1")

    with monkeypatch.context() as patch, pytest.raises(RunFailure):
        patch.setattr(Classification, "training_step", failing)
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    reason = tmp_path / FOLDER / "failure.txt"
    assert reason.read_text() == "the loss is nan in epoch 1, step 1\n"
    train_run(tiny_config(), tmp_path, resume=True, data=tiny_data())
    assert not reason.exists()


def test_a_folder_that_holds_a_run_is_not_trained_over(finished: Path) -> None:
    before = (finished / FOLDER / "result.json").read_bytes()
    with pytest.raises(UsageError, match="holds a finished run: choose another --out"):
        train_run(tiny_config(), finished, resume=False, data=tiny_data())
    assert (finished / FOLDER / "result.json").read_bytes() == before


def test_resuming_a_finished_run_trains_nothing(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_fit", None)
    result = train_run(tiny_config(), finished, resume=True, data=tiny_data())
    assert result == Result.read(finished / FOLDER / "result.json")


def test_a_folder_with_another_configuration_is_refused_by_its_difference(finished: Path) -> None:
    with pytest.raises(UsageError, match="holds a run with epochs 3, not 4: choose another --out"):
        train_run(tiny_config(epochs=4), finished, resume=True, data=tiny_data())


def test_the_options_that_lead_to_the_run_of_a_folder_are_named(finished: Path) -> None:
    other = tiny_config(epochs=4, precision="bfloat16")
    with pytest.raises(UsageError) as refused:
        train_run(other, finished, resume=True, data=tiny_data())
    assert str(refused.value).endswith(
        "another --out, or --epochs 3 --precision float32 for the run that is there"
    )
    path = finished / FOLDER / "config.yaml"
    config = yaml.safe_load(path.read_text())
    without = {name: value for name, value in config.items() if name != "epochs"}
    for found in (config | {"seed": 7, "epochs": 4}, config | {"order": None}, without):
        path.write_text(yaml.safe_dump(found))
        with pytest.raises(UsageError) as refused:  # no options lead to that one here
            train_run(tiny_config(), finished, resume=True, data=tiny_data())
        assert str(refused.value).endswith(": choose another --out")


def test_resuming_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to resume"):
        train_run(tiny_config(), tmp_path, resume=True, data=tiny_data())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "config.yaml").write_text("mine")
    with pytest.raises(UsageError, match="is not the folder of a run"):
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    assert (tmp_path / FOLDER / "config.yaml").read_text() == "mine"


def test_images_of_another_size_are_refused_and_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="are 28x28: resnet4 takes 32x32"):
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data(size=28))
    assert list(tmp_path.iterdir()) == []


def test_bfloat16_keeps_the_weights_in_float32(tmp_path: Path) -> None:
    config = replace(tiny_config(epochs=1), precision="bfloat16")
    train_run(config, tmp_path, resume=False, data=tiny_data())
    assert {t.dtype for t in weights(tmp_path).values() if t.is_floating_point()} == {torch.float32}


@pytest.mark.parametrize("step", [0, 2])
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    plain = Classification.training_step

    def exploding(self: Classification, batch: Batch, index: int) -> torch.Tensor:
        loss = plain(self, batch, index)
        if (self.current_epoch, index) == (1, step):
            loss.register_hook(lambda grad: grad * float("inf"))
        return loss

    monkeypatch.setattr(Classification, "training_step", exploding)
    with pytest.raises(RunFailure, match=rf"gradient's norm is nan in epoch 2, step {step + 1}"):
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())
    assert read_checkpoint(tmp_path / FOLDER / "checkpoints/last.ckpt")["epoch"] == 0
    assert all(t.isfinite().all() for t in weights(tmp_path).values())
    assert not (tmp_path / FOLDER / "result.json").exists()


def test_an_out_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="expected --out to be a folder"):
        train_run(tiny_config(), tmp_path / "file", resume=False, data=tiny_data())
    assert (tmp_path / "file").read_text() == "mine"


def test_images_of_one_class_are_refused(tmp_path: Path) -> None:
    data = replace(tiny_data(), classes=("a",))
    with pytest.raises(UsageError, match="has one class: expected at least two"):
        train_run(tiny_config(), tmp_path, resume=False, data=data)
