"""Checkpoints of a run: one an epoch and the best, written whole, read without pickles."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a killed run keeps its last checkpoint."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        with whole_file(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def checkpoint_callbacks(folder: Path) -> list[ModelCheckpoint]:
    """`last.ckpt` at the end of every epoch, `best.ckpt` at the highest test accuracy."""
    settings: dict[str, Any] = {
        "dirpath": folder,
        "save_on_train_epoch_end": True,
        "enable_version_counter": False,
    }
    return [
        ModelCheckpoint(filename="best", monitor="test_accuracy", mode="max", **settings),
        ModelCheckpoint(filename="last", **settings),
    ]


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's contents: tensors and plain values, nothing executable.

    Raises:
        ValueError: the file cannot be read as a checkpoint of a run.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        checkpoint["state_dict"]
    except Exception as error:
        raise UsageError(
            f"the checkpoint '{path}' cannot be read ({type(error).__name__}): expected a file "
            "that a training run wrote; remove it to train from the start"
        ) from error
    return checkpoint  # type: ignore[no-any-return]


def model_weights(path: Path) -> dict[str, torch.Tensor]:
    """The network's state in a checkpoint, under the network's own names."""
    state = read_checkpoint(path)["state_dict"]
    return {
        name.removeprefix("model."): tensor
        for name, tensor in state.items()
        if name.startswith("model.")
    }
