"""Operators on a kernel's grid, whose axes are periodic with unit spacing, as real matrices.

Where the coefficients are the same at every point an operator is diagonal in Fourier space, with
k = 2 pi fftfreq(n). For kernels this small a transform, a multiplication and the inverse
transform are one dense real matrix

    F^-1 diag(s) F,        s = a function of the symbol lambda(k).

Where every point has coefficients of its own the generator is a dense matrix, and its
exponential is the matrix exponential.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import lcm, pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.product import expm1
from anodev2.evolution.table import Table


class GridAxes(nn.Module, ABC):
    """Some axes of a kernel's grid, whose N points share one matrix.

    Coefficients are d and v, one each for every axis of the kernel, and rho: m = 2n + 1 numbers,
    in float32 or float64. A row of them is a set, or with `PointAxes` a point of a set.
    """

    axes: tuple[int, ...]
    """Which, counted from the kernel's first."""

    @abstractmethod
    def generator(self, coefficients: Float[Tensor, "rows m"]) -> Float[Tensor, "sets n n"]:
        """A = d lap + v . grad + rho."""

    @abstractmethod
    def propagator(
        self, coefficients: Float[Tensor, "rows m"], dt: float
    ) -> Float[Tensor, "sets n n"]:
        """exp(dt A) - I, exactly zero where the coefficients are."""

    def extra_repr(self) -> str:
        return f"axes={self.axes}"


class SpectralAxes(GridAxes):
    """Axes with one set of coefficients for all points.

    Args:
        sizes: the length of every kernel axis.
        axes: those that belong here.
        reacts: whether reaction, which has no axis, acts here.
    """

    def __init__(self, sizes: Sequence[int], axes: Sequence[int], *, reacts: bool) -> None:
        super().__init__()
        self.axes = tuple(axes)
        symbol, matrices = _tables(sizes, axes, reacts)
        self.symbol = Table(symbol)
        self.matrices = Table(matrices)

    def generator(self, coefficients: Float[Tensor, "sets m"]) -> Float[Tensor, "sets n n"]:
        return self.matrix(torch.clone, coefficients)

    def propagator(
        self, coefficients: Float[Tensor, "sets m"], dt: float
    ) -> Float[Tensor, "sets n n"]:
        return self.matrix(torch.expm1, dt * coefficients)

    def matrix(
        self,
        function: Callable[[Tensor], Tensor],
        coefficients: Float[Tensor, "sets m"],
    ) -> Float[Tensor, "sets n n"]:
        """F^-1 diag(function(lambda)) F, exactly zero where the function is.

        Args:
            function: elementwise, of the complex symbol (sets, N).
            coefficients: of lambda.
        """
        dtype = coefficients.dtype
        parts = (coefficients @ self.symbol(dtype)).reshape(len(coefficients), -1, 2)
        modes = torch.view_as_real(function(torch.view_as_complex(parts))).flatten(-2)
        n = parts.shape[1]
        return (modes @ self.matrices(dtype)).reshape(-1, n, n)  # type: ignore[no-any-return]


class PointAxes(GridAxes):
    """All axes of a kernel, with coefficients for each of its N points.

    A = sum_a diag(d_a) D_a^2 + diag(v_a) D_a + diag(rho), with D_a the spectral derivative.

    Args:
        sizes: the length of every kernel axis.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.axes = tuple(range(len(sizes)))
        self.derivatives = Table(_derivatives(sizes))

    def generator(self, coefficients: Float[Tensor, "points m"]) -> Float[Tensor, "sets n n"]:
        derivatives = self.derivatives(coefficients.dtype)
        m, n, _ = derivatives.shape
        return torch.einsum("sxm,mxy->sxy", coefficients.reshape(-1, n, m), derivatives)

    def propagator(
        self, coefficients: Float[Tensor, "points m"], dt: float
    ) -> Float[Tensor, "sets n n"]:
        return expm1(dt * self.generator(coefficients))


def _derivatives(sizes: Sequence[int]) -> Float[Tensor, "m n n"]:
    """D_a^2 and D_a of every axis and the identity, on all points of the grid, in float64."""
    along = []
    for n in sizes:
        line = SpectralAxes([n], [0], reacts=False)
        along.append(line.generator(torch.eye(3, dtype=torch.float64)))
    identities = [torch.eye(n, dtype=torch.float64) for n in sizes]

    def whole(axis: int, matrix: Tensor) -> Tensor:
        product = torch.ones(1, 1, dtype=torch.float64)
        for a, identity in enumerate(identities):
            product = torch.kron(product, matrix if a == axis else identity)
        return product

    rows = [whole(a, along[a][order]) for order in (0, 1) for a in range(len(sizes))]
    return torch.stack([*rows, whole(-1, identities[0])])


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
