"""Whether z(0) can be found again from z(1), as a Neural ODE's adjoint relies on."""

from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.block import CoupledODE
from anodev2.gradient import ContinuousAdjoint
from anodev2.gradient.program import Program, State
from anodev2.solver import RK4, Solver, Tableau

LARGEST = 1e9
"""Errors end here: a reverse solve may overflow."""


@torch.no_grad()
def reversal_error(model: nn.Module, images: Float[Tensor, "batch ..."]) -> float | None:
    """Distance of z(0), solved backward from z(1), to the true one, relative to it.

    The solver of the network's first ODE block, in evaluation mode, goes back by -h with each
    step's own norms, Euler as z_i = z_{i+1} - h f(z_{i+1}, theta_i). Each stage has the theta of
    the stage of its step that is nearest in time, which keeps the solver's order.

    Args:
        model: the network.
        images: what it is evaluated on.

    Returns:
        The relative distance, at most `LARGEST`; None for a network without ODE blocks, or where
        the adjoint has a solver of torchdiffeq's by name.
    """
    block = next((m for m in model.modules() if isinstance(m, CoupledODE)), None)
    if block is None:
        return None
    solver = block.solver
    if isinstance(block.gradient, ContinuousAdjoint):
        if block.gradient.method is not None:
            return None
        solver = _ThreeEighths() if isinstance(solver, RK4) else solver
    ends: list[Tensor] = []
    hook = block.register_forward_hook(lambda _, given, z1: ends.extend([given[0], z1]))
    training = model.training
    model.eval()(images.to(next(model.parameters()).device))
    hook.remove()
    z0, z = ends
    program = block.program(z0)
    state = program.tensors | program.buffers(0, program.steps)
    for i in reversed(range(program.steps)):
        z = _step_back(program, solver, i, z, state)
    model.train(training)
    error = ((z - z0).norm() / z0.norm()).item()
    return min(error, LARGEST) if error == error else LARGEST


def _step_back(program: Program, solver: Solver, i: int, z: Tensor, state: State) -> Tensor:
    """z_i from z_{i+1}."""
    forward = program.solver.tableau.c
    nearest = [
        min(range(len(forward)), key=lambda r: abs(forward[r] - (1 - c))) for c in solver.tableau.c
    ]
    (before,) = solver.step(
        (z,), -1 / program.steps, lambda s, x: program.rate(i, nearest[s], x, state), residual=False
    )
    return before


@dataclass(frozen=True)
class _ThreeEighths(Solver):
    """What torchdiffeq calls rk4. Source: Kutta 1901."""

    @property
    def tableau(self) -> Tableau:
        zero, third, one = Fraction(0), Fraction(1, 3), Fraction(1)
        return Tableau(
            c=(zero, third, 2 * third, one),
            a=((), (third,), (-third, one), (one, -one, one)),
            b=(Fraction(1, 8), Fraction(3, 8), Fraction(3, 8), Fraction(1, 8)),
        )
