"""The pictures of a report."""

from collections.abc import Iterator
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

    Kernels are drawn where checkpoints are at hand; without them a picture that is there stays.

    Args:
        out: the folder of the pictures.
        runs: what they show.

    Returns:
        The pictures, in the order of the report.
    """
    pictures = []
    for picture, figure in _pictures(runs):
        files = [out / f"{picture.name}.{suffix}" for suffix in ("png", "svg")]
        if figure is not None:
            for file in files:
                save(figure, file)
        if all(file.exists() for file in files):
            pictures.append(picture)
    return pictures


def _pictures(runs: Collection) -> Iterator[tuple[Picture, Figure | None]]:
    for model in runs.models:
        name = NAMES[model]
        folders = [folder for label in CURVES for folder in runs.folders_of(model, label)]
        if folders:
            figure = training_curves(curves_of_runs(folders))
            yield Picture(f"curves-{model}", f"{name}: accuracy and loss after each epoch."), figure
        moving = [f for label in METHODS[3:] for f in runs.folders_of(model, label)[:1]]
        if moving:
            kept = [f for f in moving if (f / "checkpoints" / "last.ckpt").exists()]
            drawn = kernels_figure(kernels_of_runs(kept)) if kept == moving else None
            yield Picture(f"kernels-{model}", f"{name}: kernels of its first block in time."), drawn
    for name, caption in STANDING.items():
        argument = {"method": [None]}.get(FIGURES[name].takes, [])
        yield Picture(name, caption), FIGURES[name].figure(*argument)
