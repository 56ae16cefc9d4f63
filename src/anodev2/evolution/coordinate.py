"""A pattern-producing network of the weight's coordinates as the velocity."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.operator import RateEvolution
from anodev2.evolution.perceptron import Perceptron
from anodev2.evolution.table import Table
from anodev2.solver import Euler, Solver
from anodev2.usage import check_count


class CoordinateEvolution(RateEvolution):
    """dw_x/dt = q(x, t; p) at the coordinates x of each entry, by one network for all entries.

    The differentiable form of compositional pattern-producing networks: x are the entry's place
    along every axis of the weight (channel out, channel in and the kernel's axes of a
    convolution), each from -1 to 1, and the hidden units are sine, Gaussian and tanh in turn.
    What is learned does not depend on how many entries there are. The last layer is zero at
    first, so training starts at rest.

    Args:
        shape: any.
        hidden: units of each of the two hidden layers, at least 1.
        solver: quadrature in time; the rate does not depend on w.

    Raises:
        ValueError: fewer than one hidden unit.

    Source: Stanley 2007; Fernando et al. 2016, differentiable pattern producing networks.
    """

    def __init__(self, shape: Sequence[int], *, hidden: int = 12, solver: Solver = Euler()) -> None:
        super().__init__(solver=solver)
        check_count("hidden", hidden)
        self.network = Perceptron((len(shape) + 1, hidden, hidden, 1), patterns)
        self.lines = nn.ModuleList(Table(_line(n)) for n in shape)

    def rate(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        lines = [line(w.dtype) for line in self.lines] or [w.new_zeros(1)]
        places = [x.flatten() for x in torch.meshgrid(*lines, indexing="ij")][: w.ndim]
        inputs = torch.stack([*places, w.new_full((w.numel(),), t)])
        return self.network(inputs).reshape(w.shape)  # type: ignore[no-any-return]


def patterns(x: Float[Tensor, "units points"]) -> Float[Tensor, "units points"]:
    """sin(x), exp(-x^2) and tanh(x), each for a third of the units."""
    waves, bumps, steps = x.tensor_split(3)
    return torch.cat([waves.sin(), bumps.square().neg().exp(), steps.tanh()])


def _line(n: int) -> Float[Tensor, " n"]:
    """The coordinates along an axis, in float64; the middle where it has one point."""
    return torch.linspace(-1, 1, n, dtype=torch.float64) if n > 1 else torch.zeros(1).double()
