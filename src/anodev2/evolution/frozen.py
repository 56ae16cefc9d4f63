"""q = 0: weights that do not move, and so a Neural ODE, or ANODE with its gradient."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from anodev2.evolution.operator import Evolution


class Frozen(Evolution):
    """dw/dt = 0, without parameters, for weights of any shape.

    Args:
        shape: shape of the weight; taken because every evolution takes it.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        return w
