"""Whether z(0) can be found again from z(1), as a Neural ODE's adjoint relies on."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.block import CoupledODE

LARGEST = 1e9
"""Errors end here: a reverse solve may overflow."""


@torch.no_grad()
def reversal_error(model: nn.Module, images: Float[Tensor, "batch ..."]) -> float | None:
    """Distance of z(0), solved backward from z(1), to the true one, relative to it.

    z_i = z_{i+1} - h f(z_{i+1}, theta_i): Euler in reversed time with each step's own theta and
    norms, by the network's first ODE block in evaluation mode.

    Args:
        model: the network.
        images: what it is evaluated on.

    Returns:
        The relative distance, at most `LARGEST`; None for a network without ODE blocks.
    """
    block = next((m for m in model.modules() if isinstance(m, CoupledODE)), None)
    if block is None:
        return None
    ends: list[Tensor] = []
    hook = block.register_forward_hook(lambda _, given, z1: ends.extend([given[0], z1]))
    training = model.training
    model.eval()(images.to(next(model.parameters()).device))
    hook.remove()
    z0, z = ends
    program = block.program(z0)
    state = program.tensors | program.buffers(0, program.steps)
    for i in reversed(range(program.steps)):
        (rate,) = program.rate(i, (z,), state)
        z = z - rate / program.steps
    model.train(training)
    error = ((z - z0).norm() / z0.norm()).item()
    return min(error, LARGEST) if error == error else LARGEST
