"""The pictures of a report."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from anodev2.experiment.figures.curves import FIGURES as EPOCH_FIGURES
from anodev2.experiment.figures.curves import training_curves
from anodev2.experiment.figures.gallery import FIGURES
from anodev2.experiment.figures.kernels import kernels_figure, kernels_of_runs
from anodev2.experiment.figures.picture import save
from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.document import Picture
from anodev2.experiment.result import Result
from anodev2.models import METHODS
from anodev2.usage import UsageError

CURVES = (*METHODS, "anode-5")
"""Labels whose curves are drawn, if they have runs."""
STANDING = {
    "advection": "Diffusion, advection, reaction and all three together on a Gaussian, as in the "
    "paper's example.",
    "coupling": "Which theta each z-step reads, in both configurations.",
    "adjoint": "How wrong the continuous adjoint's gradient is, against the number of steps.",
}
"""Pictures that need no runs, with their captions."""


def illustrate(out: Path, runs: Collection) -> list[Picture]:
    """Draw the pictures of a report as PNG and SVG.

    Kernels are drawn where checkpoints are at hand; without them a picture that is there stays,
    as do those that need no runs.

    Args:
        out: the folder of the pictures.
        runs: what they show.

    Returns:
        The pictures, in the order of the report.
    """
    pictures = []
    for picture, draw in _pictures(runs):
        files = [out / f"{picture.name}.{suffix}" for suffix in ("png", "svg")]
        there = all(file.exists() for file in files)
        figure = draw() if draw and not (there and picture.name in STANDING) else None
        if figure is not None:
            for file in files:
                save(figure, file)
        if figure is not None or there:
            pictures.append(picture)
    return pictures


def _pictures(runs: Collection) -> Iterator[tuple[Picture, Callable[[], Figure | None] | None]]:
    for model in runs.models:
        name = NAMES[model]
        drawn = {
            label: runs.by_key[model, label] for label in CURVES if (model, label) in runs.by_key
        }
        if drawn:
            curves = Picture(f"curves-{model}", f"{name}: accuracy and loss after each epoch.")
            yield curves, partial(_curves, drawn)
        moving = [f for label in METHODS[3:] for f in runs.folders_of(model, label)[:1]]
        if moving:
            kernels = Picture(f"kernels-{model}", f"{name}: kernels of its first block in time.")
            trained = all((f / "checkpoints" / "last.ckpt").exists() for f in moving)
            yield kernels, partial(_kernels, moving) if trained else None
    for name, caption in STANDING.items():
        argument = {"method": [None]}.get(FIGURES[name].takes, [])
        yield Picture(name, caption), partial(FIGURES[name].figure, *argument)


def _curves(drawn: Mapping[str, Sequence[Result]]) -> Figure:
    return training_curves(
        {
            name: {
                label: [[float(row[name] or 0) for row in run.epochs] for run in results]
                for label, results in drawn.items()
            }
            for name in EPOCH_FIGURES
        }
    )


def _kernels(folders: Sequence[Path]) -> Figure | None:
    try:
        return kernels_figure(kernels_of_runs(folders))
    except UsageError as error:
        print(f"anodev2: {error}", file=sys.stderr)
        return None
