"""Automatic differentiation through every step."""

from dataclasses import dataclass

from anodev2.gradient.program import GradientStrategy, Program
from anodev2.solver import Activations


@dataclass(frozen=True)
class Direct(GradientStrategy):
    """Keep everything: memory O(steps), nothing is evaluated twice.

    The exact gradient of the discrete program, twice differentiable, and usable under
    `torch.func` transforms and `torch.compile`.
    """

    def solve(self, program: Program, z0: Activations) -> Activations:
        z = z0
        for i in range(program.steps):
            z = program.step(i, z, program.tensors)
        return z
