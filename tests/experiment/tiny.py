"""A data set that a network trains on in a moment: 96 images, a gradient in each class."""

import pytest
import torch

from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.data.images import ImageData, Split, measured
from anodev2.experiment.training.task import Classification

Batch = tuple[torch.Tensor, torch.Tensor]


def tiny_data(*, size: int = 32) -> ImageData:
    """Three classes; 96 training and 48 test images, bright on a side that tells the class."""
    return measured(
        "tiny", _split(96, size, 0), _split(48, size, 1), classes=("a", "b", "c"), encoding="PNG"
    )


def tiny_config(**changes: object) -> RunConfig:
    settings: dict[str, object] = {
        "model": "resnet4",
        "method": "anodev2-2",
        "order": "pre",
        "data": "tiny",
        "epochs": 3,
        "seed": 0,
        "precision": "float32",
    }
    return run_config(**(settings | changes))  # type: ignore[arg-type]


def stop_in_epoch(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the second training step of that epoch, counted from 0, as Ctrl-C does."""
    plain = Classification.training_step

    def interrupted(self: Classification, batch: Batch, index: int) -> torch.Tensor:
        if (self.current_epoch, index) == (number, 1):
            raise KeyboardInterrupt
        return plain(self, batch, index)

    monkeypatch.setattr(Classification, "training_step", interrupted)


def _split(count: int, size: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.randint(0, 100, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    half = size // 2
    images[labels == 1, :, :half] += 100
    images[labels == 2, :, half:] += 100
    return Split(images.contiguous(memory_format=torch.channels_last), labels)
