"""Buffers and tensors that are written, re-assigned, derived or shared, with recomputation."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from twins import (
    RECOMPUTING,
    STEPS,
    convolution,
    cotangent,
    coupled,
    differing,
    gradients,
    images,
    mismatch,
    resnet_field,
    run,
    train,
    twin,
)

from anodev2 import CoupledODE
from anodev2.gradient import Direct, GradientStrategy

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", [Direct(), *RECOMPUTING], ids=str)


def with_momentum(momentum: float | None, **settings: object) -> CoupledODE:
    field = resnet_field(channels=4)
    for module in field.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = momentum
    return coupled(field, **settings)


@recomputing
@pytest.mark.parametrize("momentum", [0.1, None])
def test_five_training_steps_leave_parameters_and_statistics_equal_to_the_bit(
    strategy: GradientStrategy, momentum: float | None
) -> None:
    direct = with_momentum(momentum)
    again = twin(direct, strategy)
    assert not differing(train(again, channels=4), train(direct, channels=4))


@recomputing
@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_of_norms_that_steps_share_are_equal_to_the_bit(
    strategy: GradientStrategy, momentum: float | None
) -> None:
    direct = with_momentum(momentum, per_step=())
    again = twin(direct, strategy)
    for block in (direct, again):
        torch.manual_seed(3)
        for seed in range(3):
            block(images(4, seed=seed)).sum().backward()
    assert not differing(dict(again.named_buffers()), dict(direct.named_buffers()))


@every_strategy
def test_batches_are_counted_once_in_each_norm_of_each_step(strategy: GradientStrategy) -> None:
    block = twin(with_momentum(0.1), strategy)
    train(block, channels=4, steps=3)
    counts = [int(b) for n, b in block.named_buffers() if n.endswith("num_batches_tracked")]
    assert counts == [3] * 2 * STEPS


@every_strategy
def test_batches_are_counted_at_every_step_by_norms_that_steps_share(
    strategy: GradientStrategy,
) -> None:
    block = twin(with_momentum(0.1, per_step=()), strategy)
    block(images(4)).sum().backward()
    counts = [int(b) for n, b in block.named_buffers() if n.endswith("num_batches_tracked")]
    assert counts == [STEPS] * 2


@recomputing
def test_the_backward_pass_writes_no_buffer(strategy: GradientStrategy) -> None:
    block = twin(coupled(resnet_field(channels=4)), strategy)
    output = block(images(4))
    versions = {name: buffer._version for name, buffer in block.named_buffers()}
    output.sum().backward()
    assert {name: buffer._version for name, buffer in block.named_buffers()} == versions


@recomputing
def test_evaluation_with_gradients_reads_running_statistics_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = coupled(resnet_field(channels=4))
    train(direct, channels=4, steps=2)
    assert not mismatch(strategy, direct.eval(), images(4))


@recomputing
def test_the_recomputation_reads_the_statistics_that_the_forward_pass_read(
    strategy: GradientStrategy,
) -> None:
    direct = coupled(resnet_field(channels=4)).eval()
    again = twin(direct, strategy)
    run(direct, images(4))
    output = again(images(4))
    for name, buffer in again.named_buffers():
        if "running" in name:
            buffer.add_(1.0)
    output.backward(cotangent(output))
    assert not differing(gradients(again), gradients(direct))


def spectral_field() -> nn.Module:
    first, second = (parametrizations.spectral_norm(convolution()) for _ in range(2))
    return nn.Sequential(first, nn.Tanh(), second)


def power_iteration(block: nn.Module) -> dict[str, Tensor]:
    return {n: b.clone() for n, b in block.named_buffers() if n.endswith(("._u", "._v"))}


@recomputing
def test_spectral_normalisation_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    assert not mismatch(strategy, coupled(spectral_field()), images(4))


@recomputing
def test_five_training_steps_with_spectral_normalisation_are_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = coupled(spectral_field())
    again = twin(direct, strategy)
    assert not differing(train(again, channels=4), train(direct, channels=4))


@recomputing
def test_power_iteration_moves_in_the_forward_pass_alone(strategy: GradientStrategy) -> None:
    block = twin(coupled(spectral_field()), strategy)
    before = power_iteration(block)
    output = block(images(4))
    after = power_iteration(block)
    output.sum().backward()
    assert not any(torch.equal(before[name], after[name]) for name in before)
    assert not differing(power_iteration(block), after)


@recomputing
def test_a_second_backward_pass_starts_from_the_buffers_of_the_forward_pass_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    """The first one writes copies of them, and the power iteration reads what it writes."""
    block = twin(coupled(spectral_field()), strategy)
    output, weights = block(images(4)), list(block.parameters())
    first, second = (
        torch.autograd.grad(output, weights, cotangent(output), retain_graph=True) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@recomputing
def test_power_iteration_by_hooks_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    """The older form, which sets the weight as an attribute before each evaluation."""
    field = nn.Sequential(nn.utils.spectral_norm(convolution()), nn.Tanh())
    direct = coupled(field, evolve=["0.weight_orig"])
    assert not mismatch(strategy, direct, images(4))


@recomputing
def test_weight_normalisation_is_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    field = nn.Sequential(parametrizations.weight_norm(convolution()), nn.Tanh())
    direct = coupled(field, steps=2)
    assert direct.evolved == ("field.0.parametrizations.weight.original1",)
    assert not mismatch(strategy, direct, images(4))


class Counter(nn.Module):
    """Divides by the number of its evaluations; the count is re-assigned, not written."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, z: Tensor) -> Tensor:
        self.count = self.count + 1
        return z / self.count


@recomputing
@pytest.mark.parametrize("per_step", [(), (Counter,)], ids=["shared", "per step"])
def test_a_buffer_that_is_assigned_anew_is_recomputed_to_the_bit(
    strategy: GradientStrategy, per_step: tuple[type[nn.Module], ...]
) -> None:
    direct = coupled(nn.Sequential(convolution(), Counter()), per_step=per_step)
    again = twin(direct, strategy)
    assert not differing(train(again, channels=4), train(direct, channels=4))


@every_strategy
def test_a_buffer_that_is_assigned_anew_counts_every_step_where_steps_share_it(
    strategy: GradientStrategy,
) -> None:
    block = twin(coupled(nn.Sequential(convolution(), Counter())), strategy)
    for _ in range(2):
        block(images(4)).sum().backward()
    assert int(block.field[1].count) == 2 * STEPS


@every_strategy
def test_a_buffer_that_is_assigned_anew_counts_every_pass_in_the_copy_of_each_step(
    strategy: GradientStrategy,
) -> None:
    field = nn.Sequential(convolution(), Counter())
    block = twin(coupled(field, per_step=(Counter,)), strategy)
    for _ in range(2):
        block(images(4)).sum().backward()
    counts = [int(b) for n, b in block.named_buffers() if n.endswith("count")]
    assert counts == [2] * STEPS


def tied_field() -> nn.Module:
    field = nn.Sequential(convolution(), nn.Tanh(), convolution())
    field[2].weight = field[0].weight
    return field


@recomputing
def test_tied_weights_are_recomputed_to_the_bit(strategy: GradientStrategy) -> None:
    assert not mismatch(strategy, coupled(tied_field()), images(4))


@every_strategy
def test_tied_weights_stay_one_parameter_that_a_pass_does_not_replace(
    strategy: GradientStrategy,
) -> None:
    block = twin(coupled(tied_field()), strategy)
    weight = block.field[0].weight
    block(images(4)).sum().backward()
    assert block.field[0].weight is weight
    assert block.field[2].weight is weight


@every_strategy
def test_a_module_used_twice_keeps_its_parameter(strategy: GradientStrategy) -> None:
    shared = convolution()
    block = twin(coupled(nn.Sequential(shared, nn.Tanh(), shared)), strategy)
    weight = block.field[0].weight
    block(images(4)).sum().backward()
    assert block.field[0].weight is weight


@every_strategy
def test_a_module_used_twice_is_two_modules_with_tied_weights_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    shared = convolution()
    twice = coupled(nn.Sequential(shared, nn.Tanh(), shared))
    tied = coupled(tied_field())
    twice.load_state_dict(tied.state_dict())
    found, expected = (run(twin(block, strategy), images(4)) for block in (twice, tied))
    assert torch.equal(found["output"], expected["output"])
    assert torch.equal(found["gradient of z0"], expected["gradient of z0"])


@every_strategy
def test_a_norm_used_twice_in_a_step_counts_both_uses_in_the_copy_of_each_step(
    strategy: GradientStrategy,
) -> None:
    shared = nn.BatchNorm2d(4)
    field = nn.Sequential(shared, convolution(), shared, convolution())
    block = twin(coupled(field), strategy)
    block(images(4)).sum().backward()
    counts = [int(b) for n, b in block.named_buffers() if n.endswith("num_batches_tracked")]
    assert counts == [2] * STEPS
