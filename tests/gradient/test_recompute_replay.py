"""Fields that meddle with what a graph saves, and fields that do not repeat themselves."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from twins import (
    RECOMPUTING,
    STEPS,
    Failing,
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
from cases import STRATEGIES

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)


class ReadsTwice(torch.autograd.Function):
    """sin z, whose backward asks twice for what the forward saved."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return z.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (first,), (second,) = ctx.saved_tensors, ctx.saved_tensors
        return gradient * (first + second).mul(0.5).cos()


class Sine(nn.Module):
    """A convolution and that sine; counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolution()
        self.evaluations = 0

    def forward(self, z: Tensor) -> Tensor:
        self.evaluations += 1
        return self.inner(ReadsTwice.apply(z))


@recomputing
def test_a_backward_that_reads_its_saved_tensors_twice_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    assert not mismatch(strategy, coupled(Sine()), images(4))


@pytest.mark.parametrize(
    ("strategy", "untaped"), [(Checkpoint(STEPS), 0), (Binomial(1), 3), (Binomial(4), 0)], ids=str
)
def test_a_second_reading_tapes_its_step_once_more_and_does_not_begin_the_schedule_anew(
    strategy: GradientStrategy, untaped: int
) -> None:
    block = coupled(Sine(), gradient=strategy)
    block(images(4).requires_grad_()).sum().backward()
    assert block.evaluations.backward == untaped + 2 * STEPS


class Fickle(nn.Module):
    """Does something else from its sixth evaluation on, where a block of five steps goes back."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = convolution()
        self.kind = kind
        self.evaluations = 0

    def forward(self, z: Tensor) -> Tensor:
        self.evaluations += 1
        again = self.evaluations > STEPS
        match self.kind:
            case "saves less":
                return self.inner(z) if again else self.inner(z).tanh()
            case "another shape":
                half = self.inner(z[:, :, :4] if again else z).tanh()
                return half.repeat(1, 1, 1 + again, 1)
            case _:
                return self.inner(z).to(torch.float64 if again else torch.float32).tanh().float()


@recomputing
@pytest.mark.parametrize("kind", ["saves less", "another shape", "another dtype"])
def test_a_field_that_does_not_repeat_its_operations_is_refused_and_told_of_direct(
    strategy: GradientStrategy, kind: str
) -> None:
    output = coupled(Fickle(kind), gradient=strategy)(images(4)).sum()
    with pytest.raises(RuntimeError, match="does not repeat its operations") as error:
        output.backward()
    assert "gradient=Direct()" in str(error.value)


def nested(inner: GradientStrategy) -> CoupledODE:
    """A block with a block, of shared norms and three steps, in its field."""
    block = coupled(resnet_field(channels=4), steps=3, per_step=(), gradient=inner)
    return coupled(nn.Sequential(convolution(), block), steps=3)


@recomputing
@pytest.mark.parametrize("inner", [Direct(), Checkpoint(1), Binomial(1)], ids=str)
def test_a_block_in_the_field_of_a_block_is_equal_to_the_bit(
    strategy: GradientStrategy, inner: GradientStrategy
) -> None:
    direct = nested(Direct())
    again = twin(direct, strategy)
    again.field[1].gradient = inner
    assert not differing(run(again, images(4)), run(direct, images(4)))


@recomputing
def test_hooks_on_modules_of_the_field_change_no_equality(strategy: GradientStrategy) -> None:
    direct = coupled(resnet_field(channels=4))
    again = twin(direct, strategy)
    for block in (direct, again):
        seen: list[Tensor] = []
        block.field[2].register_forward_pre_hook(lambda module, args: (args[0].sin(),))
        block.field[4].register_forward_hook(lambda module, args, value: value * value)
        block.field[5].register_forward_hook(lambda module, args, value, s=seen: s.append(value))
    assert not differing(run(again, images(4)), run(direct, images(4)))


@recomputing
def test_anomaly_detection_changes_no_gradient(strategy: GradientStrategy) -> None:
    direct = coupled(resnet_field(channels=4))
    with torch.autograd.set_detect_anomaly(True):
        found = run(twin(direct, strategy), images(4))
    assert not differing(found, run(direct, images(4)))


@recomputing
def test_a_block_whose_saved_tensors_are_kept_elsewhere_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = coupled(resnet_field(channels=4))
    with torch.autograd.graph.save_on_cpu():
        found = run(twin(direct, strategy), images(4))
    assert not differing(found, run(direct, images(4)))


class Checkpointed(nn.Module):
    """The field or block `inner`, checkpointed by PyTorch as well."""

    def __init__(self, inner: nn.Module, *, use_reentrant: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.use_reentrant = use_reentrant

    def forward(self, z: Tensor) -> Tensor:
        return checkpoint(self.inner, z, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_field_that_pytorch_checkpoints_is_refused_since_theta_would_have_left_it(
    strategy: GradientStrategy, use_reentrant: bool
) -> None:
    inner = nn.Sequential(convolution(), nn.Tanh())
    block = coupled(Checkpointed(inner, use_reentrant=use_reentrant), gradient=strategy)
    with pytest.raises(RuntimeError, match=r"when theta has left it.* gradient=Checkpoint"):
        run(block, images(4))


def test_a_field_that_pytorch_checkpoints_is_evaluated_without_gradients() -> None:
    block = coupled(Checkpointed(nn.Sequential(convolution(), nn.Tanh())))
    with torch.no_grad():
        assert torch.equal(block(images(4)), block.materialize()(images(4)))


@recomputing
def test_a_block_that_pytorch_checkpoints_as_well_is_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    direct = coupled(nn.Sequential(convolution(), nn.Tanh(), nn.Dropout(0.2)))
    found = run(Checkpointed(twin(direct, strategy)), images(4))
    expected = run(Checkpointed(direct), images(4))
    assert not differing(found, expected)


@recomputing
def test_two_backward_passes_that_take_turns_are_equal_to_the_bit(
    strategy: GradientStrategy,
) -> None:
    """The second graph's backward begins within the first one's, through a hook."""
    direct = coupled(resnet_field(channels=4))
    again = twin(direct, strategy)
    for block in (direct, again):
        torch.manual_seed(3)
        first, second = block(images(4)), block(images(4, seed=5))
        first.register_hook(lambda g, other=second: other.backward(cotangent(other)))
        first.backward(cotangent(first))
    assert not differing(gradients(again), gradients(direct))


@recomputing
@pytest.mark.parametrize("at", range(STEPS + 1, 2 * STEPS + 1))
def test_a_backward_pass_that_failed_can_be_run_again_through_a_retained_graph_to_the_bit(
    strategy: GradientStrategy, at: int
) -> None:
    direct = coupled(Failing(at=0))
    again = twin(direct, strategy)
    again.field.left = at
    expected = run(direct, images(4))
    torch.manual_seed(3)
    output = again(images(4))
    with pytest.raises(ArithmeticError):
        output.backward(cotangent(output), retain_graph=True)
    again.zero_grad()
    output.backward(cotangent(output))
    found = gradients(again)
    assert not differing(found, {name: expected[name] for name in found})
