"""What a block keeps between its forward and its backward pass, and while differentiating."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from twins import RECOMPUTING, coupled, images, resnet_field

from anodev2 import CoupledODE
from anodev2.evolution import Frozen
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy

every_strategy = pytest.mark.parametrize("strategy", [Direct(), *RECOMPUTING], ids=str)


class Ledger(TorchDispatchMode):
    """Sizes of the live storages that operations inside it made, but for those it is given."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = weakref.WeakSet(tensor.untyped_storage() for tensor in known)
        self.made: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.made |= {tensor.untyped_storage() for tensor in tensors} - set(self.known)
        self.peak = max(self.peak, self.bytes())
        return result

    def sizes(self) -> list[int]:
        return sorted(storage.nbytes() for storage in self.made)

    def bytes(self) -> int:
        return sum(self.sizes())


def plain(steps: int, gradient: GradientStrategy) -> CoupledODE:
    """A block whose steps share all weights: what it keeps grows with states alone."""
    field = resnet_field(channels=4)
    return coupled(field, steps=steps, evolution=Frozen, per_step=(), gradient=gradient)


def kept(block: CoupledODE, z0: Tensor) -> list[int]:
    """Sizes of what waits for the backward pass, z(1) aside."""
    with Ledger(z0, *block.parameters(), *block.buffers()) as ledger:
        output = block(z0)
    sizes = ledger.sizes()
    sizes.remove(output.nbytes)
    return sizes


def copies_of_buffers(block: CoupledODE) -> list[int]:
    return [buffer.nbytes for buffer in block.buffers()]


def tape(steps: int, gradient: GradientStrategy) -> int:
    """The most that is alive while differentiating, above what the forward pass kept."""
    block, z0 = plain(steps, gradient), images(4).requires_grad_()
    with Ledger(z0, *block.parameters(), *block.buffers()) as ledger:
        loss = block(z0).sum()
        before = ledger.bytes()
        ledger.peak = 0
        loss.backward()
    return ledger.peak - before


@pytest.mark.parametrize("steps", [5, 10, 20])
def test_one_segment_keeps_z0_and_a_copy_of_the_buffers_whatever_the_steps(steps: int) -> None:
    block = plain(steps, Checkpoint(1))
    assert kept(block, images(4)) == sorted(copies_of_buffers(block))


@pytest.mark.parametrize("steps", [5, 10, 20])
@pytest.mark.parametrize("segments", [2, 5])
def test_each_segment_keeps_one_state_with_its_buffers(segments: int, steps: int) -> None:
    block, z0 = plain(steps, Checkpoint(segments)), images(4)
    states = [z0.nbytes] * (segments - 1)
    assert kept(block, z0) == sorted(states + segments * copies_of_buffers(block))


@pytest.mark.parametrize("steps", [5, 10, 20])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_binomial_keeps_one_state_a_slot_with_its_buffers_besides_z0(
    slots: int, steps: int
) -> None:
    block, z0 = plain(steps, Binomial(slots)), images(4)
    states = [z0.nbytes] * slots
    assert kept(block, z0) == sorted(states + (slots + 1) * copies_of_buffers(block))


@pytest.mark.parametrize("strategy", [Direct(), Binomial(20)], ids=str)
def test_keeping_the_graph_keeps_as_much_for_every_step_and_more_than_its_state(
    strategy: GradientStrategy,
) -> None:
    z0 = images(4)
    five, ten, twenty = (sum(kept(plain(steps, strategy), z0)) for steps in (5, 10, 20))
    assert twenty - ten == 2 * (ten - five)
    assert ten - five > 5 * z0.nbytes


@pytest.mark.parametrize(
    ("strategy", "states"),
    [
        *[(Checkpoint(1), 0), (Checkpoint(2), 1), (Checkpoint(5), 4)],
        *[(Binomial(1), 1), (Binomial(2), 2), (Binomial(4), 4)],
    ],
    ids=str,
)
def test_a_block_with_moving_weights_keeps_so_many_states_besides_z0(
    strategy: GradientStrategy, states: int
) -> None:
    z0 = images()
    large = [size for size in kept(coupled(gradient=strategy), z0) if size >= z0.nbytes]
    assert large == [z0.nbytes] * states


@pytest.mark.parametrize("needs_gradient", [True, False])
def test_the_state_before_each_segment_is_alive_after_the_forward_pass_and_no_other(
    needs_gradient: bool,
) -> None:
    """Whatever requires a gradient: a graph that is kept holds tickets alone."""
    block, z0 = plain(10, Checkpoint(3)), images(4).requires_grad_(needs_gradient)
    assert kept(block, z0).count(z0.nbytes) == 2


def test_one_segment_a_step_holds_the_tape_of_one_step_while_differentiating() -> None:
    five, ten, twenty = (tape(steps, Checkpoint(steps)) for steps in (5, 10, 20))
    assert five == ten == twenty > 0


@pytest.mark.parametrize(("slots", "steps"), [(1, 40), (2, 40), (4, 80)])
def test_binomial_holds_as_much_while_differentiating_more_than_twenty_steps(
    slots: int, steps: int
) -> None:
    assert tape(steps, Binomial(slots)) == tape(20, Binomial(slots)) > 0


def test_binomial_holds_the_tape_of_one_step_at_a_time() -> None:
    """It is that of one segment a step, and a working state on the way there."""
    z0 = images(4)
    buffers = sum(copies_of_buffers(plain(1, Direct())))
    assert tape(20, Binomial(2)) <= tape(20, Checkpoint(20)) + z0.nbytes + buffers


@every_strategy
def test_without_gradients_nothing_is_kept(strategy: GradientStrategy) -> None:
    with torch.no_grad():
        assert kept(plain(5, strategy), images(4)) == []


@every_strategy
def test_after_a_backward_pass_nothing_is_alive_but_the_loss_and_the_gradients(
    strategy: GradientStrategy,
) -> None:
    block, z0 = coupled(resnet_field(channels=4), gradient=strategy), images(4).requires_grad_()
    with Ledger(z0, *block.parameters(), *block.buffers()) as ledger:
        loss = block(z0).sum()
        loss.backward()
    gradients = {tensor.grad.untyped_storage() for tensor in (z0, *block.parameters())}
    assert set(ledger.made) - gradients == {loss.untyped_storage()}
