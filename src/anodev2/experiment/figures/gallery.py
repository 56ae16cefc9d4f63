"""All pictures by name, as PNG and SVG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from matplotlib.figure import Figure
from torch import nn

from anodev2.block import CoupledODE
from anodev2.experiment.figures.adjoint import adjoint_figure
from anodev2.experiment.figures.advection import advection_figure
from anodev2.experiment.figures.coupling import block_diagram, coupling_figure
from anodev2.experiment.figures.curves import curves_of_runs, training_curves
from anodev2.experiment.figures.kernels import kernels_figure, kernels_of_runs
from anodev2.experiment.figures.picture import files_of, save
from anodev2.experiment.trained import run_folders
from anodev2.models import find_method
from anodev2.usage import UsageError, check_choice

CONFIGURATIONS = {
    "anodev2-1": "configuration 1: z and θ advance together",
    "anodev2-2": "configuration 2: θ evolves before it is applied",
}
"""The methods drawn unless one is named, with their titles."""


@dataclass(frozen=True)
class Entry:
    """A picture that can be asked for.

    Args:
        figure: makes it of what it takes.
        takes: nothing; folders of runs, which it needs; or methods, some by default.
    """

    figure: Callable[..., Figure]
    takes: Literal["nothing", "runs", "method"] = "nothing"


def _kernels(runs: Sequence[Path]) -> Figure:
    return kernels_figure(kernels_of_runs(run_folders(runs)))


def _curves(runs: Sequence[Path]) -> Figure:
    return training_curves(curves_of_runs(run_folders(runs)))


def _coupling(method: str | None) -> Figure:
    titles = CONFIGURATIONS if method is None else {method: CONFIGURATIONS.get(method, method)}
    return coupling_figure({title: block_diagram(_block(name)) for name, title in titles.items()})


def _block(name: str) -> CoupledODE:
    """A small block as the method makes them."""
    method = find_method(name)
    if not method.moves:
        raise UsageError(
            f"the weights of {name!r} stay at rest, so nothing is coupled: expected a method that "
            f"moves them, such as {' or '.join(CONFIGURATIONS)}"
        )
    with torch.random.fork_rng(devices=[]):
        block = method.block(nn.Conv2d(1, 1, 3, padding=1))
    assert isinstance(block, CoupledODE)
    return block


GALLERY: dict[str, Entry] = {
    "advection": Entry(advection_figure),
    "kernels": Entry(_kernels, "runs"),
    "coupling": Entry(_coupling, "method"),
    "curves": Entry(_curves, "runs"),
    "adjoint": Entry(adjoint_figure),
}


def draw(
    name: str, out: Path, *, runs: Sequence[Path] = (), method: str | None = None
) -> list[Path]:
    """Draw a picture into `out/NAME.png` and `out/NAME.svg`.

    Args:
        name: one of `GALLERY`.
        out: folder, made if it is not there.
        runs: folders of runs, or of comparisons for all runs in them; `kernels` and `curves`
            need some, the others take none.
        method: what `coupling` draws, as in `anodev2-1-10-rk4`; both configurations unless given.

    Returns:
        The files.

    Raises:
        ValueError: an unknown picture or method, something that the picture does not take or
            lacks, or a folder that cannot be written to.
    """
    check_choice("figure", name, GALLERY)
    entry = GALLERY[name]
    if runs and entry.takes != "runs":
        raise UsageError(f"figure {name!r} takes no runs: {_taking('runs')} take some")
    if method is not None and entry.takes != "method":
        raise UsageError(f"figure {name!r} takes no method: {_taking('method')} takes one")
    if entry.takes == "runs" and not runs:
        raise UsageError(
            f"figure {name!r} is drawn from runs: name their folders, as in "
            "--runs out/runs/resnet4-anodev2-1-seed0"
        )
    options: dict[str, list[object]] = {"nothing": [], "runs": [runs], "method": [method]}
    paths = files_of(out, name)
    figure = entry.figure(*options[entry.takes])
    try:
        for path in paths:
            save(figure, path)
    except OSError as error:
        raise UsageError(
            f"cannot write to '{out}' ({error.strerror}): expected a folder, or a place for one"
        ) from error
    return paths


def _taking(what: str) -> str:
    return " and ".join(name for name, entry in GALLERY.items() if entry.takes == what)
