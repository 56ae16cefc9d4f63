"""Exact gradients with few states kept: the steps between them are run again.

The forward pass makes the same graph as `Direct`, but what its nodes would save of a step is
dropped, and each node holds a number instead. When the backward pass asks for the first of a
step's tensors, a replay carries out its schedule up to that step, runs it once more and hands
out what it saves, until it has all of it: the rest of that step need not run. So gradients are
summed in the order of `Direct`, and equal its to the bit.

What a step depends on besides its weights is kept with each state and put back before the
steps run again: random number generators and written buffers.
"""

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.graph import saved_tensors_hooks
from torch.random import fork_rng

from anodev2.gradient.direct import Direct
from anodev2.gradient.kept import Kept
from anodev2.gradient.program import GradientStrategy, Program, State
from anodev2.gradient.schedule import (
    Action,
    Advance,
    Free,
    Load,
    Reverse,
    Schedule,
    Store,
    binomial_schedule,
    segment_schedule,
)
from anodev2.solver import Activations
from anodev2.usage import check_count

NEEDS_DIRECT = (
    "a recomputing gradient strategy supports neither second derivatives nor torch.func "
    "transforms: build the block with gradient=Direct()"
)
CHANGED = (
    "a tensor needed for gradient computation has been modified by an inplace operation between "
    "the forward and the backward pass of a block that recomputes its steps"
)
DIFFERS = (
    "step {step} of a block does not repeat its operations when it is recomputed: its field must "
    "depend on nothing but z, its tensors and torch's random numbers, or use gradient=Direct()"
)

Signature = tuple[torch.Size, torch.dtype]
"""Of a tensor that a step saves."""


class Recomputing(GradientStrategy):
    """A strategy that is a schedule."""

    @abstractmethod
    def schedule(self, steps: int) -> Schedule | None:
        """The schedule for so many steps; None keeps every step instead."""

    def solve(self, program: Program, z0: Activations) -> Activations:
        read = (*z0, *program.tensors.values())
        schedule = self.schedule(program.steps)
        refuse_transforms(read)
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in read)
        if schedule is None or not wanted:
            return Direct().solve(program, z0)
        return _Replay(program, schedule).sweep_forward(z0)


def refuse_transforms(read: Iterable[Tensor]) -> None:
    """Raise under a transform of `torch.func` or with tangents of forward-mode derivatives."""
    tangents = [unpack_dual(t).tangent for t in read]  # type: ignore[no-untyped-call]
    dual = any(tangent is not None for tangent in tangents)
    if dual or torch._C._are_functorch_transforms_active():
        raise RuntimeError(NEEDS_DIRECT)


@dataclass(frozen=True)
class Checkpoint(Recomputing):
    """Keep z at the start of each segment, recompute a segment at a time.

    Memory: `segments` states, and while differentiating the tape of one segment. Cost: each
    step is evaluated once more. One segment a block is ANODE; its gradients are `Direct`'s. Plain
    attributes of the field must stay as they are until the backward pass, which reads them again.

    Args:
        segments: how many runs of steps a block is cut into; never more than its steps.

    Raises:
        ValueError: `segments` below one.
        TypeError: `segments` that is no integer.
        RuntimeError: when differentiated twice, or under a transform of `torch.func`.

    Source: section "Methodology", and ANODE (Gholami et al. 2019).
    """

    segments: int = 1

    def __post_init__(self) -> None:
        check_count("segments", self.segments)

    def schedule(self, steps: int) -> Schedule:
        return segment_schedule(steps, self.segments)


@dataclass(frozen=True)
class Binomial(Recomputing):
    """Keep `slots` states besides z0 and recompute as few steps as that allows.

    Memory: `slots` states, and while differentiating the tape of one step, however many steps
    there are. Cost: with s = `slots` + 1 states, C(s + r, s) steps are run again at most r times
    each, 55 evaluations for 40 steps and four slots; each step is then evaluated once more for
    its tape. With as many slots as steps everything is kept and nothing evaluated again. A
    second backward pass through a retained graph first runs all steps again. Plain attributes of
    the field must stay as they are, as with `Checkpoint`.

    Args:
        slots: states kept besides z0, which the graph holds anyway.

    Raises:
        ValueError: `slots` below one.
        TypeError: `slots` that is no integer.
        RuntimeError: when differentiated twice, or under a transform of `torch.func`.

    Source: Griewank and Walther, "Algorithm 799: revolve", 2000.
    """

    slots: int

    def __post_init__(self) -> None:
        check_count("slots", self.slots)

    def schedule(self, steps: int) -> Schedule | None:
        return None if self.slots >= steps else binomial_schedule(steps, self.slots)


class _Ticket(NamedTuple):
    """What a node of the graph holds instead of the tensor that it saved."""

    step: int
    number: int


class _TapeIsComplete(BaseException):
    """Raised in a step that has saved all that its backward pass needs; no error to catch."""


class _Replay:
    """One forward pass by a schedule, and what it takes to differentiate it."""

    def __init__(self, program: Program, schedule: Schedule) -> None:
        self.program = program
        self.schedule = schedule
        self.saved: list[list[Signature]] = [[] for _ in range(program.steps)]
        self.kept: dict[int, Kept] = {}
        self.versions: list[int] = []
        self.pending = iter(schedule.backward)
        self.at = 0
        self.expected = 0
        self.tape: dict[_Ticket, Tensor] = {}
        self.count: Counter[int] = Counter()
        self.taped: tuple[Reverse, Kept] | None = None

    def sweep_forward(self, z: Activations) -> Activations:
        """Run the steps, and let the graph hold tickets instead of what it would save."""
        read = (*z, *self.program.tensors.values())
        for action in self.schedule.forward:
            if isinstance(action, Store):
                self.kept[action.start] = Kept.capture(z, self.program.buffers(*action))
                continue
            with saved_tensors_hooks(_untraced(self._note), _untraced(self._fetch)):
                z = self._run(action, z, self.program.tensors)
        self.versions = [t._version for t in read]
        return z

    def _run(self, steps: Advance | Reverse, z: Activations, state: State) -> Activations:
        for i in range(*steps):
            self.at = i
            z = self.program.step(i, z, state)
        return z

    def _note(self, tensor: Tensor) -> _Ticket:
        saved = self.saved[self.at]
        saved.append(_signature(tensor))
        return _Ticket(self.at, len(saved) - 1)

    def _fetch(self, ticket: _Ticket) -> Tensor:
        """A saved tensor, for the one node that asks for it."""
        if torch.is_grad_enabled():
            raise RuntimeError(NEEDS_DIRECT)
        if ticket not in self.tape:
            start = self.kept[0]
            read = (*start.z, *self.program.tensors.values())
            if [t._version for t in read] != self.versions:
                raise RuntimeError(CHANGED)
            with (
                torch.enable_grad(),
                fork_rng(start.device_ids, device_type=start.device_type),
                self.program.evaluations.in_backward(),
            ):
                self._tape_step(ticket.step)
        return self.tape.pop(ticket)

    def _tape_step(self, i: int) -> None:
        """Replace the tape by that of step i and of those that are reversed with it."""
        self.tape.clear()
        if self.taped is None or i not in range(*self.taped[0]):
            self.taped = None
            self.taped = self._go_back(i) or self._go_back(i)
        assert self.taped is not None
        self.expected = sum(len(self.saved[k]) for k in range(*self.taped[0]))
        steps, origin = self.taped
        origin.restore_generators()
        state = self.program.tensors | origin.buffers()
        self.count.clear()
        try:
            with saved_tensors_hooks(_untraced(self._save), _never):
                self._run(steps, origin.z, state)
        except _TapeIsComplete:
            return
        raise RuntimeError(DIFFERS.format(step=self.at))

    def _save(self, tensor: Tensor) -> None:
        """Keep what a step saves, until the steps to reverse have saved all."""
        number = self.count[self.at]
        self.count[self.at] += 1
        saved = self.saved[self.at]
        if number >= len(saved) or saved[number] != _signature(tensor):
            raise RuntimeError(DIFFERS.format(step=self.at))
        self.tape[_Ticket(self.at, number)] = tensor.detach()
        if len(self.tape) == self.expected:
            raise _TapeIsComplete

    def _go_back(self, i: int) -> tuple[Reverse, Kept] | None:
        """Carry out the backward sweep up to where step i is reversed, and the state there.

        None if it is not ahead: the graph was retained for another backward pass, and the
        sweep begins anew, after the forward sweep if states that it left have been freed.
        """
        program = self.program
        pending, self.pending = self.pending, iter(())  # if a step fails, begin anew
        z: Activations = ()
        state: State = {}
        for action in pending:
            if isinstance(action, Load):
                kept = self.kept[action.start]
                kept.restore_generators()
                z, state = kept.z, program.tensors | kept.buffers()
            elif isinstance(action, Advance):
                with saved_tensors_hooks(_untraced(_forget), _never):
                    z = self._run(action, z, state)
            elif isinstance(action, Free):
                del self.kept[action.start]
            else:
                here = Kept.capture(z, {name: state[name] for name in program.buffers(*action)})
                if isinstance(action, Store):
                    self.kept[action.start] = here
                elif i in range(*action):
                    self.pending = pending
                    return action, here
        self.pending = iter(self._again())
        return None

    def _again(self) -> tuple[Action, ...]:
        """The actions of another backward pass."""
        forward, backward = self.schedule.forward, self.schedule.backward
        if all(action.start in self.kept for action in forward if isinstance(action, Store)):
            return backward
        return (Load(0), *forward[1:], *backward)


def _untraced(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook, not to be compiled along with a field during whose run it is called."""
    if "torch._dynamo" not in sys.modules:
        return hook
    return torch.compiler.disable(hook)  # type: ignore[no-any-return,no-untyped-call]


def _signature(tensor: Tensor) -> Signature:
    return tensor.shape, tensor.dtype


def _forget(tensor: Tensor) -> None:
    """Saves nothing, for steps that are not differentiated where they run."""


def _never(saved: object) -> Tensor:
    raise AssertionError("the graph of a replay is never differentiated")
