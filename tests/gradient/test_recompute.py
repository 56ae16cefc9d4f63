"""What recomputation must not change, on the block of ResNet-4 with dropout.

Equality is to the bit: the graph is that of `Direct`, so that both add the same numbers in the
same order, also where steps share weights.
"""

import pytest
import torch
from torch import Tensor, nn
from twins import (
    RECOMPUTING,
    STEPS,
    cotangent,
    coupled,
    images,
    mismatch,
    resnet_field,
    twin,
)

from anodev2 import configuration_2
from anodev2.evolution import Frozen
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy
from anodev2.gradient.recompute import Recomputing
from anodev2.gradient.schedule import Advance, Reverse
from anodev2.models import build_model
from anodev2.solver import RK4, Solver
from cases import SOLVERS

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)


@recomputing
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_recomputing_block_equals_a_direct_one_to_the_bit(
    strategy: GradientStrategy, autocast: bool, order: str
) -> None:
    direct = coupled(resnet_field(order=order))
    assert not mismatch(strategy, direct, images(), autocast=autocast)


@recomputing
@pytest.mark.parametrize("residual", [False, True], ids=["rate", "with shortcut"])
@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
def test_every_solver_is_recomputed_to_the_bit(
    strategy: GradientStrategy, solver: Solver, residual: bool
) -> None:
    direct = coupled(resnet_field(channels=4), steps=3, solver=solver, residual=residual)
    z0 = images(4)
    assert not mismatch(strategy, direct, z0)


@recomputing
def test_configuration_2_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    direct = coupled(coupling=configuration_2())
    assert not mismatch(strategy, direct, images())


@recomputing
@pytest.mark.parametrize("steps", [2, STEPS])
def test_steps_that_share_frozen_weights_are_recomputed_to_the_bit(
    strategy: GradientStrategy, steps: int
) -> None:
    direct = coupled(steps=steps, evolution=Frozen)
    assert not mismatch(strategy, direct, images())


def test_with_as_many_slots_as_steps_a_block_equals_a_direct_one_to_the_bit() -> None:
    assert not mismatch(Binomial(STEPS), coupled(), images())


def test_anode_as_built_equals_direct_to_the_bit() -> None:
    anode = build_model("resnet4", method="anode")[3]
    assert anode.gradient == Checkpoint()
    assert not mismatch(anode.gradient, twin(anode, Direct()), images())


@recomputing
@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
@pytest.mark.parametrize(
    "settings", [{"evolution": Frozen}, {"per_step": ()}], ids=["frozen", "shared norms"]
)
def test_gradients_of_weights_that_steps_share_are_summed_as_direct_does_to_the_bit(
    strategy: GradientStrategy, solver: Solver, settings: dict[str, object]
) -> None:
    direct = coupled(resnet_field(channels=4), solver=solver, **settings)
    assert not mismatch(strategy, direct, images(4))


class Masks(nn.Module):
    """A field that keeps the mask that its dropout drew at each evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.drawn: list[Tensor] = []

    def forward(self, z: Tensor) -> Tensor:
        mask = nn.functional.dropout(torch.ones_like(z), 0.5)
        self.drawn.append(mask)
        return self.weight * mask * z


def masks_drawn(strategy: GradientStrategy) -> tuple[list[Tensor], list[Tensor]]:
    """Of the forward and of the backward pass."""
    field = Masks()
    block = coupled(field, evolution=Frozen, evolve=["weight"], gradient=strategy)
    output = block(images(2))
    torch.rand(7)
    output.sum().backward()
    return field.drawn[:STEPS], field.drawn[STEPS:]


def test_each_step_draws_its_own_dropout_mask() -> None:
    forward, _ = masks_drawn(Checkpoint(1))
    equal = [torch.equal(a, b) for i, a in enumerate(forward) for b in forward[:i]]
    assert not any(equal)


@recomputing
def test_every_step_that_runs_again_draws_the_mask_of_the_forward_pass(
    strategy: Recomputing,
) -> None:
    forward, backward = masks_drawn(strategy)
    runs = [a for a in strategy.schedule(STEPS).backward if isinstance(a, Advance | Reverse)]
    expected = [forward[i] for run in runs for i in range(*run)]
    assert all(torch.equal(a, b) for a, b in zip(expected, backward, strict=True))


@recomputing
def test_the_backward_pass_leaves_the_global_random_state_alone(strategy: GradientStrategy) -> None:
    output = twin(coupled(), strategy)(images())
    torch.manual_seed(99)
    before = torch.get_rng_state()
    output.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@recomputing
def test_the_output_and_the_gradient_of_z0_are_laid_out_as_with_direct(
    strategy: GradientStrategy,
) -> None:
    direct = coupled().to(memory_format=torch.channels_last)
    again = twin(direct, strategy)
    strides = []
    for block in (direct, again):
        z0 = images().contiguous(memory_format=torch.channels_last).requires_grad_()
        output = block(z0)
        (gradient,) = torch.autograd.grad(output, z0, cotangent_like(output))
        strides.append((output.stride(), gradient.stride()))
    channels_last = images().contiguous(memory_format=torch.channels_last).stride()
    assert strides == [(channels_last, channels_last)] * 2


def cotangent_like(output: Tensor) -> Tensor:
    return torch.ones_like(output, memory_format=torch.preserve_format)


@recomputing
def test_a_block_in_channels_last_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    direct = coupled().to(memory_format=torch.channels_last)
    z0 = images().contiguous(memory_format=torch.channels_last)
    assert not mismatch(strategy, direct, z0)


@recomputing
def test_stages_that_read_one_theta_are_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    direct = coupled(resnet_field(channels=4), coupling=configuration_2(3, 4), solver=RK4())
    assert not mismatch(strategy, direct, images(4))


@recomputing
def test_a_change_to_evaluation_mode_before_the_backward_pass_changes_no_gradient(
    strategy: GradientStrategy,
) -> None:
    direct = coupled()
    results = []
    for block in (direct, twin(direct, strategy)):
        torch.manual_seed(3)
        output = block(images())
        block.eval()
        output.backward(cotangent(output))
        assert not any(module.training for module in block.modules())
        results.append([p.grad for p in block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
