"""Checkpoints of a run: one an epoch and the best, written whole, read without pickles."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from anodev2.experiment.config import RunConfig, recipe_mismatch
from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.folder import mismatch
from anodev2.experiment.training.history import History
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

RUN, RECIPE = "run", "recipe"
"""Where a checkpoint says which run wrote it, by what numbers; those of older versions do not."""

TRAINING = ("epoch", "global_step", "loops", "callbacks", "optimizer_states", "lr_schedulers")
"""What training goes on from, apart from the network."""


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a killed run keeps its last checkpoint.

    Args:
        config: the run, which every checkpoint names.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        content = io.BytesIO()  # a full disk is then an OSError, which torch's own writer hides
        run = {RUN: asdict(self._config), RECIPE: asdict(self._config.trained_by)}
        torch.save({**checkpoint, **run}, content)
        with whole_file(Path(path)) as temporary:
            temporary.write_bytes(content.getbuffer())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path))


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


def checkpoint_to_resume(
    folder: Path, config: RunConfig, state: Mapping[str, Tensor], *, claimed: bool
) -> Path | None:
    """The checkpoint that a run goes on from: its last, else its best, else none.

    Args:
        folder: of the checkpoints.
        config: the run.
        state: what the state of its network looks like, under the checkpoint's names.
        claimed: whether this process has claimed the run: it sets aside either that is not a
            checkpoint of this run, which others pass over.

    Raises:
        ValueError: a checkpoint that cannot be read at all.
    """
    good = []
    for path in (folder / "last.ckpt", folder / "best.ckpt"):
        if path.exists():
            try:
                _check_run(path, config, state)
                good.append(path)
            except Damaged as damaged:
                if claimed:
                    set_aside(damaged)
            except UsageError:
                if claimed or path.exists():  # else it has been set aside meanwhile
                    raise
    return good[0] if good else None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's contents: tensors and plain values, nothing executable.

    Raises:
        Damaged: the file is not a checkpoint.
        ValueError: it cannot be read at all.
    """
    try:
        content = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    if not _is_whole(content):
        raise Damaged(path, "is not a whole checkpoint: it is cut off, altered or another file")
    try:
        checkpoint = torch.load(content, map_location="cpu", weights_only=True)
        checkpoint["state_dict"].keys()
    except UnpicklingError as error:
        raise Damaged(path, "holds more than a checkpoint's tensors and plain values") from error
    except Exception as error:
        raise Damaged(path, f"is not a checkpoint ({type(error).__name__})") from error
    return checkpoint  # type: ignore[no-any-return]


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Give a network the state that a checkpoint has.

    Raises:
        Damaged: it is not the state of such a network.
    """
    _check_state(path, weights, model.state_dict())
    model.load_state_dict(weights)


def model_weights(path: Path, config: RunConfig | None = None) -> dict[str, Tensor]:
    """The network's state in a checkpoint, under the network's own names.

    Args:
        path: the checkpoint.
        config: the run that it must be of; None takes any.

    Raises:
        Damaged: the file is not a checkpoint, or one of another run.
        ValueError: it cannot be read at all.
    """
    checkpoint = read_checkpoint(path)
    if config is not None:
        _check_words(path, checkpoint, config)
    return {
        name.removeprefix("model."): tensor
        for name, tensor in checkpoint["state_dict"].items()
        if name.startswith("model.")
    }


def _is_whole(content: io.BytesIO) -> bool:
    """Whether all parts have the checksums that were written; torch does not look at them."""
    try:
        with zipfile.ZipFile(content) as parts:
            return parts.testzip() is None
    except Exception:  # zipfile and zlib have many for broken files
        return False
    finally:
        content.seek(0)


def _check_run(path: Path, config: RunConfig, state: Mapping[str, Tensor]) -> None:
    """Raise Damaged unless the file is a checkpoint that this run can go on from."""
    checkpoint = read_checkpoint(path)
    lacking = [key for key in TRAINING if key not in checkpoint]
    if lacking:
        raise Damaged(path, f"is not a checkpoint of a training run: it has no {lacking[0]!r}")
    _check_words(path, checkpoint, config)
    _check_state(path, checkpoint["state_dict"], state)
    try:
        rows = checkpoint["callbacks"][History.__qualname__]["rows"]
        fits = len(rows) == checkpoint["epoch"] + 1 and "fit_loop" in checkpoint["loops"]
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise Damaged(path, "is not a checkpoint of a training run: its history does not fit")


def _check_words(path: Path, checkpoint: Mapping[str, Any], config: RunConfig) -> None:
    """Raise Damaged where a checkpoint says that it is of another run, or of other numbers."""
    other = mismatch(checkpoint.get(RUN, asdict(config)), config)
    if other:
        raise Damaged(path, f"is a checkpoint of another run: {other}")
    changed = recipe_mismatch(checkpoint[RECIPE], config) if RECIPE in checkpoint else None
    if changed:
        raise Damaged(path, f"is a checkpoint of a run {changed}")


def _check_state(path: Path, found: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Raise Damaged unless the tensors have the names, shapes and types of `state`."""
    other = sorted(found.keys() ^ state.keys())
    if other:
        whose = "lacks" if other[0] in state else "has a"
        raise Damaged(path, f"is a checkpoint of another network: it {whose} {other[0]}")
    for name, tensor in state.items():
        if not (
            isinstance(found[name], Tensor)
            and (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
        ):
            raise Damaged(path, f"is a checkpoint of another network: its {name} does not fit")
