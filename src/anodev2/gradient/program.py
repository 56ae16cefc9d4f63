"""What a gradient strategy receives: the discrete program of one forward pass, as data."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from anodev2.gradient.evaluations import Evaluations
from anodev2.solver import Activations, Solver

State = dict[str, Tensor]
"""Tensors by name: theta at each read, parameters and buffers."""


@dataclass(frozen=True)
class Motion:
    """The weights as a state of their own, where w has a rate and theta is w.

    Attributes:
        w0: the evolved weights at t = 0, by name.
        velocity: dw/dt at w and t.
        keys: for the number of a z-step and the name of an evolved weight, the key under which
            that step's rate finds it.
        tensors: the parameters p that the velocity reads.
    """

    w0: State
    velocity: Callable[[State, float], State]
    keys: Callable[[int, str], str]
    tensors: State


@dataclass(frozen=True)
class Program:
    """z_{i+1} = step(i, z_i, state) for i = 0 ... steps - 1.

    Attributes:
        steps: how many steps lead from z(0) to z(1).
        solver: the one-step method that `step` uses.
        step: one step; it reads its weights from `state` and what buffers it finds there,
            which it may write; buffers not in `state` are the block's own.
        rate: dz/dt = f(z, theta) with the weights and norms of stage s of step i, from the same
            state: `rate(i, s, z, state)`.
        tensors: theta and all other parameters that the steps read.
        buffers: the buffers that steps start ... stop - 1 may write, as they are now.
        evaluations: counts those of the field; a strategy says when it is going backward.
        motion: the weights in continuous time, or None where they have no rate.
    """

    steps: int
    solver: Solver
    step: Callable[[int, Activations, State], Activations]
    rate: Callable[[int, int, Activations, State], Activations]
    tensors: State
    buffers: Callable[[int, int], State]
    evaluations: Evaluations
    motion: Callable[[], Motion | None]


class GradientStrategy(ABC):
    """How to run a program so that it can be differentiated: what is kept, what made again."""

    @abstractmethod
    def solve(self, program: Program, z0: Activations) -> Activations:
        """Run the program from z0 and return z(1), differentiable in z0 and its tensors."""
