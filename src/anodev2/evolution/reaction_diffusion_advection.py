"""Reaction, diffusion and advection of a convolution kernel on its own grid.

    dw/dt = sigma(A w),    A = d lap + v . grad + rho                    [w_rda_pde, App. B]

either split as the paper computes it, A exactly and sigma after it,

    w(t + dt) = sigma( exp(dt A) w(t) ),                                 [nonlinear_solution]

or unsplit, by a solver. The grid is the kernel's own last 1, 2 or 3 axes, and A and its
exponential are dense real matrices on it (see `spectral`). At zero coefficients the linear part
returns w to the bit.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.operator import Evolution, ShapeError, Step, integrate
from anodev2.evolution.product import add_product
from anodev2.evolution.spectral import GridAxes, PointAxes, SpectralAxes
from anodev2.precision import full_precision, widened
from anodev2.solver import Solver
from anodev2.usage import check_choice

LARGEST_DENSE_GRID = 32
"""Grid points up to which all axes share one matrix; above it each axis has its own."""

LARGEST_POINT_GRID = 256
"""Grid points that may each have coefficients of their own."""


class ReactionDiffusionAdvection(Evolution):
    """dw/dt = sigma(d lap w + v . grad w + rho w) on the kernel's grid.

    Split (without a solver): w(t + dt) = sigma(exp(dt A) w). With sigma = tanh this map has no
    limit as dt goes to zero, so the number of steps is part of the model; with None it is a
    semigroup, exact for any dt. Unsplit (with one): the equation as it stands, with a limit for
    every sigma, and at the solver's order.

    Parameters, all zero at first and unconstrained (networks learn negative d, which
    sharpens): `d` in cells^2 per unit time, one an axis; `v` in cells per unit time, one an
    axis; `rho` per unit time. That is 2n + 1 numbers on n axes, five for an image kernel.

    Args:
        shape: (out, in, *kernel) with 1, 2 or 3 kernel axes of any size, even ones included.
        coefficients: "channel" (default) gives each entry of the first axis its own set, output
            channels but for transposed convolutions, "layer" has
            one set, "filter" one for each (out, in) pair, "point" one for each point of the
            grid: v is then a velocity field, as in registration by diffeomorphisms.
        activation: sigma, an elementwise function, or None for the linear equation.
        solver: integrates the unsplit equation; None is the split step.

    Raises:
        ShapeError: a weight without 1, 2 or 3 kernel axes, or too many for coefficients by point.
        ValueError: an unknown layout.

    Half-precision weights are evolved in float32 and cast back, whatever the autocast state.

    Source: [w_rda_pde], [nonlinear_solution] and the appendix "Numerical Method".
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        coefficients: str = "channel",
        activation: Callable[[Tensor], Tensor] | None = torch.tanh,
        solver: Solver | None = None,
    ) -> None:
        super().__init__()
        if not 3 <= len(shape) <= 5:
            raise ShapeError(
                "ReactionDiffusionAdvection moves convolution kernels, (out, in) and 1, 2 or 3 "
                f"kernel axes, got a weight of shape {tuple(shape)}; LinearEvolution, "
                "NetworkEvolution, CoordinateEvolution and BasisEvolution need no grid"
            )
        kernel = tuple(shape[2:])
        layouts = {
            "layer": (),
            "channel": tuple(shape[:1]),
            "filter": tuple(shape[:2]),
            "point": kernel,
        }
        check_choice("coefficients", coefficients, layouts)
        if coefficients == "point" and prod(kernel) > LARGEST_POINT_GRID:
            raise ShapeError(
                f"coefficients='point' has one matrix for up to {LARGEST_POINT_GRID} points, got a "
                f"kernel of {kernel}; 'channel' and 'filter' take any"
            )
        self.coefficients = coefficients
        self.activation = activation
        self.solver = solver
        self.kernel = kernel
        layout = layouts[coefficients]
        self.d = nn.Parameter(torch.zeros(*layout, len(kernel)))
        self.v = nn.Parameter(torch.zeros(*layout, len(kernel)))
        self.rho = nn.Parameter(torch.zeros(layout))
        self.grids = nn.ModuleList(_grids(kernel, by_point=coefficients == "point"))

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        return self.stepper(dt)(w, t)

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"] | None:
        """sigma(A w); None for the split step with a sigma, where only steps are defined."""
        if self.activation is not None and self.solver is None:
            return None
        with full_precision(w.device):
            coefficients = self._coefficients()
            wide = widened(w, coefficients)
            return self._rate(wide, self._generators(coefficients)).to(w.dtype)

    def stepper(self, dt: float) -> Step:
        """The step of length dt, with its matrices made once."""
        return self._stepper(self._coefficients(), dt)

    @classmethod
    def stacked(cls, evolutions: Sequence[Evolution], dt: float) -> Step:
        """The same for stacked weights: their coefficient sets stand one after another."""
        members = [e for e in evolutions if isinstance(e, ReactionDiffusionAdvection)]
        return members[0]._stepper(torch.cat([e._coefficients() for e in members]), dt)

    def propagators(self, dt: float) -> list[Float[Tensor, "sets n n"]]:
        """G = exp(dt A) - I as real matrices; a linear step is w + G w.

        Returns:
            In float32 or float64, one matrix (sets, N, N) over all N grid points, or on a
            large grid one for each axis, to be applied in turn; reaction acts with the
            first. `sets` is the number of coefficient sets.
        """
        return self._propagators(self._coefficients(), dt)

    def extra_repr(self) -> str:
        unsplit = "" if self.solver is None else f", {self.solver}"
        return f"{self.kernel} kernel, coefficients={self.coefficients!r}{unsplit}"

    def _axes(self) -> list[GridAxes]:
        return [grid for grid in self.grids if isinstance(grid, GridAxes)]

    def _coefficients(self) -> Float[Tensor, "rows m"]:
        """d and v of every axis and rho, in float32 at least."""
        axes = len(self.kernel)
        parts = (self.d.reshape(-1, axes), self.v.reshape(-1, axes), self.rho.reshape(-1, 1))
        return widened(torch.cat(parts, 1))

    def _propagators(self, coefficients: Float[Tensor, "rows m"], dt: float) -> list[Tensor]:
        with full_precision(coefficients.device):
            return [grid.propagator(coefficients, dt) for grid in self._axes()]

    def _generators(self, coefficients: Float[Tensor, "rows m"]) -> list[Tensor]:
        with full_precision(coefficients.device):
            return [grid.generator(coefficients) for grid in self._axes()]

    def _stepper(self, coefficients: Float[Tensor, "rows m"], dt: float) -> Step:
        if self.solver is None:
            return self._split(self._propagators(coefficients, dt))
        return self._unsplit(self.solver, self._generators(coefficients), dt)

    def _split(self, propagators: Sequence[Tensor]) -> Step:
        def step(w: Tensor, t: float) -> Tensor:
            with full_precision(w.device):
                wide = widened(w, propagators[0])
                for grid, matrix in zip(self._axes(), propagators, strict=True):
                    wide = self._add(wide, wide, grid, matrix)
                return (self.activation(wide) if self.activation else wide).to(w.dtype)

        return step

    def _unsplit(self, solver: Solver, generators: Sequence[Tensor], dt: float) -> Step:
        def step(w: Tensor, t: float) -> Tensor:
            with full_precision(w.device):
                wide = widened(w, generators[0])
                rate = lambda x, _: self._rate(x, generators)  # noqa: E731
                return integrate(solver, rate, wide, t, dt).to(w.dtype)

        return step

    def _rate(self, w: Float[Tensor, "*shape"], generators: Sequence[Tensor]) -> Tensor:
        total = torch.zeros_like(w)
        for grid, matrix in zip(self._axes(), generators, strict=True):
            total = self._add(total, w, grid, matrix)
        return self.activation(total) if self.activation else total

    def _add(self, base: Tensor, w: Tensor, grid: GridAxes, matrix: Tensor) -> Tensor:
        places = [a - len(self.kernel) for a in grid.axes]
        return add_product(base, w, places, [matrix.to(w.dtype)])


def _grids(kernel: Sequence[int], *, by_point: bool) -> list[GridAxes]:
    if by_point:
        return [PointAxes(kernel)]
    axes = list(range(len(kernel)))
    groups = [axes] if prod(kernel) <= LARGEST_DENSE_GRID else [[a] for a in axes]
    return [SpectralAxes(kernel, group, reacts=group[0] == 0) for group in groups]
