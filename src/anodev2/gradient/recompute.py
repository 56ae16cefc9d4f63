"""Exact gradients with few states kept: the steps between them are run again.

One autograd function executes a schedule for a whole block, so that every gradient leaves
through one node. What a step depends on besides its weights is kept with each stored state
and put back before the steps run again: random number generators and written buffers. Grad
mode aside, the second run is the first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from anodev2.gradient.direct import Direct
from anodev2.gradient.program import GradientStrategy, Program, State
from anodev2.gradient.schedule import Advance, Reverse, Schedule, Store, segment_schedule
from anodev2.usage import UsageError

NEEDS_DIRECT = (
    "a recomputing gradient strategy supports neither second derivatives nor torch.func "
    "transforms: build the block with gradient=Direct()"
)


@dataclass(frozen=True)
class Checkpoint(GradientStrategy):
    """Keep z at the start of each segment, recompute a segment at a time.

    Memory: `segments` states, and while differentiating the tape of one segment. Cost: each
    step is evaluated once more. One segment a block is ANODE; its gradients are `Direct`'s.

    Args:
        segments: how many runs of steps a block is cut into; never more than its steps.

    Raises:
        ValueError: `segments` below one.
        RuntimeError: when differentiated twice, or transformed by `torch.func`.

    Source: section "Methodology", and ANODE (Gholami et al. 2019).
    """

    segments: int = 1

    def __post_init__(self) -> None:
        if self.segments < 1:
            raise UsageError(f"segments must be at least 1, got {self.segments}")

    def solve(self, program: Program, z0: Tensor) -> Tensor:
        return _solve(program, z0, segment_schedule(program.steps, self.segments))


def _solve(program: Program, z0: Tensor, schedule: Schedule) -> Tensor:
    """Run a program so that it is differentiated by a schedule."""
    tensors = program.tensors.values()
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in (z0, *tensors)):
        return Direct().solve(program, z0)
    execution = _Execution(schedule, program.step, program.buffers, tuple(program.tensors))
    return _Recompute.apply(execution, z0, *tensors)  # type: ignore[no-any-return,no-untyped-call]


@dataclass
class _Surroundings:
    """What steps depend on besides z and weights, as it was when a state was stored."""

    cpu_rng: Tensor
    device_ids: list[int]
    device_rng: list[Tensor]
    buffers: State

    @classmethod
    def capture(cls, z: Tensor, buffers: State) -> "_Surroundings":
        """Copies, because steps may write buffers, and batch norm does so in silence."""
        copies = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        return cls(torch.get_rng_state(), *get_device_states(z), copies)

    @contextmanager
    def restored(self, z: Tensor) -> Iterator[None]:
        """The random number generators as they were; on exit as they are now."""
        kind = z.device.type if self.device_ids else "cuda"
        with torch.random.fork_rng(self.device_ids, device_type=kind):
            torch.set_rng_state(self.cpu_rng)
            set_device_states(self.device_ids, self.device_rng, device_type=kind)
            yield


@dataclass
class _Execution:
    """One run of a schedule: the actions, and what the forward sweep stored.

    It holds the names of the program's tensors; the tensors themselves, like the stored
    states once the forward sweep is over, are in the care of autograd.
    """

    schedule: Schedule
    step: Callable[[int, Tensor, State], Tensor]
    buffers: Callable[[int, int], State]
    names: tuple[str, ...]
    stored: dict[int, Tensor] = field(default_factory=dict)
    surroundings: dict[int, _Surroundings] = field(default_factory=dict)

    def sweep_forward(self, z: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        state = dict(zip(self.names, tensors, strict=True))
        for action in self.schedule.forward:
            if isinstance(action, Store):
                start, stop = action
                self.stored[start] = z
                self.surroundings[start] = _Surroundings.capture(z, self.buffers(start, stop))
            else:
                z = self._run(action, z, state)
        return z

    def reverse(
        self, action: Reverse, z: Tensor, tensors: Sequence[Tensor], grad: Tensor
    ) -> list[Tensor | None]:
        """Gradients of the state before these steps and of each tensor, given that after."""
        then = self.surroundings[action.start]
        z = z.detach().requires_grad_(z.requires_grad or action.start > 0)
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
        state = dict(zip(self.names, leaves, strict=True))
        state |= {name: buffer.clone() for name, buffer in then.buffers.items()}
        with torch.enable_grad(), then.restored(z):
            out = self._run(action, z, state)
        wanted = [x for x in (z, *leaves) if x.requires_grad]
        if not out.requires_grad:
            return [None] * (1 + len(leaves))
        found = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
        return [next(found) if x.requires_grad else None for x in (z, *leaves)]

    def _run(self, steps: Advance | Reverse, z: Tensor, state: State) -> Tensor:
        for i in range(steps.start, steps.stop):
            z = self.step(i, z, state)
        return z


class _Recompute(torch.autograd.Function):
    """Executes a schedule; the node that all gradients of a block leave through."""

    @staticmethod
    def forward(execution: _Execution, z0: Tensor, *tensors: Tensor) -> Tensor:
        return execution.sweep_forward(z0, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        execution, _, *tensors = inputs
        ctx.execution = execution
        ctx.save_for_backward(*execution.stored.values(), *tensors)
        ctx.points = list(execution.stored)
        execution.stored = {}

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(NEEDS_DIRECT)
        saved = ctx.saved_tensors
        count = len(ctx.points)
        stored = dict(zip(ctx.points, saved[:count], strict=True))
        total: list[Tensor | None] = [None] * (len(saved) - count)
        for action in ctx.execution.schedule.backward:
            grad, *parts = ctx.execution.reverse(action, stored[action.start], saved[count:], grad)
            total = [_sum(a, b) for a, b in zip(total, parts, strict=True)]
        return (None, grad if ctx.needs_input_grad[1] else None, *total)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise RuntimeError(NEEDS_DIRECT)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(NEEDS_DIRECT)


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if total is None else total if part is None else total + part
