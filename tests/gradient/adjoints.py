"""Blocks by the continuous adjoint and by the exact gradient, and how far these are apart."""

from functools import partial

import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from anodev2.gradient import ContinuousAdjoint
from anodev2.models.residual import link


def images() -> Tensor:
    return torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(0))


def image_field(order: str = "pre") -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*link(4, order=order), *link(4, order=order))


def smooth_field() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))


def exact_block(field: nn.Module, steps: int, **settings) -> CoupledODE:
    """The same discrete program with its exact gradient."""
    return CoupledODE(field, coupling=configuration_1(steps), evolution=Frozen, **settings)


def neural_ode(field: nn.Module, steps: int, **settings) -> CoupledODE:
    block = exact_block(field, steps)
    block.gradient = ContinuousAdjoint(**settings)
    return block


def gradients(block: nn.Module) -> Tensor:
    """All gradients of z0 and of the field's parameters, as one vector."""
    z = images().requires_grad_()
    values = (z, *block.field.parameters())
    found = torch.autograd.grad(block(z).square().sum(), values)
    return torch.cat([g.flatten() for g in found])


def moving_block(steps: int, sigma=None, coupling=configuration_1, **settings) -> CoupledODE:
    """A smooth field in float64 whose small weights move, so little that tanh curbs them little."""
    evolution = partial(ReactionDiffusionAdvection, activation=sigma)
    block = CoupledODE(smooth_field(), coupling=coupling(steps), evolution=evolution, **settings)
    source = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in block.field.parameters():
            p.mul_(0.1)
        for p in block.evolution.parameters():
            p.copy_(0.4 * torch.rand(p.shape, generator=source) - 0.2)
    return block.double()


def all_gradients(
    block: CoupledODE, z0: Tensor | None = None, *, autocast: bool = False
) -> dict[str, Tensor]:
    """Of z0 and of every parameter; the forward pass alone is under autocast."""
    z = (images().double() if z0 is None else z0).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        end = block(z)
    end.square().sum().backward()
    return {"z0": z.grad, **{name: p.grad for name, p in block.named_parameters()}}


def gaps(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """Relative distances, by name."""
    return {n: ((found[n] - g).norm() / g.norm()).item() for n, g in exact.items()}


def moving_adjoint() -> CoupledODE:
    return moving_block(2, gradient=ContinuousAdjoint())
