"""dw/dt = q(w; p) with a small neural network as q, shared by all filters of a layer."""

from collections.abc import Callable, Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from anodev2.evolution.operator import RateEvolution, ShapeError
from anodev2.evolution.perceptron import Perceptron
from anodev2.solver import Euler, Solver
from anodev2.usage import check_count


class NetworkEvolution(RateEvolution):
    """q is a network of one hidden layer, N -> hidden -> N, applied to every filter alike.

    A filter is a kernel of N points, one for each (out, in) pair of a convolution, and a row of
    any other weight. The last layer is zero at first, so training starts at rest. One step of a
    coupling that reads its end, `Coupling(1, 1, read_times=(1.0,))`, is a HyperNetwork:
    theta = w0 + q(w0; p) with w0 as what the network is given.

    Args:
        shape: any but that of a single number.
        hidden: units of the hidden layer, at least 1; p has 2 N hidden + hidden + N numbers.
        activation: of the hidden layer.
        solver: integrates the equation; `Euler()` is one evaluation of q a step.

    Raises:
        ShapeError: a single number.
        ValueError: fewer than one hidden unit.

    Source: q as a neural network, section "Methodology"; Ha et al. 2016 for HyperNetworks.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        hidden: int = 16,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        solver: Solver = Euler(),
    ) -> None:
        super().__init__(solver=solver)
        check_count("hidden", hidden)
        if len(shape) == 0:
            raise ShapeError("NetworkEvolution moves weights with at least one axis, got a number")
        self.points = prod(shape[2:] or shape[-1:])
        self.network = Perceptron((self.points, hidden, self.points), activation)

    def rate(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        filters: Tensor = w.reshape(-1, self.points)
        return self.network(filters.mT).mT.reshape(w.shape)  # type: ignore[no-any-return]
