"""The memory kernel K: how theta remembers w.

    theta(t) = int_0^t K(t - s) w(s) ds        [anodev2_theta_formula]

A kernel is causal by construction: it is handed only what w has been so far. On the w-grid the
integral is the trapezoidal rule, with weights q_m = dt, halved at both ends, of order dt^2. A
new kernel is a class here and a line in `tests/cases.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import exp, inf, log, pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.usage import UsageError, check_count


class MemoryKernel(nn.Module, ABC):
    """A discrete memory: theta at a point of the w-grid from w up to that point."""

    @abstractmethod
    def forward(self, w: Sequence[Float[Tensor, "*shape"]], dt: float) -> Float[Tensor, "*shape"]:
        """theta(i dt) from the history of one weight, or of several that are stacked.

        Args:
            w: w(0), w(dt), ..., w(i dt), each of the weight's shape.
            dt: spacing of the w-grid.

        Returns:
            theta(i dt), of the weight's shape.
        """


class Dirac(MemoryKernel):
    """No memory: K is a Dirac delta and theta(t) = w(t), at no cost; the paper's choice."""

    def forward(self, w: Sequence[Float[Tensor, "*shape"]], dt: float) -> Float[Tensor, "*shape"]:
        return w[-1]


class IntegralKernel(MemoryKernel):
    """A kernel that is a function of the lag tau = t - s >= 0.

    Normalised, c_im = K(t_i - s_m) q_m / sum of the same and c_00 = 1, computed as
    theta_i = w_i + sum_m c_im (w_m - w_i): at rest theta is w0 to the bit, and it has w's scale at
    every time. Otherwise the paper's raw integral, c_im = K(t_i - s_m) q_m, where theta(0) = 0.

    Args:
        normalize: whether the weights c of a time sum to one.
    """

    def __init__(self, *, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def values(self, lags: Float[Tensor, " lags"], dt: float) -> Float[Tensor, " lags"]:
        """K at the lags 0, dt, 2 dt, ..., in their dtype."""

    def forward(self, w: Sequence[Float[Tensor, "*shape"]], dt: float) -> Float[Tensor, "*shape"]:
        dtype = torch.promote_types(w[-1].dtype, torch.float32)
        i = len(w) - 1
        lags = torch.arange(i, -1, -1, device=w[-1].device, dtype=dtype) * dt
        quadrature = torch.full_like(lags, dt)
        quadrature[0] = quadrature[-1] = dt / 2 if i else 0.0
        c = (self.values(lags, dt).to(dtype) * quadrature).to(w[-1].dtype)
        if not self.normalize:
            return torch.tensordot(c, torch.stack(list(w)), dims=1)  # type: ignore[no-any-return]
        if not i:
            return w[0]
        apart = torch.stack(list(w[:-1])) - w[-1]
        return w[-1] + torch.tensordot(c[:-1] / c.sum(), apart, dims=1)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"normalize={self.normalize}"


class Exponential(IntegralKernel):
    """K(tau) = rate exp(-rate tau): theta follows w with a time constant of 1 / rate.

    Args:
        rate: per unit time, positive; the larger, the shorter the memory.
        learn: make it a parameter, `log_rate`.
        normalize: see `IntegralKernel`.

    Raises:
        ValueError: a rate that is not positive.
    """

    def __init__(self, rate: float = 5.0, *, learn: bool = False, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.log_rate = _logarithm("rate", rate, learn)

    def values(self, lags: Float[Tensor, " lags"], dt: float) -> Float[Tensor, " lags"]:
        rate = _exponential(self.log_rate, lags)
        return rate * (-rate * lags).exp()


class Gaussian(IntegralKernel):
    """K(tau) = sqrt(2 / pi) / width exp(-tau^2 / (2 width^2)): half a bell, which sums to one.

    Args:
        width: standard deviation in units of time, positive; narrow kernels tend to `Dirac`.
        learn: make it a parameter, `log_width`.
        normalize: see `IntegralKernel`.

    Raises:
        ValueError: a width that is not positive.
    """

    def __init__(self, width: float = 0.2, *, learn: bool = False, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.log_width = _logarithm("width", width, learn)

    def values(self, lags: Float[Tensor, " lags"], dt: float) -> Float[Tensor, " lags"]:
        width = _exponential(self.log_width, lags)
        return (2 / pi) ** 0.5 / width * (-(lags / width).square() / 2).exp()  # type: ignore[no-any-return]


class Uniform(IntegralKernel):
    """K(tau) = 1 / window for tau <= window: the mean of w over the last of its time.

    At the jump K is half its value, so the rule keeps its order where the window is a multiple
    of dt, and has order one elsewhere.

    Args:
        window: in units of time, positive.
        normalize: see `IntegralKernel`.

    Raises:
        ValueError: a window that is not positive.
    """

    def __init__(self, window: float = 0.4, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        _check_positive("window", window)
        self.window = window

    def values(self, lags: Float[Tensor, " lags"], dt: float) -> Float[Tensor, " lags"]:
        edge = (lags - self.window) / dt  # in steps, so that rounding does not move the jump
        inside = (edge < 1e-3).to(lags.dtype)
        jumps = (edge.abs() < 1e-3) & (lags < lags[0])  # the integral may end there instead
        return torch.where(jumps, 0.5, inside) / self.window

    def extra_repr(self) -> str:
        return f"window={self.window}, {super().extra_repr()}"


class Learned(IntegralKernel):
    """A number for each lag 0, dt, 2 dt, ... of the w-grid, and zero beyond.

    Parameters: `k`, (lags,), at first that of no memory: 2 / dt at lag 0, in units of dt. They are
    unconstrained; normalised, theta has a pole where their sum (k_0 and the last halved) is zero.

    Args:
        lags: how many, at least 1; 1 has no memory.
        normalize: see `IntegralKernel`.

    Raises:
        ValueError: fewer than one lag.
    """

    def __init__(self, lags: int = 5, *, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        check_count("lags", lags)
        self.k = nn.Parameter(torch.zeros(lags))
        with torch.no_grad():
            self.k[0] = 2

    def values(self, lags: Float[Tensor, " lags"], dt: float) -> Float[Tensor, " lags"]:
        known = self.k[: len(lags)].to(lags.dtype)
        return nn.functional.pad(known, (0, len(lags) - len(known))).flip(0) / dt

    def extra_repr(self) -> str:
        return f"{len(self.k)} lags, {super().extra_repr()}"


def _logarithm(name: str, value: float, learn: bool) -> nn.Parameter | float:
    """log(value), as a parameter or as a number."""
    _check_positive(name, value)
    return nn.Parameter(torch.tensor(value).log()) if learn else log(value)


def _exponential(logarithm: Tensor | float, like: Tensor) -> Tensor:
    """exp(logarithm) in the dtype of `like`."""
    if isinstance(logarithm, float):
        return like.new_tensor(exp(logarithm))
    return logarithm.to(like.dtype).exp()


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < inf:
        raise UsageError(f"{name} must be positive, got {value!r}")
