"""What a block keeps between its forward and its backward pass, in bytes and in tensors."""

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
from anodev2.evolution import Frozen
from anodev2.gradient import Checkpoint, Direct, GradientStrategy

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", [Direct(), *RECOMPUTING], ids=str)


class Saved:
    """A tensor in the care of a graph: alive as long as the graph keeps it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


class Ledger(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes of distinct storages that graphs made inside it keep."""

    def __init__(self) -> None:
        self.kept: weakref.WeakSet[Saved] = weakref.WeakSet()
        self.peak = 0
        super().__init__(self._pack, lambda saved: saved.tensor)

    def __enter__(self) -> "Ledger":
        super().__enter__()
        return self

    def storages(self) -> dict[int, int]:
        all_storages = [saved.tensor.untyped_storage() for saved in self.kept]
        return {storage.data_ptr(): storage.nbytes() for storage in all_storages}

    def bytes(self) -> int:
        return sum(self.storages().values())

    def _pack(self, tensor: Tensor) -> Saved:
        saved = Saved(tensor)
        self.kept.add(saved)
        self.peak = max(self.peak, self.bytes())
        return saved


def plain(steps: int, gradient: GradientStrategy) -> CoupledODE:
    """A block whose steps share all weights: what it keeps grows with states alone."""
    field = resnet_field(channels=4)
    return coupled(field, steps=steps, evolution=Frozen, per_step=(), gradient=gradient)


def size(*tensors: Tensor) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def surroundings(block: CoupledODE) -> list[Tensor]:
    """What is kept with each state besides z: the generator's state and the buffers."""
    return [torch.get_rng_state(), *block.buffers()]


def kept(block: CoupledODE, z0: Tensor) -> int:
    with Ledger() as ledger:
        output = block(z0)
        assert output.requires_grad
        return ledger.bytes()


@pytest.mark.parametrize("steps", [5, 10, 20])
def test_one_segment_keeps_z0_and_the_weights_whatever_the_steps(steps: int) -> None:
    block, z0 = plain(steps, Checkpoint(1)), images(4)
    assert kept(block, z0) == size(z0, *surroundings(block), *block.parameters())


@pytest.mark.parametrize("steps", [5, 10, 20])
@pytest.mark.parametrize("segments", [2, 5])
def test_each_segment_keeps_one_state(segments: int, steps: int) -> None:
    block, z0 = plain(steps, Checkpoint(segments)), images(4)
    state = size(z0, *surroundings(block))
    assert kept(block, z0) == segments * state + size(*block.parameters())


def test_direct_keeps_as_much_for_every_step_and_more_than_its_state() -> None:
    z0 = images(4)
    five, ten, twenty = (kept(plain(steps, Direct()), z0) for steps in (5, 10, 20))
    assert twenty - ten == 2 * (ten - five)
    assert ten - five > 5 * size(z0)


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_a_block_with_moving_weights_keeps_one_state_a_segment(segments: int) -> None:
    block, z0 = coupled(gradient=Checkpoint(segments)), images()
    with Ledger() as ledger:
        output = block(z0)
        states = [number for number in ledger.storages().values() if number >= size(z0)]
    assert output.shape == z0.shape
    assert states == [size(z0)] * segments


def test_one_segment_a_step_holds_the_tape_of_one_step_while_differentiating() -> None:
    tapes = []
    for steps in (5, 10, 20):
        with Ledger() as ledger:
            output = plain(steps, Checkpoint(steps))(images(4)).sum()
            before = ledger.bytes()
            output.backward()
        tapes.append(ledger.peak - before)
    assert tapes[0] > 0
    assert tapes == tapes[:1] * 3


@every_strategy
def test_without_gradients_nothing_is_kept(strategy: GradientStrategy) -> None:
    with Ledger() as ledger, torch.no_grad():
        output = plain(5, strategy)(images(4))
        assert not ledger.kept
    assert not output.requires_grad


@every_strategy
def test_a_backward_pass_frees_what_the_graph_saved_although_the_loss_is_kept(
    strategy: GradientStrategy,
) -> None:
    with Ledger() as ledger:
        loss = coupled(gradient=strategy)(images()).sum()
        assert ledger.kept
        loss.backward()
        assert not ledger.kept


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
    """One state leaked a step would be 200 states; ten of them are allowed."""
    block = twin(coupled(nn.Sequential(convolution(), nn.Tanh()), steps=2), strategy)
    z0 = images(4, size=32)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
    step = training_step(block, optimizer, z0)
    for _ in range(20):
        step()
    before, tensors = resident_bytes(), live_tensors()
    for _ in range(200):
        step()
    assert live_tensors() == tensors
    assert resident_bytes() - before < 10 * size(z0)


def training_step(
    block: CoupledODE, optimizer: torch.optim.Optimizer, z0: Tensor
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        block(z0).square().mean().backward()
        optimizer.step()

    return step
