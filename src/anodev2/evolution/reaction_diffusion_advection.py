"""Reaction, diffusion and advection of a convolution kernel on its own grid.

One step of dw/dt = sigma(d lap w + v . grad w + rho w), split as in the paper:

    w(t + dt) = sigma( F^-1( exp(dt lambda(k)) F w(t) ) ),                [nonlinear_solution]
    lambda(k) = -sum_a d_a k_a^2 + i sum_a v_a k_a + rho.                  [w_rda_pde, App. B]

The grid is the kernel's own last 1, 2 or 3 axes. The propagator is one dense real matrix (see
`spectral`), built from its distance to the identity, expm1(dt lambda), so that at zero
coefficients w is returned to the bit.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.operator import Evolution, ShapeError, Step
from anodev2.evolution.spectral import SpectralAxes
from anodev2.precision import full_precision
from anodev2.usage import check_choice

LARGEST_DENSE_GRID = 32
"""Grid points up to which all axes share one matrix; above it each axis has its own."""


class ReactionDiffusionAdvection(Evolution):
    """w(t + dt) = sigma(exp(dt (d lap + v . grad + rho)) w(t)) on the kernel's grid.

    The linear part is solved exactly and sigma applied after it, the paper's split step.

    Parameters, all zero at first and unconstrained (networks learn negative d, which
    sharpens): `d` in cells^2 per unit time, one an axis; `v` in cells per unit time, one an
    axis; `rho` per unit time. That is 2n + 1 numbers on n axes, five for an image kernel.
    With sigma = tanh the split map has no limit as dt goes to zero, so the number of steps
    is part of the model; with None the map is a semigroup, exact for any dt.

    Args:
        shape: (out, in, *kernel) with 1, 2 or 3 kernel axes of any size, even ones included.
        coefficients: "channel" (default) gives each output channel its own set, "layer" has
            one set, "filter" one for each (out, in) pair.
        activation: sigma, an elementwise function, or None for the linear equation.

    Raises:
        ShapeError: a weight without 1, 2 or 3 kernel axes.
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
    ) -> None:
        super().__init__()
        if not 3 <= len(shape) <= 5:
            raise ShapeError(
                f"ReactionDiffusionAdvection moves convolution kernels, (out, in) and 1, 2 or "
                f"3 kernel axes; got a weight of shape {tuple(shape)}"
            )
        layouts = {"layer": (), "channel": tuple(shape[:1]), "filter": tuple(shape[:2])}
        check_choice("coefficients", coefficients, layouts)
        self.coefficients = coefficients
        self.activation = activation
        self.kernel = tuple(shape[2:])
        layout = layouts[coefficients]
        self.d = nn.Parameter(torch.zeros(*layout, len(self.kernel)))
        self.v = nn.Parameter(torch.zeros(*layout, len(self.kernel)))
        self.rho = nn.Parameter(torch.zeros(layout))
        axes = list(range(len(self.kernel)))
        groups = [axes] if prod(self.kernel) <= LARGEST_DENSE_GRID else [[a] for a in axes]
        self.grids = nn.ModuleList(
            SpectralAxes(self.kernel, group, reacts=group[0] == 0) for group in groups
        )

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        return self.stepper(dt)(w, t)

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"] | None:
        """d lap w + v . grad w + rho w; None with a sigma, where only steps are defined."""
        if self.activation is not None:
            return None
        with full_precision(w.device):
            coefficients = self._coefficients()
            wide = w.to(torch.promote_types(w.dtype, coefficients.dtype))
            rates = torch.zeros_like(wide)
            for grid in self._spectral():
                generator = grid.matrix(torch.clone, coefficients).to(wide.dtype)
                rates = self._add_product(rates, wide, grid.axes, generator)
            return rates.to(w.dtype)

    def stepper(self, dt: float) -> Step:
        """The step of length dt, with its propagator made once."""
        return self._step(self.propagators(dt))

    @classmethod
    def stacked(cls, evolutions: Sequence[Evolution], dt: float) -> Step:
        """The same for stacked weights: their coefficient sets stand one after another."""
        members = [e for e in evolutions if isinstance(e, ReactionDiffusionAdvection)]
        coefficients = torch.cat([e._coefficients() for e in members])
        return members[0]._step(members[0]._propagators(coefficients, dt))

    def propagators(self, dt: float) -> list[Float[Tensor, "sets n n"]]:
        """G = F^-1 expm1(dt lambda) F as real matrices; a linear step is w + G w.

        Returns:
            In float32 or float64, one matrix (sets, N, N) over all N grid points, or on a
            large grid one for each axis, to be applied in turn; reaction acts with the
            first. `sets` is the number of coefficient sets.
        """
        return self._propagators(self._coefficients(), dt)

    def extra_repr(self) -> str:
        return f"{self.kernel} kernel, coefficients={self.coefficients!r}"

    def _spectral(self) -> list[SpectralAxes]:
        return [grid for grid in self.grids if isinstance(grid, SpectralAxes)]

    def _coefficients(self) -> Float[Tensor, "sets m"]:
        """d and v of every axis and rho, in float32 at least."""
        axes = len(self.kernel)
        parts = (self.d.reshape(-1, axes), self.v.reshape(-1, axes), self.rho.reshape(-1, 1))
        return torch.cat(parts, 1).to(torch.promote_types(self.d.dtype, torch.float32))

    def _propagators(
        self, coefficients: Float[Tensor, "sets m"], dt: float
    ) -> list[Float[Tensor, "sets n n"]]:
        with full_precision(coefficients.device):
            scaled = dt * coefficients
            return [grid.matrix(torch.expm1, scaled) for grid in self._spectral()]

    def _step(self, propagators: Sequence[Tensor]) -> Step:
        def step(w: Tensor, t: float) -> Tensor:
            with full_precision(w.device):
                wide = w.to(torch.promote_types(w.dtype, propagators[0].dtype))
                for grid, matrix in zip(self._spectral(), propagators, strict=True):
                    wide = self._add_product(wide, wide, grid.axes, matrix.to(wide.dtype))
                return (self.activation(wide) if self.activation else wide).to(w.dtype)

        return step

    def _add_product(
        self,
        base: Float[Tensor, "*shape"],
        w: Float[Tensor, "*shape"],
        axes: Sequence[int],
        matrix: Float[Tensor, "sets n n"],
    ) -> Float[Tensor, "*shape"]:
        """base + G w, with G along kernel axes `axes`."""
        last = list(range(-len(axes), 0))
        places = [a - len(self.kernel) for a in axes]
        moved = w.movedim(places, last)
        rows = (matrix.shape[0], -1, matrix.shape[-1])
        added = base.movedim(places, last).reshape(rows)
        flat = torch.baddbmm(added, moved.reshape(rows), matrix.mT)
        return flat.reshape(moved.shape).movedim(last, places)
