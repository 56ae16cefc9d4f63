"""The pictures of a report."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from anodev2.experiment.figures.curves import curves_of_runs, training_curves
from anodev2.experiment.figures.gallery import FIGURES
from anodev2.experiment.figures.kernels import kernels_figure, kernels_of_runs
from anodev2.experiment.figures.picture import save
from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.document import Picture
from anodev2.models import METHODS

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
        if draw and not (there and picture.name in STANDING):
            figure = draw()
            for file in files:
                save(figure, file)
        if draw or there:
            pictures.append(picture)
    return pictures


def _pictures(runs: Collection) -> Iterator[tuple[Picture, Callable[[], Figure] | None]]:
    for model in runs.models:
        name = NAMES[model]
        folders = [folder for label in CURVES for folder in runs.folders_of(model, label)]
        if folders:
            curves = Picture(f"curves-{model}", f"{name}: accuracy and loss after each epoch.")
            yield curves, partial(_curves, folders)
        moving = [f for label in METHODS[3:] for f in runs.folders_of(model, label)[:1]]
        if moving:
            kernels = Picture(f"kernels-{model}", f"{name}: kernels of its first block in time.")
            trained = all((f / "checkpoints" / "last.ckpt").exists() for f in moving)
            yield kernels, partial(_kernels, moving) if trained else None
    for name, caption in STANDING.items():
        argument = {"method": [None]}.get(FIGURES[name].takes, [])
        yield Picture(name, caption), partial(FIGURES[name].figure, *argument)


def _curves(folders: Sequence[Path]) -> Figure:
    return training_curves(curves_of_runs(folders))


def _kernels(folders: Sequence[Path]) -> Figure:
    return kernels_figure(kernels_of_runs(folders))
