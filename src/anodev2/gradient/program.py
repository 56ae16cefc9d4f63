"""What a gradient strategy receives: the discrete program of one forward pass, as data."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

State = dict[str, Tensor]
"""Tensors by name: theta at each read, parameters and buffers."""


@dataclass(frozen=True)
class Program:
    """z_{i+1} = step(i, z_i, state) for i = 0 ... steps - 1.

    Attributes:
        steps: how many steps lead from z(0) to z(1).
        step: one step; it reads its weights from `state` and what buffers it finds there,
            which it may write; buffers not in `state` are the block's own.
        tensors: theta and all other parameters that the steps read.
        buffers: the buffers that steps start ... stop - 1 may write, as they are now.
    """

    steps: int
    step: Callable[[int, Tensor, State], Tensor]
    tensors: State
    buffers: Callable[[int, int], State]


class GradientStrategy(ABC):
    """How to run a program so that it can be differentiated: what is kept, what made again."""

    @abstractmethod
    def solve(self, program: Program, z0: Tensor) -> Tensor:
        """Run the program from z0 and return z(1), differentiable in z0 and its tensors."""
