"""The small networks that some evolutions are made of."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Linear layers with a function between them, whose last layer is zero at first.

    It computes in the dtype of its input, so a block in half precision still moves its weights
    in float32.

    Args:
        sizes: numbers of inputs, of each hidden layer's units, and of outputs.
        activation: applied to each hidden layer.
    """

    def __init__(self, sizes: Sequence[int], activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(sizes))
        for p in self.layers[-1].parameters():
            nn.init.zeros_(p)

    def forward(self, x: Float[Tensor, "inputs points"]) -> Float[Tensor, "outputs points"]:
        """The outputs at each point; points are columns, so that a unit's are contiguous."""
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            weight, bias = (p.to(x.dtype) for p in (layer.weight, layer.bias))
            x = torch.addmm(bias[:, None], weight, self.activation(x) if i else x)
        return x
