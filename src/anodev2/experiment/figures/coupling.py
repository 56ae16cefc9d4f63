"""Which theta each step of z reads, on the time axis [anode]."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from anodev2.block import CoupledODE
from anodev2.coupling import Coupling
from anodev2.solver import Solver

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = 0.36
"""Width that a stage, or a point of the w-grid, needs to be told from the next."""
LABELS = 24
"""Points of the w-grid whose times are written out; of more, every second, third ..."""
Z, W = 1.0, 0.0
"""Heights of the two rows."""


@dataclass(frozen=True)
class Arrow:
    """A stage of a z-step, from 0 both, and the time at which it reads theta."""

    time: Fraction
    step: int
    stage: int


@dataclass(frozen=True)
class Diagram:
    """What is drawn of a coupling under a solver.

    Attributes:
        z_steps, w_steps: steps of z, and of w on the grid that the solver's stages need.
        stages: of each z-step.
        arrows: one for each stage, in the order in which they are evaluated.
    """

    z_steps: int
    w_steps: int
    stages: int
    arrows: tuple[Arrow, ...]

    @property
    def read(self) -> list[Fraction]:
        """The times at which anything reads theta, in order."""
        return sorted({arrow.time for arrow in self.arrows})


def diagram(coupling: Coupling, solver: Solver) -> Diagram:
    """Lay out a coupling for a solver.

    Args:
        coupling: the time grids.
        solver: of z.
    """
    nodes = solver.tableau.c
    reads = coupling.reads(nodes)
    arrows = tuple(
        Arrow(Fraction(point, reads.w_steps), step, stage)
        for step, points in enumerate(reads.index)
        for stage, point in enumerate(points)
    )
    return Diagram(coupling.z_steps, reads.w_steps, len(nodes), arrows)


def block_diagram(block: CoupledODE) -> Diagram:
    """Lay out the coupling of a block."""
    return diagram(block.coupling, block.solver)


def coupling_figure(diagrams: Mapping[str, Diagram]) -> Figure:
    """z-steps above w-steps, with an arrow from each theta to the stage that reads it.

    Args:
        diagrams: what to draw, one below the other, by title.
    """
    wide = max(max(d.z_steps * d.stages, d.w_steps) for d in diagrams.values())
    size = (max(7.0, INCHES * wide + 1.5), 2.5 * len(diagrams))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(diagrams), 1, squeeze=False)[:, 0]
    for axes, (title, drawn) in zip(panels, diagrams.items(), strict=True):
        axes.set_title(title, fontsize=10, loc="left")
        _draw(axes, drawn)
    figure.get_layout_engine().set(h_pad=0.12)  # type: ignore[union-attr, call-arg]
    panels[-1].set_xlabel("time t   (filled: θ(t) is read; dotted: w-steps that no read needs)")
    return figure


def _draw(axes: "Axes", drawn: Diagram) -> None:
    _draw_z(axes, drawn)
    _draw_w(axes, drawn)
    for arrow in drawn.arrows:
        axes.annotate(
            "",
            xy=(_place(drawn, arrow), Z - 0.11),
            xytext=(float(arrow.time), W + 0.06),
            arrowprops={
                "arrowstyle": "-|>",
                "color": _colour(arrow.time),
                "linewidth": 1.3,
                "shrinkA": 1,
                "shrinkB": 1,
            },
        )
    axes.set(xlim=(-0.03, 1.03), ylim=(W - 0.12, Z + 0.36))
    axes.set_yticks([W, Z], ["w-steps", "z-steps"])
    every = -(-len(drawn.read) // LABELS)
    shown = drawn.read[::every]
    axes.set_xticks([float(t) for t in shown], [_written(t) for t in shown], fontsize=12)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_z(axes: "Axes", drawn: Diagram) -> None:
    """A box a step, with its stages in it and z at its ends."""
    length = 1 / drawn.z_steps
    gap = 0.06 * length
    for step in range(drawn.z_steps):
        corner = (step * length + gap, Z - 0.12)
        box = Rectangle(corner, length - 2 * gap, 0.24, facecolor="#dbe9f6", edgecolor="#0072b2")
        axes.add_patch(box)
    for step in range(drawn.z_steps + 1):
        t = Fraction(step, drawn.z_steps)
        axes.text(float(t), Z + 0.2, f"$z$({t})", ha="center", fontsize=9)
    for arrow in drawn.arrows:
        name = f"$k_{arrow.stage + 1}$" if drawn.stages > 1 else "$f$"
        axes.text(_place(drawn, arrow), Z, name, ha="center", va="center", fontsize=9)


def _draw_w(axes: "Axes", drawn: Diagram) -> None:
    """A point of the grid a w-step: filled where read, dotted after the last read."""
    last = float(drawn.read[-1])
    axes.plot([0, last], [W, W], color="#555555", linewidth=1, zorder=1)
    axes.plot([last, 1], [W, W], color="#999999", linewidth=1, linestyle=":", zorder=1)
    for point in range(drawn.w_steps + 1):
        t = Fraction(point, drawn.w_steps)
        read = t in drawn.read
        axes.plot(
            [float(t)],
            [W],
            marker="s",
            markersize=8 if read else 5,
            color=_colour(t) if read else "white",
            markeredgecolor=_colour(t) if read else "#777777",
            zorder=2,
        )


def _place(drawn: Diagram, arrow: Arrow) -> float:
    """Where a stage stands: side by side in the box of its step, as several share a time."""
    return (arrow.step + (arrow.stage + 0.5) / drawn.stages * 0.88 + 0.06) / drawn.z_steps


def _colour(t: Fraction) -> tuple[float, ...]:
    """Of theta at a time; the light end of the map is left out."""
    return tuple(colormaps["viridis"](0.85 * float(t)))


def _written(t: Fraction) -> str:
    if t.denominator == 1:
        return f"${t.numerator}$"
    return rf"$\frac{{{t.numerator}}}{{{t.denominator}}}$"
