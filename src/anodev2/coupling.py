"""The two uniform time grids on [0, 1] and how they are coupled.

The activations z advance in `z_steps` steps and the weight state w in `w_steps` steps. A
`Coupling` says at which time each z-step reads theta; the two configurations of the paper
are two such choices. Times are fractions of integers, so t reaches 1 exactly, and no tensor
holds a clock. Source: section "Two methods used in this paper".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

from anodev2.usage import UsageError, check_count

FINEST_GRID = 10_000
"""The most w-steps that a read time given as a float is matched against."""


@dataclass(frozen=True)
class Reads:
    """A coupling laid out for one solver.

    `w_steps` is the number of steps of the w-grid; `index[i][s]` is the point of that grid
    at which stage s of z-step i reads theta.
    """

    w_steps: int
    index: tuple[tuple[int, ...], ...]

    @property
    def distinct(self) -> tuple[int, ...]:
        """The grid points that anything reads, in order."""
        return tuple(sorted({point for step in self.index for point in step}))


@dataclass(frozen=True)
class Coupling:
    """Time grids of z and w, and the time at which each z-step reads theta.

    Args:
        z_steps: steps of the activation ODE, N >= 1, each of length 1/N.
        w_steps: steps of the evolution ODE, M >= 1, each of length 1/M.
        read_times: for each z-step a time in [0, 1] on the w-grid; all stages of the step
            read theta there. None: every stage reads theta at its own time, and the w-grid
            is refined until it holds them (twice as fine for Midpoint and RK4).

    Raises:
        ValueError: a count below one, a number of read times other than `z_steps`, or a
            time off the grid, with the smallest `w_steps` that contains it.
        TypeError: a count that is no integer.

    Source: section "Two methods used in this paper", Delta t = 1/N and delta t = 1/M.
    """

    z_steps: int
    w_steps: int
    read_times: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_count("z_steps", self.z_steps)
        check_count("w_steps", self.w_steps)
        if self.read_times is None:
            return
        object.__setattr__(self, "read_times", tuple(float(t) for t in self.read_times))
        if len(self.read_times) != self.z_steps:
            raise UsageError(
                f"{len(self.read_times)} read times for {self.z_steps} z-steps: "
                "expected one for each step"
            )
        exact = [_exact_time(t) for t in self.read_times]
        self._refuse_off_grid(exact)

    def reads(self, nodes: Sequence[Fraction]) -> Reads:
        """Lay the coupling out for a solver whose stages lie at `nodes` within a step."""
        if self.read_times is not None:
            points = [int(_exact_time(t) * self.w_steps) for t in self.read_times]
            return Reads(self.w_steps, tuple((point,) * len(nodes) for point in points))
        times = [[(i + node) / self.z_steps for node in nodes] for i in range(self.z_steps)]
        w_steps = lcm(self.w_steps, *(t.denominator for step in times for t in step))
        return Reads(w_steps, tuple(tuple(int(t * w_steps) for t in step) for step in times))

    def _refuse_off_grid(self, times: list[Fraction]) -> None:
        for given, t in zip(self.read_times or (), times, strict=True):
            if (t * self.w_steps).denominator != 1:
                smallest = lcm(*(time.denominator for time in times))
                raise UsageError(
                    f"read time {given:g} is not on the grid of {self.w_steps} w-steps: "
                    f"the smallest w_steps that contains every read time is {smallest}"
                )


def configuration_1(steps: int = 5) -> Coupling:
    """z and theta advance together: step i of N reads theta(i/N).

    Args:
        steps: N, the steps of both grids; the cost of the block is N field evaluations.

    Raises:
        ValueError: fewer than one step.

    Source: "Configuration 1" [nonlinear_solution], five steps in the paper.
    """
    return Coupling(z_steps=steps, w_steps=steps)


def configuration_2(z_steps: int = 2, w_steps: int = 10) -> Coupling:
    """theta evolves for a while before it is applied: step i of N reads theta(i/(N - 1)).

    With the paper's two steps z reads theta(0) and, after ten w-steps of 1/10, theta(1);
    a single step reads theta(1).

    Args:
        z_steps: N, the number of field evaluations.
        w_steps: M, a multiple of N - 1.

    Raises:
        ValueError: fewer than one step, or an M that is no multiple of N - 1.

    Source: "Configuration 2" and the appendix "Numerical Method".
    """
    check_count("z_steps", z_steps)
    times = (1.0,) if z_steps == 1 else tuple(i / (z_steps - 1) for i in range(z_steps))
    return Coupling(z_steps, w_steps, times)


def grid_points(times: Sequence[float], w_steps: int) -> list[int]:
    """The points of a w-grid at some times.

    Raises:
        ValueError: a time that is not on the grid, or times that do not ascend.
    """
    times = [float(t) for t in times]
    if not times or any(b < a for a, b in pairwise(times)):
        raise UsageError(f"times {tuple(times)}: expected at least one, in ascending order")
    reads = Coupling(len(times), w_steps, tuple(times)).reads([Fraction(0)])
    return [point for (point,) in reads.index]


def _exact_time(t: float) -> Fraction:
    exact = Fraction(t).limit_denominator(FINEST_GRID) if 0 <= t <= 1 else None
    if exact is None or abs(float(exact) - t) > 1e-9:
        raise UsageError(
            f"read time {t!r} must be a fraction in [0, 1] of at most {FINEST_GRID} w-steps"
        )
    return exact
