"""Operators with random coefficients, weights for them, and the formula in Fourier space."""

from math import pi

import torch
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection

LARGE = [(2, 3, 9, 9), (2, 2, 5, 5, 5), (1, 2, 70), (2, 1, 8, 10)]
"""Shapes whose grid has a matrix for each axis."""


def operator_on(shape, *, seed=None, coefficients="channel", activation=None):
    """An operator in float64, with coefficients up to about 0.3 if a seed is given."""
    operator = ReactionDiffusionAdvection(shape, coefficients=coefficients, activation=activation)
    operator.double()
    if seed is not None:
        source = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in operator.parameters():
                p.copy_(0.6 * torch.rand(p.shape, generator=source, dtype=p.dtype) - 0.3)
    return operator


def weight(shape, seed=0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source, dtype=torch.float64)


def symbol(w: Tensor, operator: ReactionDiffusionAdvection) -> Tensor:
    """lambda(k) of each filter, complex, written from the paper's formula."""
    axes = w.ndim - 2

    def spread(coefficient: Tensor) -> Tensor:
        """One number for each (out, in) pair, constant over the kernel."""
        missing = 2 - coefficient.ndim
        return coefficient.reshape(*coefficient.shape, *(1,) * (missing + axes))

    values = spread(operator.rho).to(torch.complex128)
    for a, n in enumerate(w.shape[2:]):
        k = 2 * pi * torch.fft.fftfreq(n, dtype=torch.float64)
        paired = k.clone()
        if n % 2 == 0:
            paired[n // 2] = 0
        line = [n if b == a else 1 for b in range(axes)]
        values = values - spread(operator.d[..., a]) * (k**2).reshape(line)
        values = values + 1j * spread(operator.v[..., a]) * paired.reshape(line)
    return values


def fourier(w: Tensor, multiplier: Tensor) -> Tensor:
    """F^-1 multiplier F w as a complex tensor."""
    grid = tuple(range(2, w.ndim))
    return torch.fft.ifftn(multiplier * torch.fft.fftn(w, dim=grid), dim=grid)


def fourier_step(w: Tensor, operator: ReactionDiffusionAdvection, t: float) -> Tensor:
    """F^-1 exp(t lambda) F w as a complex tensor."""
    return fourier(w, (t * symbol(w, operator)).exp())


def assert_near(found: Tensor, expected: Tensor, *others: Tensor, within: float = 1e-12):
    largest = max(x.abs().max().item() for x in (found, expected, *others))
    assert (found - expected).abs().max().item() <= within * largest
