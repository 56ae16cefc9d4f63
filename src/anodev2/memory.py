"""The memory kernel K: how theta remembers w.

    theta(t) = int_0^t K(t - s) w(s) ds        [anodev2_theta_formula]

A kernel is causal by construction: it is handed only what w has been so far. A new kernel
is a class here and a line in `tests/cases.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn


class MemoryKernel(nn.Module, ABC):
    """A discrete memory: theta at a point of the w-grid from w up to that point."""

    @abstractmethod
    def forward(self, w: Sequence[Float[Tensor, "*shape"]], dt: float) -> Float[Tensor, "*shape"]:
        """theta(i dt) from the history of one weight.

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
