"""Exact gradients with few states kept: the steps between them are run again.

One autograd function executes a schedule for a whole block, so that every gradient leaves
through one node. What a step depends on besides its weights is kept with each stored state
and put back before the steps run again: random number generators and written buffers. Grad
mode aside, the second run is the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anodev2.gradient.direct import Direct
from anodev2.gradient.kept import Kept
from anodev2.gradient.program import GradientStrategy, Program, State
from anodev2.gradient.schedule import Advance, Reverse, Schedule, Store, segment_schedule
from anodev2.usage import check_count

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
        TypeError: `segments` that is no integer.
        RuntimeError: when differentiated twice, under `torch.func.grad` or under `vmap`.

    Source: section "Methodology", and ANODE (Gholami et al. 2019).
    """

    segments: int = 1

    def __post_init__(self) -> None:
        check_count("segments", self.segments)

    def solve(self, program: Program, z0: Tensor) -> Tensor:
        return _solve(program, z0, segment_schedule(program.steps, self.segments))


def _solve(program: Program, z0: Tensor, schedule: Schedule) -> Tensor:
    """Run a program so that it is differentiated by a schedule."""
    tensors = list({id(t): t for t in program.tensors.values()}.values())
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in (z0, *tensors)):
        return Direct().solve(program, z0)
    places = {id(t): place for place, t in enumerate(tensors)}
    names = {name: places[id(t)] for name, t in program.tensors.items()}
    execution = _Execution(schedule, program.step, program.buffers, names)
    return _Recompute.apply(execution, z0, *tensors)  # type: ignore[no-any-return,no-untyped-call]


@dataclass
class _Execution:
    """One run of a schedule: the actions, and outlines of what the forward sweep kept.

    The tensors themselves, those of the program and those kept, are in autograd's care;
    `names` says which of the program's is whose, as steps may share one.
    """

    schedule: Schedule
    step: Callable[[int, Tensor, State], Tensor]
    buffers: Callable[[int, int], State]
    names: dict[str, int]
    kept: dict[int, Kept] = field(default_factory=dict)

    def sweep_forward(self, z: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        state = {name: tensors[place] for name, place in self.names.items()}
        for action in self.schedule.forward:
            if isinstance(action, Store):
                self.kept[action.start] = Kept.capture(z, self.buffers(*action))
            else:
                z = self._run(action, z, state)
        return z

    def reverse(
        self, action: Reverse, kept: Kept, tensors: Sequence[Tensor], grad: Tensor | None
    ) -> list[Tensor | None]:
        """Gradients of the state before these steps and of each tensor, given that after."""
        z = kept.z.detach().requires_grad_(kept.z.requires_grad or action.start > 0)
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
        state = {name: leaves[place] for name, place in self.names.items()} | kept.buffers()
        with torch.enable_grad(), kept.generators():
            out = self._run(action, z, state)
        if not out.requires_grad:
            return [None] * (1 + len(leaves))
        wanted = [x for x in (z, *leaves) if x.requires_grad]
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
        kept = execution.kept
        ctx.save_for_backward(*tensors, *(t for k in kept.values() for t in k.tensors))
        execution.kept = {start: k.outline() for start, k in kept.items()}
        ctx.execution = execution

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(NEEDS_DIRECT)
        execution: _Execution = ctx.execution
        count = len(ctx.needs_input_grad) - 2
        tensors, rest = ctx.saved_tensors[:count], iter(ctx.saved_tensors[count:])
        kept = {start: outline.filled(rest) for start, outline in execution.kept.items()}
        upstream: Tensor | None = grad
        total: list[Tensor | None] = [None] * count
        for action in execution.schedule.backward:
            upstream, *parts = execution.reverse(action, kept[action.start], tensors, upstream)
            total = [_sum(a, b) for a, b in zip(total, parts, strict=True)]
        return (None, upstream if ctx.needs_input_grad[1] else None, *total)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise RuntimeError(NEEDS_DIRECT)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(NEEDS_DIRECT)


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if total is None else total if part is None else total + part
