"""Diffusion, advection and reaction of a Gaussian, one at a time and together.

A convolution kernel seen as a pattern: the paper's example of how operators move it, computed by
the library's own evolution without sigma. Source: appendix "Reaction-diffusion-advection (RDA)
Simulation", [RDA_example].
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection

SIDE = 41
"""Cells along each axis of the periodic grid; odd, so that whole cells of advection roll it."""
DEVIATION = 3.0
"""Standard deviation of the Gaussian at t = 0, in cells."""
TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Coefficients:
    """d in cells^2, v in cells (along y and x) and rho, all per unit time."""

    d: float = 0.0
    v: tuple[float, float] = (0.0, 0.0)
    rho: float = 0.0

    def __str__(self) -> str:
        d, rho = (f"{value:g}" for value in (self.d, self.rho))
        v = f"({self.v[0]:g}, {self.v[1]:g})"
        parts = {"d": d if self.d else "", "v": v if any(self.v) else ""}
        parts["ρ"] = rho if self.rho else ""
        lines = [f"{name} = {value}" for name, value in parts.items() if value]
        return "\n".join(lines).replace("-", "−")


ROWS = {
    "diffusion": Coefficients(d=8.0),
    "advection": Coefficients(v=(-8.0, -12.0)),
    "reaction": Coefficients(rho=0.7),
    "all three": Coefficients(d=8.0, v=(-8.0, -12.0), rho=0.7),
}


def gaussian() -> Float[Tensor, "side side"]:
    """The pattern at t = 0: a Gaussian in the middle, wrapped, with 1 as its largest value."""
    away = torch.arange(SIDE, dtype=torch.float64) - SIDE // 2
    line = sum(torch.exp(-((away + turn * SIDE) / DEVIATION).square() / 2) for turn in (-1, 0, 1))
    assert isinstance(line, Tensor)
    return torch.outer(line, line) / line.max().square()


@torch.no_grad()
def patterns(coefficients: Coefficients) -> Float[Tensor, "times side side"]:
    """The Gaussian at each of `TIMES`, in float64.

    Args:
        coefficients: how it moves.
    """
    q = ReactionDiffusionAdvection((1, 1, SIDE, SIDE), coefficients="layer", activation=None)
    q = q.double()
    q.d.fill_(coefficients.d)
    q.v.copy_(torch.tensor(coefficients.v))
    q.rho.fill_(coefficients.rho)
    start = gaussian()[None, None]
    return torch.stack([q(start, 0.0, t)[0, 0] for t in TIMES])


def advection_figure(rows: Mapping[str, Coefficients] = ROWS) -> Figure:
    """A row for each way to move, a column for each time, all on one scale of colours.

    Args:
        rows: coefficients by the row's name.
    """
    found = {name: patterns(coefficients) for name, coefficients in rows.items()}
    largest = max(float(pattern.max()) for pattern in found.values())
    figure = Figure(figsize=(8.6, 1.3 * len(rows) + 0.6), layout="constrained")
    grid = figure.subplots(len(rows), len(TIMES), squeeze=False)
    for axes, t in zip(grid[0], TIMES, strict=True):
        axes.set_title(f"t = {t:g}", fontsize=10)
    for line, (name, pattern) in zip(grid, found.items(), strict=True):
        for axes, values in zip(line, pattern, strict=True):
            image = axes.imshow(values.tolist(), cmap="viridis", vmin=0, vmax=largest)
            axes.set(xticks=[], yticks=[])
            for draw in (axes.axhline, axes.axvline):
                draw(SIDE // 2, color="white", linewidth=0.5, alpha=0.5)
        line[0].set_ylabel(
            f"{name}\n{rows[name]}", rotation=0, ha="right", va="center", fontsize=9, labelpad=8
        )
    figure.colorbar(image, ax=grid, shrink=0.6, label="w")
    units = "d in cells², v in cells along y and x (content moves against it), ρ: per unit time"
    figure.supxlabel(units, fontsize=9)
    return figure
