"""A small smooth field, blocks of it with random p in float64, and what goes in and comes back."""

from functools import partial

import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.memory import Exponential

COUPLINGS = [configuration_1(3), configuration_2(2, 4)]
RAW = partial(Exponential, learn=True, normalize=False)
LINEAR = partial(ReactionDiffusionAdvection, activation=None)


def field() -> nn.Sequential:
    """Smooth, with norms, dropout and a bias that no norm takes away."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, bias=False),
        nn.BatchNorm2d(2),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Conv2d(2, 2, 3, padding=1),
    )


def moving(block: CoupledODE) -> CoupledODE:
    """In float64, with random p."""
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.copy_(0.4 * torch.rand(p.shape, generator=source) - 0.2)
    return block.double()


def data(size: int = 5) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(4)
    z0, dj_dz1 = torch.randn(2, 2, 2, size, size, generator=source, dtype=torch.float64)
    return z0, dj_dz1
