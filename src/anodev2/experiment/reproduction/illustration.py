"""The pictures of a report."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from anodev2.experiment.figures.curves import OWN_COLOUR, training_curves
from anodev2.experiment.figures.gallery import GALLERY
from anodev2.experiment.figures.kernels import kernels_figure, kernels_of_runs
from anodev2.experiment.figures.picture import files_of, save
from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.document import Picture
from anodev2.experiment.result import SHOWN, Result
from anodev2.models import METHODS, find_method
from anodev2.usage import UsageError

MOVING = [name for name in METHODS if find_method(name).moves]
"""Labels whose kernels are drawn."""
LISTED = 4
"""How many rows without curves are named, not counted."""
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
        files = files_of(out, picture.name)
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
            label: runs.by_key[model, label]
            for label in OWN_COLOUR
            if (model, label) in runs.by_key
        }
        if drawn:
            others = [label for m, label in runs.by_key if m == model and label not in drawn]
            told = f"{name}: accuracy and loss after each epoch{_without(others)}."
            curves = Picture(f"curves-{model}", told)
            yield curves, partial(_curves, drawn)
        moving = [f for label in MOVING for f in runs.folders_of(model, label)[:1]]
        if moving:
            kernels = Picture(
                f"kernels-{model}", f"{name}: kernels of its first block in time, first seed."
            )
            trained = all((f / "checkpoints" / "last.ckpt").exists() for f in moving)
            yield kernels, partial(_kernels, moving) if trained else None
    for name, caption in STANDING.items():
        argument = {"method": [None]}.get(GALLERY[name].takes, [])
        yield Picture(name, caption), partial(GALLERY[name].figure, *argument)


def _without(labels: Sequence[str]) -> str:
    if not labels:
        return ""
    return f"; not drawn: {', '.join(labels) if len(labels) <= LISTED else f'{len(labels)} rows'}"


def _curves(drawn: Mapping[str, Sequence[Result]]) -> Figure:
    return training_curves(
        {
            name: {label: [run.curve(name) for run in results] for label, results in drawn.items()}
            for name in SHOWN
        }
    )


def _kernels(folders: Sequence[Path]) -> Figure | None:
    try:
        return kernels_figure(kernels_of_runs(folders))
    except UsageError as error:
        print(f"anodev2: {error}", file=sys.stderr)
        return None
