"""Fourier modes of a kernel's grid: operators that are diagonal there, as real matrices.

The grid is periodic with unit spacing, and k = 2 pi fftfreq(n). For kernels this small a
transform, a multiplication and the inverse transform are one dense real matrix

    F^-1 diag(s) F,        s = a function of the symbol lambda(k).

Wave numbers and phases are tables of a buffer's bits rather than of its values, because a
module's `.to(dtype)` must not round them; there is one for each precision.
"""

from collections.abc import Callable, Sequence
from math import lcm, pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
"""Integers as wide as a precision."""


class SpectralAxes(nn.Module):
    """Some axes of a kernel's grid, whose N points share one matrix.

    Args:
        sizes: the length of every kernel axis.
        axes: those that belong here.
        reacts: whether reaction, which has no axis, acts here.
    """

    def __init__(self, sizes: Sequence[int], axes: Sequence[int], *, reacts: bool) -> None:
        super().__init__()
        self.axes = tuple(axes)
        for name, table in zip(("symbol", "matrices"), _tables(sizes, axes, reacts), strict=True):
            for dtype, bits in BITS.items():
                stored = table.to(dtype).view(bits)
                self.register_buffer(_buffer(name, dtype), stored, persistent=False)

    def extra_repr(self) -> str:
        return f"axes={self.axes}"

    def matrix(
        self,
        function: Callable[[Tensor], Tensor],
        coefficients: Float[Tensor, "sets m"],
    ) -> Float[Tensor, "sets n n"]:
        """F^-1 diag(function(lambda)) F, exactly zero where the function is.

        Args:
            function: elementwise, of the complex symbol (sets, N).
            coefficients: d, v, one each for every axis of the kernel, and rho, times dt if the
                function is to see dt lambda; in float32 or float64.
        """
        dtype = coefficients.dtype
        symbol, matrices = (
            self.get_buffer(_buffer(name, dtype)).view(dtype) for name in ("symbol", "matrices")
        )
        parts = (coefficients @ symbol).reshape(len(coefficients), -1, 2)
        modes = torch.view_as_real(function(torch.view_as_complex(parts))).flatten(-2)
        n = parts.shape[1]
        return (modes @ matrices).reshape(-1, n, n)


def _buffer(name: str, dtype: torch.dtype) -> str:
    return f"{name}_{dtype}".replace("torch.", "")


def _tables(
    sizes: Sequence[int], axes: Sequence[int], reacts: bool
) -> tuple[Float[Tensor, "m parts"], Float[Tensor, "parts entries"]]:
    """How the symbol depends on d, v and rho, and the real matrix on a function of the symbol.

    lambda(k) = -sum_a d_a k_a^2 + i sum_a v_a k_a + rho. An even axis has a Nyquist mode with no
    conjugate partner: the advection symbol is zero there, or the result were not real. Both
    tables are in float64, with real and imaginary parts of N modes side by side:
    entry (x, y) of F^-1 diag(s) F is the sum of Re(s_k exp(i k (x - y))) / N over the modes.
    """
    own = [sizes[a] for a in axes]
    grids = torch.meshgrid(*(torch.arange(n) for n in own), indexing="ij")
    points = torch.stack([grid.flatten() for grid in grids])
    n = torch.tensor(own)[:, None]
    signed = torch.where(points < (n + 1) // 2, points, points - n)
    paired = torch.where(2 * points == n, 0, signed)
    count = points.shape[1]
    symbol = torch.zeros(2 * len(sizes) + 1, count, 2, dtype=torch.float64)
    for row, a in enumerate(axes):
        symbol[a, :, 0] = -(2 * pi * signed[row].double() / own[row]).square()
        symbol[len(sizes) + a, :, 1] = 2 * pi * paired[row].double() / own[row]
    if reacts:
        symbol[-1, :, 0] = 1
    whole = lcm(*own)
    apart = points[:, :, None] - points[:, None, :]
    turns = torch.einsum("ak,axy->kxy", signed * (whole // n), apart) % whole
    angle = 2 * pi * turns.double() / whole
    matrices = torch.stack([angle.cos(), -angle.sin()], 1) / count
    return symbol.flatten(1), matrices.reshape(2 * count, count * count)
