"""A recomputing block in a graph: what needs gradients, several blocks, several passes."""

from collections import Counter
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from twins import (
    RECOMPUTING,
    convolution,
    cotangent,
    coupled,
    differing,
    gradients,
    images,
    mismatch,
    resnet_field,
    run,
    twin,
)

from anodev2 import CoupledODE
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", [Direct(), *RECOMPUTING], ids=str)


def small_block() -> CoupledODE:
    return coupled(resnet_field(channels=4), steps=3)


@recomputing
def test_a_first_layer_whose_input_needs_no_gradient_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    assert not mismatch(strategy, coupled(), images(), needs_z0=False)


TRAINED = {
    "only p": lambda name: name.startswith("evolution."),
    "only w0": lambda name: name in ("field.2.weight", "field.6.weight"),
    "only norms": lambda name: name.startswith("norms.") or name.split(".")[1] in "04",
    "only norms of the last step": lambda name: name.startswith("norms.1."),
    "only the first step's": lambda name: name == "field.0.bias",
    "all but p": lambda name: not name.startswith("evolution."),
    "all but one weight": lambda name: name != "field.2.weight",
    "nothing": lambda name: False,
}


@recomputing
@pytest.mark.parametrize("needs_z0", [True, False], ids=["z0 too", "not z0"])
@pytest.mark.parametrize("trained", TRAINED)
def test_a_block_of_which_only_a_part_is_trained_is_equal_to_the_bit(
    strategy: GradientStrategy, trained: str, needs_z0: bool
) -> None:
    direct = small_block()
    for name, parameter in direct.named_parameters():
        parameter.requires_grad_(TRAINED[trained](name))
    assert not mismatch(strategy, direct, images(4), needs_z0=needs_z0)


NAMES = [name for name, _ in small_block().named_parameters()]


@settings(max_examples=25, deadline=None)
@given(
    frozen=st.sets(st.sampled_from(NAMES)),
    strategy=st.sampled_from(RECOMPUTING),
    needs_z0=st.booleans(),
)
def test_frozen_parameters_get_no_gradient_and_the_others_are_equal_to_the_bit(
    frozen: set[str], strategy: GradientStrategy, needs_z0: bool
) -> None:
    direct = small_block()
    for name in frozen:
        direct.get_parameter(name).requires_grad_(False)
    again = twin(direct, strategy)
    found = run(again, images(4), needs_z0=needs_z0)
    assert not differing(found, run(direct, images(4), needs_z0=needs_z0))
    assert {name for name in NAMES if found[f"gradient of {name}"] is None} == frozen


class Unused(nn.Module):
    """A field with a bias and two convolutions that it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.used = convolution()
        self.of_equal_shape = convolution()
        self.of_other_shape = nn.Conv2d(4, 2, 3)
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, z: Tensor) -> Tensor:
        return self.used(z).tanh()


@every_strategy
def test_a_parameter_that_the_field_does_not_read_gets_no_gradient(
    strategy: GradientStrategy,
) -> None:
    assert run(twin(coupled(Unused()), strategy), images(4))["gradient of field.bias"] is None


@recomputing
def test_a_field_with_unused_weights_is_equal_to_the_bit(strategy: GradientStrategy) -> None:
    assert not mismatch(strategy, coupled(Unused()), images(4))


@recomputing
@pytest.mark.parametrize("blocks", [2, 3])
def test_several_blocks_in_one_model_are_equal_to_the_bit(
    strategy: GradientStrategy, blocks: int
) -> None:
    layers = [layer for _ in range(blocks) for layer in (small_block(), convolution(bias=True))]
    assert not mismatch(strategy, nn.Sequential(convolution(), *layers), images(4))


class Siamese(nn.Module):
    """One block on an image and on its mirror image."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([self.block(z), self.block(z.flip(-1))])


@recomputing
def test_a_block_called_twice_before_the_backward_pass_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    assert not mismatch(strategy, Siamese(small_block()), images(4))


@recomputing
def test_gradients_accumulated_over_three_passes_are_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = small_block()
    again = twin(direct, strategy)
    for block in (direct, again):
        torch.manual_seed(3)
        for seed in range(3):
            output = block(images(4, seed=seed))
            output.backward(cotangent(output))
    assert not differing(gradients(again), gradients(direct))


@recomputing
def test_a_second_backward_pass_through_a_retained_graph_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = small_block()
    again = twin(direct, strategy)
    for block in (direct, again):
        torch.manual_seed(3)
        output = block(images(4))
        output.backward(cotangent(output), retain_graph=True)
        output.backward(2 * cotangent(output))
    assert not differing(gradients(again), gradients(direct))
    assert not differing(dict(again.named_buffers()), dict(direct.named_buffers()))


@recomputing
def test_gradients_of_parts_and_then_of_all_through_a_retained_graph_are_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    """Backward passes that end early leave a schedule in its middle."""
    direct = small_block()
    found = []
    for block in (direct, twin(direct, strategy)):
        torch.manual_seed(3)
        z0 = images(4).requires_grad_()
        output = block(z0)
        for wanted in ([*block.norms[1].parameters()], [z0, *block.parameters()]) * 2:
            grads = torch.autograd.grad(output, wanted, cotangent(output), retain_graph=True)
            found.append(grads)
    expected, again = found[:4], found[4:]
    for theirs, ours in zip(expected, again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))


@recomputing
def test_a_second_backward_pass_without_a_retained_graph_raises_torchs_usual_error(
    strategy: GradientStrategy,
) -> None:
    output = twin(small_block(), strategy)(images(4)).sum()
    output.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.backward()


@every_strategy
@pytest.mark.parametrize("name", ["field.0.weight", "norms.0.4.weight"])
def test_a_weight_changed_between_forward_and_backward_raises_torchs_usual_error(
    strategy: GradientStrategy, name: str
) -> None:
    block = twin(small_block(), strategy)
    output = block(images(4)).sum()
    with torch.no_grad():
        block.get_parameter(name).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


@every_strategy
@pytest.mark.parametrize("needs_gradient", [True, False])
def test_z0_changed_between_forward_and_backward_raises_torchs_usual_error(
    strategy: GradientStrategy, needs_gradient: bool
) -> None:
    z0 = images(4).requires_grad_(needs_gradient)
    output = twin(small_block(), strategy)(z0).sum()
    with torch.no_grad():
        z0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


WANTED = ["z0", "field.0.bias", "field.2.weight", "evolution.2.weight.d", "norms.1.4.weight"]


@recomputing
@pytest.mark.parametrize("wanted", WANTED)
def test_the_gradient_of_one_tensor_alone_is_equal_to_the_bit(
    strategy: GradientStrategy, wanted: str
) -> None:
    direct = small_block()
    found = []
    for block in (direct, twin(direct, strategy)):
        torch.manual_seed(3)
        z0 = images(4).requires_grad_()
        output = block(z0)
        one = z0 if wanted == "z0" else block.get_parameter(wanted)
        found += torch.autograd.grad(output, one, cotangent(output))
    assert torch.equal(*found)


@every_strategy
def test_hooks_on_a_parameter_fire_once_in_a_backward_pass(strategy: GradientStrategy) -> None:
    block = twin(small_block(), strategy)
    names = {id(parameter): name for name, parameter in block.named_parameters()}
    fired: Counter[str] = Counter()
    for parameter in block.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: fired.update([names[id(p)]]))
    block(images(4)).sum().backward()
    assert fired == dict.fromkeys(NAMES, 1)


@recomputing
def test_a_block_copied_after_a_backward_pass_computes_the_same_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    block = twin(small_block(), strategy)
    block(images(4)).sum().backward()
    copy = deepcopy(block)
    assert not differing(run(copy, images(4)), run(block, images(4)))


@recomputing
def test_a_block_copied_between_forward_and_backward_leaves_the_gradients_alone(
    strategy: GradientStrategy,
) -> None:
    direct = small_block()
    again = twin(direct, strategy)
    run(direct, images(4))
    torch.manual_seed(3)
    output = again(images(4))
    run(deepcopy(again), images(4, seed=5))
    output.backward(cotangent(output))
    assert not differing(gradients(again), gradients(direct))


def test_strategies_are_equal_and_hash_equally_if_their_settings_are_equal() -> None:
    distinct = {Direct(), Direct(), Checkpoint(), Checkpoint(1), Binomial(1), Binomial(slots=1)}
    assert distinct == {Direct(), Checkpoint(1), Binomial(1)}


@pytest.mark.parametrize(
    ("strategy", "setting"), [(Checkpoint(2), "segments"), (Binomial(2), "slots")], ids=str
)
def test_settings_of_a_strategy_cannot_be_changed(strategy: GradientStrategy, setting: str) -> None:
    with pytest.raises(AttributeError):
        setattr(strategy, setting, 3)
