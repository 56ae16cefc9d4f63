"""`result.json`: what a run was and what came out, complete enough to repeat it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anodev2.experiment.damaged import Damaged
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.training.history import Row
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("config", "recipe", "data", "field_evaluations", "environment"), (dict,)),
    "parameters": (int,),
    "seconds_per_step": (float, int, type(None)),
    "precision": (str,),
    "epochs": (list,),
    "motion": (dict, type(None)),
    "reversal": (float, int, type(None)),
}
REQUIRED = ("train_loss", "test_accuracy")
"""Figures that every epoch of a result has, whatever version wrote it."""
SHOWN = ("test_accuracy", "train_loss", "test_loss")
"""Figures of every epoch that reports and pictures show."""


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        config: the run's configuration, as in its `config.yaml`.
        recipe: the recipe's numbers.
        data: name, numbers of images, encoding, whether it is CIFAR-10.
        parameters: trainable numbers of the network.
        motion: numbers p and relative distance of theta(1) from theta(0), see
            `describe_motion`; None for weights at rest.
        field_evaluations: per batch, `forward` and again in `backward`.
        seconds_per_step: median of a training step, None where none was timed.
        precision: of the run; older versions kept "auto" in `config`, and here what it came to.
        epochs: one row an epoch; see `History`.
        environment: versions, git revision, processor and its threads of the process that
            finished it.
        earlier_environments: those of processes that trained it before, where they differ.
        reversal: see `reversal_error`; None where it was not measured.
    """

    config: dict[str, Any]
    recipe: dict[str, Any]
    data: dict[str, Any]
    parameters: int
    field_evaluations: dict[str, int]
    seconds_per_step: float | None
    precision: str
    epochs: list[Row]
    environment: dict[str, Any]
    motion: dict[str, float | None] | None = None
    reversal: float | None = None
    earlier_environments: list[dict[str, Any]] = field(default_factory=list)

    def trained_with(self, name: str) -> list[str]:
        """The values that an entry of its environments had, each once."""
        found = [where.get(name) for where in (*self.earlier_environments, self.environment)]
        return list(dict.fromkeys(str(value) for value in found if value is not None))

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last epoch, from 0 to 1; no epoch is selected by it."""
        return self.curve("test_accuracy")[-1]

    def curve(self, name: str) -> list[float]:
        """A figure of every epoch; see `History`.

        Raises:
            ValueError: an epoch lacks it.
        """
        found = [row.get(name) for row in self.epochs]
        if None in found:
            raise ValueError(f"an epoch lacks its {name}")
        return [float(value) for value in found if value is not None]

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        with whole_file(path) as file:
            file.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read what `write` wrote.

        Raises:
            Damaged: the file is not a result.
            ValueError: it cannot be read at all.
        """
        try:
            text = path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read '{path}': {error.strerror}") from error
        try:
            found = json.loads(text)
            _check(found)
            return cls(**found)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise Damaged(path, f"is not the result of a run ({error})") from error


def _check(found: Any) -> None:
    """Raise an error that says what in the JSON of a result is of another kind, or lacking."""
    if not isinstance(found, dict):
        raise ValueError(f"it holds {found!r:.40}")
    for name, kinds in KINDS.items():
        if not isinstance(found.get(name), kinds):
            raise ValueError(f"its {name}: {found.get(name)!r:.40}")
    counts = [found["field_evaluations"].get(name) for name in ("forward", "backward")]
    if not all(isinstance(count, int) for count in counts):
        raise ValueError(f"its field evaluations: {found['field_evaluations']!r:.40}")
    if not all(isinstance(where, dict) for where in found.get("earlier_environments", [])):
        raise ValueError("its earlier environments")
    numbers = [row.get("epoch") for row in found["epochs"]]
    if not numbers or numbers != list(range(1, found["config"]["epochs"] + 1)):
        raise ValueError("its epochs are not all there")
    figures = [row.get(name) for row in found["epochs"] for name in REQUIRED]
    if not all(isinstance(figure, float | int) for figure in figures):
        raise ValueError(f"an epoch lacks one of {', '.join(REQUIRED)}")


def describe_data(data: ImageData) -> dict[str, Any]:
    """What a reader of a result needs to know about the images."""
    return {
        "name": data.name,
        "train_images": len(data.train),
        "test_images": len(data.test),
        "classes": list(data.classes),
        "encoding": data.encoding,
        "is_cifar10": data.is_cifar10,
    }
