"""Recomputation under bfloat16 autocast: the state of the forward pass, wherever the backward."""

import pytest
import torch
from torch import Tensor, nn
from twins import (
    RECOMPUTING,
    convolution,
    cotangent,
    coupled,
    images,
    mismatch,
    resnet_field,
    run,
    twin,
)

from anodev2.evolution import Frozen
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)


@recomputing
def test_a_backward_inside_autocast_equals_a_direct_one_inside_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    assert not mismatch(strategy, coupled(), images(), autocast=True, backward_inside=True)


@recomputing
def test_an_input_in_bfloat16_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    assert not mismatch(strategy, coupled(), images().bfloat16(), autocast=True)


@recomputing
def test_a_block_in_bfloat16_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    assert not mismatch(strategy, coupled().bfloat16(), images().bfloat16())


@recomputing
@pytest.mark.parametrize(
    "settings", [{"evolution": Frozen}, {"per_step": ()}], ids=["frozen", "shared norms"]
)
def test_weights_that_steps_share_are_recomputed_under_autocast_to_the_bit(
    strategy: GradientStrategy, settings: dict[str, object]
) -> None:
    direct = coupled(resnet_field(channels=4), **settings)
    assert not mismatch(strategy, direct, images(4), autocast=True)


@recomputing
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_under_autocast_every_parameter_gets_a_gradient_in_its_own_dtype(
    strategy: GradientStrategy, inside: bool
) -> None:
    block = twin(coupled(), strategy)
    run(block, images(), autocast=True, backward_inside=inside)
    assert {p.grad is not None and p.grad.dtype for p in block.parameters()} == {torch.float32}


@recomputing
def test_a_forward_without_autocast_is_recomputed_without_it(strategy: GradientStrategy) -> None:
    """The evolution has no parameters here: its own backward is no part of the claim."""
    direct = coupled(steps=2, evolution=Frozen)
    again = twin(direct, strategy)
    run(direct, images())
    torch.manual_seed(3)
    output = again(images())
    with torch.autocast("cpu", torch.bfloat16):
        output.backward(cotangent(output))
    for p, q in zip(again.parameters(), direct.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


@recomputing
def test_a_backward_leaves_the_autocast_state_alone(strategy: GradientStrategy) -> None:
    block = twin(coupled(), strategy)
    with torch.autocast("cpu", torch.bfloat16):
        output = block(images())
    with torch.autocast("cpu", torch.float16, enabled=False, cache_enabled=True):
        output.backward(cotangent(output))
        state = (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        )
    assert state == (False, torch.float16, True)


def two_convolutions(strategy: GradientStrategy) -> nn.Module:
    """Two steps share both weights: one is read as theta, the other as a plain parameter."""
    field = nn.Sequential(convolution(), nn.Tanh(), convolution())
    return coupled(field, steps=2, evolution=Frozen, evolve=["0.weight"], gradient=strategy)


def gradients_of_each_step(weights: list[Tensor], z0: Tensor) -> list[list[Tensor]]:
    """The same two Euler steps written out, with float32 copies of the weights for each."""
    copies = [[w.detach().clone().requires_grad_() for w in weights] for _ in range(2)]
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        z = z0
        for first, second in copies:
            inner = nn.functional.conv2d(z, first, padding=1).tanh()
            z = torch.add(z, nn.functional.conv2d(inner, second, padding=1), alpha=0.5)
    z.backward(cotangent(z))
    return [[w.grad for w in step] for step in copies]


@pytest.mark.parametrize("strategy", [Direct(), Checkpoint(1), Checkpoint(2), Binomial(1)], ids=str)
@pytest.mark.parametrize("name", ["field.0.weight", "field.2.weight"])
def test_gradients_of_shared_weights_are_summed_in_float32_to_the_bit(
    strategy: GradientStrategy, name: str
) -> None:
    """The cast cache would sum them in bfloat16, and lose half of the digits of each."""
    block = two_convolutions(strategy)
    weights = [block.get_parameter(n) for n in ("field.0.weight", "field.2.weight")]
    steps = gradients_of_each_step(weights, images(4))
    run(block, images(4), autocast=True)
    index = int(name == "field.2.weight")
    expected = steps[0][index] + steps[1][index]
    assert torch.equal(block.get_parameter(name).grad, expected)
    assert not torch.equal(expected, expected.bfloat16().float())
