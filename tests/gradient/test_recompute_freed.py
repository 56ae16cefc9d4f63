"""What dies when a backward pass ends, when it fails, and over many passes."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize

import pytest
import torch
from torch import Tensor, nn
from twins import RECOMPUTING, convolution, coupled, images, resnet_field, twin

from anodev2 import CoupledODE
from anodev2.gradient import Direct, GradientStrategy

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", [Direct(), *RECOMPUTING], ids=str)


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@every_strategy
def test_a_kept_loss_is_one_tensor_after_the_backward_pass(strategy: GradientStrategy) -> None:
    """Else a list of losses keeps copies of buffers and random states of every pass."""
    block = coupled(resnet_field(channels=4), gradient=strategy)
    block(images(4)).sum().backward()
    before = live_tensors()
    loss = block(images(4)).sum()
    loss.backward()
    assert live_tensors() - before == 1


class Watched(nn.Module):
    """A field that remembers its inputs weakly, and may fail at one evaluation."""

    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self.inner = resnet_field(channels=4)
        self.seen: list[weakref.ref[Tensor]] = []
        self.fail_at = fail_at

    def forward(self, z: Tensor) -> Tensor:
        self.seen.append(weakref.ref(z))
        if len(self.seen) == self.fail_at:
            raise ArithmeticError("the field failed")
        return self.inner(z)


def fail(block: CoupledODE) -> None:
    with pytest.raises(ArithmeticError):
        block(images(4)).sum().backward()


@every_strategy
def test_a_field_that_fails_in_the_forward_pass_leaves_no_state_alive(
    strategy: GradientStrategy,
) -> None:
    field = Watched(fail_at=4)
    fail(coupled(field, gradient=strategy))
    gc.collect()
    assert len(field.seen) == 4
    assert not any(seen() is not None for seen in field.seen)


@recomputing
def test_a_field_that_fails_when_recomputed_leaves_no_state_alive(
    strategy: GradientStrategy,
) -> None:
    field = Watched(fail_at=7)
    fail(coupled(field, gradient=strategy))
    gc.collect()
    assert len(field.seen) == 7
    assert not any(seen() is not None for seen in field.seen)


@every_strategy
def test_states_die_without_the_garbage_collector(strategy: GradientStrategy) -> None:
    """A cycle through a graph would keep activations until a collection that may come late."""
    field = Watched(fail_at=0)
    block = coupled(field, gradient=strategy)
    gc.collect()
    gc.disable()
    try:
        block(images(4)).sum().backward()
        assert not any(seen() is not None for seen in field.seen)
    finally:
        gc.enable()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")


@pytest.mark.slow
@needs_proc
@every_strategy
def test_memory_is_flat_over_two_hundred_training_steps(strategy: GradientStrategy) -> None:
    """One state leaked a step would be 200 states; forty are left to the allocator."""
    block = twin(coupled(nn.Sequential(convolution(), nn.Tanh()), steps=3), strategy)
    z0 = images(4, size=32)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
    step = training_step(block, optimizer, z0)
    for _ in range(20):
        step()
    before, tensors = resident_bytes(), live_tensors()
    for _ in range(200):
        step()
    assert live_tensors() == tensors
    assert resident_bytes() - before < 40 * z0.nbytes


def training_step(
    block: CoupledODE, optimizer: torch.optim.Optimizer, z0: Tensor
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        block(z0).square().mean().backward()
        optimizer.step()

    return step
