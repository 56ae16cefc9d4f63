"""Reaction, diffusion and advection of a convolution kernel on its own grid.

One step of dw/dt = sigma(d lap w + v . grad w + rho w), split as in the paper:

    w(t + dt) = sigma( F^-1( exp(dt lambda(k)) F w(t) ) ),                [nonlinear_solution]
    lambda(k) = -sum_a d_a k_a^2 + i sum_a v_a k_a + rho.                  [w_rda_pde, App. B]

The grid is the kernel's own last 1, 2 or 3 axes, periodic, with unit spacing, and
k = 2 pi fftfreq(n). For kernels this small the transform, the multiplication and the inverse
transform are one dense real matrix, the propagator; it is built from its distance to the
identity, expm1(dt lambda), so that at zero coefficients w is returned to the bit.
"""

from collections.abc import Callable, Sequence
from math import lcm, pi, prod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anodev2.evolution.operator import Evolution, ShapeError, Step
from anodev2.precision import full_precision
from anodev2.usage import check_choice

LARGEST_DENSE_GRID = 64
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
        for group, axes in enumerate(self._groups()):
            for name, table in _tables([self.kernel[a] for a in axes]).items():
                self.register_buffer(f"{name}_{group}", table, persistent=False)

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        return self.stepper(dt)(w, t)

    def stepper(self, dt: float) -> Step:
        """The step of length dt, with its propagator made once."""
        with full_precision(self.d.device):
            propagators = self.propagators(dt)

        def step(w: Tensor, t: float) -> Tensor:
            with full_precision(w.device):
                wide = w.to(torch.promote_types(w.dtype, propagators[0].dtype))
                for axes, matrix in zip(self._groups(), propagators, strict=True):
                    wide = self._propagate(wide, axes, matrix.to(wide.dtype))
                return (self.activation(wide) if self.activation else wide).to(w.dtype)

        return step

    def propagators(self, dt: float) -> list[Float[Tensor, "sets n n"]]:
        """G = F^-1 expm1(dt lambda) F as real matrices; a linear step is w + G w.

        Returns:
            In float32 or float64, one matrix (sets, N, N) over all N grid points, or on a
            large grid one for each axis, to be applied in turn; reaction acts with the
            first. `sets` is the number of coefficient sets.
        """
        axes_count = len(self.kernel)
        wide = torch.promote_types(self.d.dtype, torch.float32)
        d, v = (p.to(wide).reshape(-1, axes_count) for p in (self.d, self.v))
        rho = self.rho.to(wide).reshape(-1, 1)
        matrices = []
        for group, axes in enumerate(self._groups()):
            unit = 2 * pi / lcm(*(self.kernel[a] for a in axes))
            k, k_paired, phase = (
                self.get_buffer(f"{name}_{group}").to(wide) * unit
                for name in ("modes", "paired_modes", "phase")
            )
            growth = -(d[:, axes] @ k.square()) + (rho if group == 0 else 0)
            turn = v[:, axes] @ k_paired
            matrices.append(_circulant(dt * growth, dt * turn, phase))
        return matrices

    def extra_repr(self) -> str:
        return f"{self.kernel} kernel, coefficients={self.coefficients!r}"

    def _groups(self) -> list[list[int]]:
        """Axes that share one matrix: all of them, or each alone on a large grid."""
        axes = list(range(len(self.kernel)))
        return [axes] if prod(self.kernel) <= LARGEST_DENSE_GRID else [[a] for a in axes]

    def _propagate(
        self, w: Float[Tensor, "*shape"], axes: list[int], matrix: Float[Tensor, "sets n n"]
    ) -> Float[Tensor, "*shape"]:
        """w + G w along kernel axes `axes`."""
        last = list(range(-len(axes), 0))
        places = [a - len(self.kernel) for a in axes]
        moved = w.movedim(places, last)
        flat = moved.reshape(matrix.shape[0], -1, matrix.shape[-1])
        flat = torch.baddbmm(flat, flat, matrix.mT)
        return flat.reshape(moved.shape).movedim(last, places)


def _tables(sizes: Sequence[int]) -> dict[str, Int[Tensor, "rows n"]]:
    """Integer tables of a grid; multiply by 2 pi / lcm(sizes) for wave numbers and phases.

    Integers, because a module's `.to(dtype)` must not round them.

    Returns:
        `modes` (axes, N): wave number of each mode. `paired_modes`: the same with zero for
        an axis's Nyquist mode, which has no conjugate partner, so that advection stays real.
        `phase` (N, N): k . x of point x (row) and mode k (column).
    """
    whole = lcm(*sizes)
    grids = [torch.arange(n) for n in sizes]
    points = torch.stack([g.flatten() for g in torch.meshgrid(*grids, indexing="ij")])
    n = torch.tensor(sizes)[:, None]
    signed = torch.where(points < (n + 1) // 2, points, points - n)
    modes = signed * (whole // n)
    paired = torch.where(2 * points == n, 0, modes)
    return {"modes": modes, "paired_modes": paired, "phase": (points.mT @ modes) % whole}


def _circulant(
    growth: Float[Tensor, "sets n"], turn: Float[Tensor, "sets n"], phase: Float[Tensor, "n n"]
) -> Float[Tensor, "sets n n"]:
    """Real matrices F^-1 diag(expm1(growth + i turn)) F.

    Args:
        growth, turn: (sets, N), real and imaginary part of dt lambda, mode by mode.
        phase: (N, N), k . x of point x and mode k.

    Returns:
        (sets, N, N), exactly zero where growth and turn are.
    """
    cos, sin = phase.cos(), phase.sin()
    expm1 = growth.expm1()
    real = (expm1 * turn.cos() - 2 * (turn / 2).sin().square())[:, None]
    imag = ((expm1 + 1) * turn.sin())[:, None]
    return ((real * cos - imag * sin) @ cos.mT + (real * sin + imag * cos) @ sin.mT) / len(phase)
