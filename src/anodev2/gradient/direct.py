"""Automatic differentiation through every step."""

from dataclasses import dataclass

from torch import Tensor

from anodev2.gradient.program import GradientStrategy, Program


@dataclass(frozen=True)
class Direct(GradientStrategy):
    """Keep everything: memory O(steps), nothing is evaluated twice.

    The exact gradient of the discrete program, twice differentiable, and usable under
    `torch.func` transforms.
    """

    def solve(self, program: Program, z0: Tensor) -> Tensor:
        z = z0
        for i in range(program.steps):
            z = program.step(i, z, program.tensors)
        return z
