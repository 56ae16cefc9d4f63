"""Weights as a path in a space of functions of time: Galerkin and spline layers.

    w(t) = w0 + sum_k c_k (phi_k(t) - phi_k(0))

A basis is a class here; its functions are Python numbers, so no tensor holds a clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, floor, pi, prod, sin

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.operator import Evolution
from anodev2.precision import full_precision
from anodev2.usage import check_count


class Basis(ABC):
    """Functions phi_1 ... phi_K of t in [0, 1]."""

    @property
    @abstractmethod
    def count(self) -> int:
        """K."""

    @abstractmethod
    def values(self, t: float) -> list[float]:
        """phi_1(t) ... phi_K(t)."""

    @abstractmethod
    def rates(self, t: float) -> list[float]:
        """Their derivatives, from the right where they jump (from the left at t = 1)."""


@dataclass(frozen=True)
class PiecewiseLinear(Basis):
    """Hats at the knots k / K, so c_k is how far w has moved from w0 at the knot.

    Args:
        intervals: K, at least 1, all of one length.
    """

    intervals: int = 4

    def __post_init__(self) -> None:
        check_count("intervals", self.intervals)

    @property
    def count(self) -> int:
        return self.intervals

    def values(self, t: float) -> list[float]:
        return [max(0.0, 1 - abs(t * self.count - k)) for k in range(1, self.count + 1)]

    def rates(self, t: float) -> list[float]:
        left = min(floor(t * self.count + 1e-9), self.count - 1)  # t = k / K may round below
        slopes = {left: -float(self.count), left + 1: float(self.count)}
        return [slopes.get(k, 0.0) for k in range(1, self.count + 1)]


@dataclass(frozen=True)
class Legendre(Basis):
    """Legendre polynomials P_k(2 t - 1) of degree 1 to K, the constant one having no motion.

    Args:
        degree: K, at least 1.
    """

    degree: int = 3

    def __post_init__(self) -> None:
        check_count("degree", self.degree)

    @property
    def count(self) -> int:
        return self.degree

    def values(self, t: float) -> list[float]:
        return self._recurrence(t)[0]

    def rates(self, t: float) -> list[float]:
        return self._recurrence(t)[1]

    def _recurrence(self, t: float) -> tuple[list[float], list[float]]:
        """(k + 1) P_{k+1} = (2 k + 1) x P_k - k P_{k-1}, P'_{k+1} = P'_{k-1} + (2 k + 1) P_k."""
        x = 2 * t - 1
        p, rate = [1.0, x], [0.0, 1.0]
        for k in range(1, self.degree):
            p.append(((2 * k + 1) * x * p[k] - k * p[k - 1]) / (k + 1))
            rate.append(rate[k - 1] + (2 * k + 1) * p[k])
        return p[1:], [2 * r for r in rate[1:]]


@dataclass(frozen=True)
class Fourier(Basis):
    """cos(k pi t) and sin(k pi t) for k = 1 to F: of period 2, so a path need not close at 1.

    Args:
        frequencies: F, at least 1; twice as many functions.
    """

    frequencies: int = 2

    def __post_init__(self) -> None:
        check_count("frequencies", self.frequencies)

    @property
    def count(self) -> int:
        return 2 * self.frequencies

    def values(self, t: float) -> list[float]:
        angles = [k * pi * t for k in range(1, self.frequencies + 1)]
        return [*map(cos, angles), *map(sin, angles)]

    def rates(self, t: float) -> list[float]:
        turns = [k * pi for k in range(1, self.frequencies + 1)]
        return [*(-k * sin(k * t) for k in turns), *(k * cos(k * t) for k in turns)]


class BasisEvolution(Evolution):
    """w(t) = w0 + sum_k c_k (phi_k(t) - phi_k(0)): a path of w, independent of where it starts.

    Parameters: `c`, (K, entries), zero at first. It has K numbers for each entry of the weight,
    as in the Galerkin layers of torchdyn and the spline networks of torchbraid: with a
    piecewise-linear basis as fine as the steps, each step has weights of its own.

    Args:
        shape: any.
        basis: the functions of time.

    Source: q = sum_k c_k phi_k'(t) in dw/dt = q [anodev2_loss_w_pde]; Massaroli et al. 2020,
    Guenther et al. 2021.
    """

    def __init__(self, shape: Sequence[int], *, basis: Basis = PiecewiseLinear()) -> None:
        super().__init__()
        self.basis = basis
        self.shape = tuple(shape)
        self.c = nn.Parameter(torch.zeros(basis.count, prod(shape)))

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        start, end = self.basis.values(t), self.basis.values(t + dt)
        moved = self._combined(w, [b - a for a, b in zip(start, end, strict=True)])
        return (w + moved).to(w.dtype)

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        return self._combined(w, self.basis.rates(t)).to(w.dtype)

    def refined(self) -> "BasisEvolution":
        """The same path with twice as many intervals.

        Raises:
            TypeError: the basis is not piecewise linear.
        """
        if not isinstance(self.basis, PiecewiseLinear):
            raise TypeError(f"only PiecewiseLinear is refined, got {self.basis}")
        fine = BasisEvolution(self.shape, basis=PiecewiseLinear(2 * self.basis.intervals))
        fine.to(device=self.c.device, dtype=self.c.dtype)
        with torch.no_grad():
            before = torch.cat([torch.zeros_like(self.c[:1]), self.c[:-1]])
            halfway = (before + self.c) / 2
            fine.c.copy_(torch.stack([halfway, self.c], 1).flatten(0, 1))
        return fine

    def extra_repr(self) -> str:
        return str(self.basis)

    def _combined(self, w: Tensor, factors: Sequence[float]) -> Float[Tensor, "*shape"]:
        """sum_k factor_k c_k, in float32 at least."""
        with full_precision(w.device):
            c = self.c.to(torch.promote_types(w.dtype, torch.float32))
            total: Tensor = torch.tensordot(c.new_tensor(factors), c, dims=1)
            return total.reshape(self.shape)
