"""Gradients through moving weights and their memory, and that at rest all of it is ANODE."""

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from anodev2.gradient import Direct
from anodev2.memory import Exponential, Gaussian, Learned
from cases import EVOLUTIONS, MEMORY_KERNELS, STRATEGIES

RAW = partial(Exponential, learn=True, normalize=False)
IMAGES = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(1))
COUPLINGS = [configuration_1(3), configuration_2(2, 4)]
LEARNED = {
    "memory.log_rate": partial(Exponential, learn=True),
    "memory.log_width": partial(Gaussian, learn=True),
    "memory.k": Learned,
}
every_evolution = pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
both_configurations = pytest.mark.parametrize(
    "coupling", COUPLINGS, ids=["configuration_1", "configuration_2"]
)


def field() -> nn.Sequential:
    """A small smooth field."""
    torch.manual_seed(3)
    first, second = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))
    return nn.Sequential(first, nn.Tanh(), second)


def stirred(block: CoupledODE) -> CoupledODE:
    """The block with random p and a kernel that is not at its start."""
    source = torch.Generator().manual_seed(2)
    for p in (*block.evolution.parameters(), *block.memory.parameters()):
        p.data += 0.4 * torch.rand(p.shape, generator=source) - 0.2
    return block


def objective(block: CoupledODE, parameters: Mapping[str, Tensor]) -> Tensor:
    z1 = functional_call(block, dict(parameters), (IMAGES.double(),))
    return (z1 * torch.linspace(-1, 1, z1.numel(), dtype=z1.dtype).view_as(z1)).mean()


def slopes(block: CoupledODE, directions: Mapping[str, Tensor]) -> Tensor:
    """The loss's derivative along a direction of each parameter, by differences of order 4.

    They err by h^4 / 30 ~ 5e-17 of the fifth derivative, which is below 1e5 here, and by
    rounding, by 1e-16 / h ~ 1e-12 of a loss below 1. All losses are computed at once.
    """
    h = 2e-4
    steps = h * torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=torch.float64)
    moved = {}
    for i, (name, direction) in enumerate(directions.items()):
        p = block.get_parameter(name).detach()
        moved[name] = p.repeat(len(directions), len(steps), *[1] * p.ndim)
        moved[name][i] += steps.view(-1, *[1] * p.ndim) * direction
    loss = vmap(vmap(partial(objective, block)))(moved)
    return loss @ torch.tensor([1.0, -8.0, 8.0, -1.0], dtype=torch.float64) / 12 / h


@both_configurations
@pytest.mark.parametrize("kernel", [*MEMORY_KERNELS, RAW])
@every_evolution
def test_w0_p_and_memory_have_the_gradients_of_finite_differences(evolution, kernel, coupling):
    block = CoupledODE(field(), coupling=coupling, evolution=evolution, memory=kernel())
    stirred(block.double())
    fixed = {n for n, _ in block.named_parameters() if n.startswith("field.")} - {*block.evolved}
    parameters = {n: p for n, p in block.named_parameters() if n not in fixed}
    gradients = torch.autograd.grad(objective(block, parameters), list(parameters.values()))
    source = torch.Generator().manual_seed(4)
    noise = {n: torch.randn(p.shape, generator=source).double() for n, p in parameters.items()}
    directions = {n: x / x.norm() for n, x in noise.items()}
    pairs = zip(gradients, directions.values(), strict=True)
    found = torch.stack([(gradient * direction).sum() for gradient, direction in pairs])
    with torch.no_grad():
        torch.testing.assert_close(found, slopes(block, directions), rtol=0, atol=1e-11)


def splits_with_sigma(evolution) -> bool:
    """Whether sigma is applied after each step, so that zero coefficients are not at rest."""
    operator = evolution((2, 2, 3, 3))
    if not isinstance(operator, ReactionDiffusionAdvection):
        return False
    return operator.activation is not None and operator.solver is None


AT_REST = [evolution for evolution in EVOLUTIONS if not splits_with_sigma(evolution)]


@torch.no_grad()
@both_configurations
@pytest.mark.parametrize("kernel", MEMORY_KERNELS)
@pytest.mark.parametrize("evolution", AT_REST, ids=range(len(AT_REST)))
def test_at_construction_the_block_is_anode_to_the_bit(evolution, kernel, coupling):
    moving, anode = (
        CoupledODE(field(), coupling=coupling, evolution=q, memory=k)
        for q, k in ((evolution, kernel()), (Frozen, None))
    )
    assert torch.equal(moving(IMAGES), anode(IMAGES))


@torch.no_grad()
@pytest.mark.parametrize("evolution", AT_REST[1:], ids=range(1, len(AT_REST)))
def test_once_stirred_the_block_is_anode_no_more(evolution):
    moving = CoupledODE(field(), coupling=COUPLINGS[0], evolution=evolution)
    before = moving(IMAGES)
    assert not torch.equal(stirred(moving)(IMAGES), before)


@torch.no_grad()
@pytest.mark.parametrize("kernel", [*MEMORY_KERNELS[1:], RAW])
def test_where_weights_move_each_kernel_but_dirac_makes_another_block(kernel):
    dirac, remembering = (
        stirred(CoupledODE(field(), coupling=COUPLINGS[1], memory=k)) for k in (None, kernel())
    )
    assert not torch.equal(dirac(IMAGES), remembering(IMAGES))


@pytest.mark.parametrize("name", LEARNED)
def test_what_a_kernel_learns_is_a_parameter_of_the_block_under_memory(name: str) -> None:
    block = CoupledODE(field(), memory=LEARNED[name]())
    assert [n for n, _ in block.named_parameters() if n.startswith("memory.")] == [name]


def memory_gradient(name: str, coupling, strategy) -> Tensor:
    block = CoupledODE(field(), coupling=coupling, memory=LEARNED[name](), gradient=strategy)
    stirred(block)(IMAGES).square().sum().backward()
    return block.get_parameter(name).grad


@both_configurations
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("name", LEARNED)
def test_a_kernels_gradient_is_the_same_to_the_bit_by_every_strategy(name, strategy, coupling):
    expected = memory_gradient(name, coupling, Direct())
    assert expected.abs().max() > 0
    assert torch.equal(memory_gradient(name, coupling, strategy), expected)
