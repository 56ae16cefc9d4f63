"""Folders of runs, written in a moment without training anything."""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from anodev2.experiment.config import run_config
from anodev2.experiment.folder import write_config
from anodev2.experiment.result import Result
from anodev2.experiment.trained import configuration
from anodev2.experiment.training.history import write_rows
from anodev2.models import build_model

SETTINGS: dict[str, object] = {
    "model": "resnet4",
    "method": "anodev2-2",
    "order": "pre",
    "data": "digits",
    "epochs": 3,
    "seed": 0,
    "precision": "float32",
}


def written_run(out: Path, accuracies: list[float], **changes: object) -> Path:
    """A run in `out/runs`, with as many finished epochs as accuracies; losses are 1 less them."""
    config = run_config(**(SETTINGS | changes))  # type: ignore[arg-type]
    folder = out / "runs" / config.name
    write_config(folder / "config.yaml", asdict(config))
    write_rows(
        folder / "metrics.csv",
        [
            {"epoch": e, "train_loss": 1 - a, "test_loss": 2 - a, "test_accuracy": a}
            for e, a in enumerate(accuracies, 1)
        ],
    )
    return folder


def with_result(folder: Path, **changes: object) -> Path:
    """The run, finished, with a result whose configuration differs by what is given."""
    config = configuration(folder)
    Result(
        config=asdict(config) | changes,
        recipe=asdict(config.trained_by),
        data={},
        parameters=1,
        field_evaluations={"forward": 2, "backward": 0},
        seconds_per_step=None,
        precision=config.precision,
        epochs=[
            {"epoch": e, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": 0.5}
            for e in range(1, config.epochs + 1)
        ],
        environment={},
    ).write(folder / "result.json")
    return folder


def with_checkpoint(folder: Path, model: nn.Module, **says: object) -> Path:
    """The run, with the network's weights as its last checkpoint, and what that says besides."""
    (folder / "checkpoints").mkdir()
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": state, **says}, folder / "checkpoints" / "last.ckpt")
    return folder


def moved_network(method: str = "anodev2-2", *, model: str = "resnet4") -> nn.Module:
    """A network of three classes whose evolutions are not at rest."""
    torch.manual_seed(0)
    network = build_model(model, method=method, num_classes=3)
    for name, parameter in network.named_parameters():
        if ".evolution." in name:
            nn.init.normal_(parameter, std=0.2)
    return network
