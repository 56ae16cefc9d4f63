"""Linear maps along some axes of a weight, and the matrix functions that linear equations need.

The equation dw/dt = A w along axes of N points has the solution w(t + dt) = w + G w with
G = exp(dt A) - I, which at A = 0 is w to the bit.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def add_product(
    base: Float[Tensor, "*shape"],
    w: Float[Tensor, "*shape"],
    axes: Sequence[int],
    factors: Sequence[Float[Tensor, "sets _ _"]],
) -> Float[Tensor, "*shape"]:
    """base + G w, with G along `axes`.

    Args:
        base, w: of one shape.
        axes: those that G acts on, counted from the last (negative) and flattened together.
        factors: G as a product of matrices, the one that acts first being the first; one set
            for each of `sets` equal parts of the other axes.
    """
    last = list(range(-len(axes), 0))
    moved = w.movedim(list(axes), last)
    rows = (factors[0].shape[0], -1, factors[0].shape[-1])
    added = base.movedim(list(axes), last).reshape(rows)
    product = moved.reshape(rows)
    for matrix in factors[:-1]:
        product = product @ matrix.mT
    flat = torch.baddbmm(added, product, factors[-1].mT)
    return flat.reshape(moved.shape).movedim(last, list(axes))


def expm1(a: Float[Tensor, "sets n n"]) -> Float[Tensor, "sets n n"]:
    """exp(a) - I, to rounding of I and exactly zero where a is."""
    return _exp(a) - torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def phi1(a: Float[Tensor, "sets n n"]) -> Float[Tensor, "sets n n"]:
    """(exp(a) - I) / a, which is I at a = 0: the upper right block of exp([[a, I], [0, 0]]).

    Source: Al-Mohy and Higham 2011, theorem 2.1.
    """
    n = a.shape[-1]
    unit = torch.eye(n, dtype=a.dtype, device=a.device).expand_as(a)
    upper = torch.cat([a, unit], -1)
    return _exp(torch.cat([upper, torch.zeros_like(upper)], -2))[..., :n, n:]


def _exp(a: Float[Tensor, "sets n n"]) -> Float[Tensor, "sets n n"]:
    """The exponential; torch's of one matrix alone errs by 1e-12 at norms of 0.01, of two not."""
    return torch.matrix_exp(torch.cat([a, a[:1]]) if len(a) == 1 else a)[: len(a)]
