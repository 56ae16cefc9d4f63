"""Finished runs that nobody trained."""

from dataclasses import asdict
from pathlib import Path

from anodev2.experiment.config import run_config
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.step_times import Conditions, Times
from anodev2.experiment.result import Result


def result(
    model: str = "resnet4",
    method: str = "baseline",
    accuracy: float = 70.0,
    *,
    seed: int = 0,
    epochs: int = 2,
    forward: int = 1,
    reversal: float | None = None,
    **settings: object,
) -> Result:
    """A run whose last test accuracy, in per cent, is given."""
    config = run_config(
        model=model, method=method, order="pre", data="cifar10", epochs=epochs, seed=seed,
        precision="bfloat16", **settings,
    )  # fmt: skip
    rows = [
        {
            "epoch": epoch + 1,
            "train_loss": 2.0 / (epoch + 1),
            "train_accuracy": 0.5,
            "test_loss": 1.0,
            "test_accuracy": accuracy / 100,
            "learning_rate": 0.1,
            "seconds_per_step": 0.1,
            "seconds": 30.0,
        }
        for epoch in range(epochs)
    ]
    return Result(
        config=asdict(config),
        recipe=asdict(recipe_for(model, epochs, config.recipe)),
        data={
            "name": "cifar10",
            "train_images": 50_000,
            "test_images": 10_000,
            "classes": list("0123456789"),
            "encoding": "JPEG",
            "is_cifar10": True,
        },
        parameters={"resnet4": 7_706, "resnet10": 44_186, "alexnet": 1_756_682}[model],
        field_evaluations={"forward": forward, "backward": 0},
        seconds_per_step=0.1,
        precision="bfloat16",
        epochs=rows,
        environment={
            "python": "3.11",
            "torch": "2.13.0",
            "git_revision": "abc",
            "threads": 1,
            "processor": "a processor",
        },
        motion={"p": 160, "distance": 0.5} if "anodev2" in method else None,
        reversal=reversal,
    )


def runs_of(**accuracies: list[float]) -> Collection:
    """ResNet-4's runs, one a seed, by method with _ for -: baseline=[70, 71], anodev2_1=[72]."""
    return Collection(
        tuple(
            result(method=name.replace("_", "-"), accuracy=value, seed=seed)
            for name, values in accuracies.items()
            for seed, value in enumerate(values)
        )
    )


def timed(rounds: dict[str, list[float]], **conditions: object) -> Times:
    """Seconds of ResNet-4's steps by kind, timed on a processor unless something else is given."""
    usual = {"model": "resnet4", "order": "pre", "batch_size": 256, "precision": "bfloat16"}
    settings = usual | {"threads": 1, "processor": "a processor"} | conditions
    return Times(Conditions(**settings), rounds)


def write(out: Path, *results: Result) -> Path:
    """The folder of a comparison in which these runs are finished."""
    for found in results:
        config = run_config(**found.config)
        found.write(out / "runs" / config.name / "result.json")
    return out
