"""A module as a field: what it holds under which names, and what runs around it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import cached

from anodev2 import CoupledODE, configuration_1
from cases import STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
STEPS = 3


def images() -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class TwoNames(nn.Module):
    """One weight and one counter, each under two names, the second of which is used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(0.3 * torch.randn(4, 4, 3, 3, dtype=torch.float64))
        self.second = self.first
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("counted", self.count)

    def forward(self, z: Tensor) -> Tensor:
        self.counted.add_(1)
        return torch.conv2d(z, self.second, padding=1).tanh()


def two_names(**settings) -> CoupledODE:
    block = CoupledODE(TwoNames(), coupling=configuration_1(STEPS), **settings)
    for p in block.evolution.parameters():
        nn.init.constant_(p, 0.2)
    return block


@every_strategy
def test_theta_is_read_under_the_second_name_of_a_weight_in_one_module(strategy):
    block = two_names(gradient=strategy, evolve=["first"])
    z = images()
    for theta in block.weight_trajectory()["field.first"]:
        z = torch.add(z, torch.conv2d(z, theta, padding=1).tanh(), alpha=1 / STEPS)
    assert torch.equal(block(images()), z)


@every_strategy
@pytest.mark.parametrize("per_step", [(), (TwoNames,)], ids=["shared", "a copy for each step"])
def test_a_counter_under_two_names_in_one_module_counts_each_step_once(per_step, strategy):
    block = two_names(gradient=strategy, evolve=(), per_step=per_step)
    block(images().requires_grad_()).sum().backward()
    counts = [int(b) for n, b in block.named_buffers()]
    assert counts == ([1] * STEPS if per_step else [STEPS])


def test_a_weight_under_two_names_in_one_module_survives_a_state_dictionary():
    block, other = two_names(evolve=()), two_names(evolve=())
    other.load_state_dict(block.state_dict())
    assert other.field.second is other.field.first
    assert torch.equal(other(images()), block(images()))


class Twice(nn.Module):
    """Reads a weight twice; torch is to work it out once."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, z: Tensor) -> Tensor:
        with cached():
            return self.inner(self.inner(z).tanh())


@every_strategy
@pytest.mark.parametrize("wrap", [nn.Sequential, Twice])
@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
def test_around_a_block_torchs_cache_of_parametrized_weights_changes_no_bit(inside, wrap, strategy):
    field = wrap(weight_norm(nn.Conv2d(4, 4, 3, padding=1)).double())
    block = CoupledODE(field, coupling=configuration_1(STEPS), gradient=strategy)
    for p in block.evolution.parameters():
        nn.init.constant_(p, 0.2)
    expected = gradients(block, block(images()))
    (convolution,) = (m for m in field.modules() if isinstance(m, nn.Conv2d))
    with cached():
        w0 = convolution.weight  # which no step must find
        end = block(images())
        found = gradients(block, end) if inside else None
        assert convolution.weight is w0
    found = found or gradients(block, end)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def gradients(block: CoupledODE, end: Tensor) -> list[Tensor]:
    """z(1), and its gradients."""
    return [end, *torch.autograd.grad(end.square().sum(), list(block.parameters()))]
