"""What is read from the folders of runs: configurations, epochs and trained networks."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anodev2.experiment.config import RunConfig
from anodev2.experiment.folder import read_config, result_of
from anodev2.experiment.training.checkpoints import load_weights, model_weights
from anodev2.models import build_model
from anodev2.usage import UsageError

EXAMPLE = "expected a folder such as out/runs/resnet4-anodev2-1-seed0"


def run_folders(given: Sequence[Path]) -> list[Path]:
    """The folders of runs among these, where a comparison's folder stands for all runs in it.

    Args:
        given: folders of runs or of comparisons.

    Raises:
        ValueError: one that is neither.
    """
    found: list[Path] = []
    for folder in given:
        inside = sorted(path.parent for path in (folder / "runs").glob("*/config.yaml"))
        if not inside and not (folder / "config.yaml").exists():
            raise UsageError(f"'{folder}' holds no run: {EXAMPLE}")
        found += inside or [folder]
    return list(dict.fromkeys(found))


def configuration(folder: Path) -> RunConfig:
    """The configuration of the run in a folder.

    Raises:
        ValueError: no run in the folder.
    """
    path = folder / "config.yaml"
    if not path.exists():
        inside = next(iter(sorted((folder / "runs").glob("*/config.yaml"))), None)
        name = f"name one of those in it, such as '{inside.parent}'" if inside else EXAMPLE
        raise UsageError(f"'{folder}' holds no run: {name}")
    try:
        return RunConfig(**read_config(path))
    except TypeError as error:
        wanted = ", ".join(field.name for field in fields(RunConfig))
        raise UsageError(
            f"'{folder}' holds no run: {EXAMPLE}, whose config.yaml has {wanted}"
        ) from error


def epochs(folder: Path, names: Sequence[str]) -> dict[str, list[float]]:
    """Figures of every finished epoch of a run, be it finished or not.

    Args:
        folder: of the run.
        names: which, as in `History`'s rows.

    Raises:
        Damaged: its result is that of another run, or none.
        ValueError: no epoch was finished, or the figures cannot be read.
    """
    result, path = result_of(folder, configuration(folder)), folder / "metrics.csv"
    rows: Sequence[Mapping[str, Any]] = []
    try:
        if result is not None:
            rows = result.epochs
        elif path.exists():
            with path.open(newline="") as stream:
                rows = list(csv.DictReader(stream))
        found = {name: [float(row[name]) for row in rows] for name in names}
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UsageError(
            f"the epochs of the run in '{folder}' cannot be read ({type(error).__name__}: "
            f"{error}): expected {', '.join(names)} in its result.json or metrics.csv"
        ) from error
    if not rows:
        raise UsageError(f"the run in '{folder}' has finished no epoch: expected one at least")
    return found


def trained_network(folder: Path) -> nn.Module:
    """The network of a run with the weights of its last checkpoint; needs none of its images.

    Raises:
        Damaged: the checkpoint is none, or that of another run or network.
        ValueError: no run in the folder, or none of its checkpoints.
    """
    config = configuration(folder)
    checkpoint = folder / "checkpoints" / "last.ckpt"
    if not checkpoint.exists():
        raise UsageError(
            f"'{folder}' holds no checkpoint: {EXAMPLE} after its first epoch, with checkpoints/"
        )
    weights = model_weights(checkpoint, config)
    shapes = [tensor.shape for tensor in weights.values()]
    try:
        with torch.random.fork_rng(devices=[]):
            model = build_model(
                config.model,
                method=config.method,
                moving=config.moving,
                order=config.order,
                num_classes=[shape for shape in shapes if len(shape) == 2][-1][0],
                in_channels=next(shape for shape in shapes if len(shape) == 4)[1],
            )
    except (IndexError, StopIteration) as error:
        raise UsageError(
            f"'{checkpoint}' is not of the network in '{folder / 'config.yaml'}': expected the "
            f"weights of {config.model} with {config.label}"
        ) from error
    load_weights(model, weights, checkpoint)
    return model
