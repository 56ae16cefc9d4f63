"""theta at the times that the activations read it: the evolution ODE run over its grid.

Weights of one shape whose evolutions differ in parameters and buffers alone run in one
batched call.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from anodev2.evolution.operator import Evolution
from anodev2.memory import MemoryKernel
from anodev2.precision import full_precision

PLAIN = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has; what is not among them is a setting."""


def evolve(
    weights: Mapping[str, Tensor],
    evolutions: Mapping[str, Evolution],
    memory: MemoryKernel,
    *,
    w_steps: int,
    points: Sequence[int],
) -> dict[str, list[Tensor]]:
    """Solve dw/dt = q(w; p) and apply the memory kernel.

    Args:
        weights: w0 by name. They are read, never written.
        evolutions: one operator for each weight, under the same name.
        memory: the kernel K that turns w into theta.
        w_steps: steps M of the uniform grid on [0, 1].
        points: the grid points to return, ascending; nothing beyond the last is computed.

    Returns:
        For each weight theta at each of the points. Half-precision weights evolve in float32
        and are cast back. Parameters that none of the points depends on are in the graph all
        the same, with gradient zero.
    """
    groups: defaultdict[object, list[str]] = defaultdict(list)
    for name, w0 in weights.items():
        evolution = evolutions[name]
        groups[(w0.shape, w0.dtype, w0.device, _kind(evolution) or name)].append(name)
    theta: dict[str, list[Tensor]] = {}
    for names in groups.values():
        members = [evolutions[name] for name in names]
        wide = [_widened(weights[name]) for name in names]
        with full_precision(wide[0].device):
            solved = _solve_together(members, wide, memory, w_steps, points)
        for name, evolution, reads in zip(names, members, solved, strict=True):
            if points[-1] == 0:
                reads = [_keep_in_graph(r, [evolution, memory]) for r in reads]
            theta[name] = [r.to(weights[name].dtype) for r in reads]
    return {name: theta[name] for name in weights}


def _kind(evolution: Evolution) -> str:
    """Equal for evolutions that differ in parameters and buffers alone; empty without p."""
    if not any(True for _ in evolution.parameters()):
        return ""
    settings = [
        (path, type(module), key, id(value) if isinstance(value, Tensor) else value)
        for path, module in evolution.named_modules()
        for key, value in vars(module).items()
        if key not in PLAIN
    ]
    return repr(settings)


def _widened(w: Tensor) -> Tensor:
    return w.to(torch.promote_types(w.dtype, torch.float32))


class _Solution(nn.Module):
    """The reads of one weight, as a module so that p can be swapped for a batch of them."""

    def __init__(self, evolution: Evolution, memory: MemoryKernel) -> None:
        super().__init__()
        self.evolution = evolution
        self.memory = memory

    def forward(self, w0: Tensor, w_steps: int, points: Sequence[int]) -> list[Tensor]:
        dt = 1 / w_steps
        w = [w0]
        if points[-1] > 0:
            step = self.evolution.stepper(dt)
            for m in range(points[-1]):
                w.append(step(w[m], m * dt))
        return [self.memory(w[: point + 1], dt) for point in points]


def _solve_together(
    evolutions: Sequence[Evolution],
    w0: Sequence[Tensor],
    memory: MemoryKernel,
    w_steps: int,
    points: Sequence[int],
) -> list[list[Tensor]]:
    """The reads of weights whose evolutions differ in their state alone."""
    solution = _Solution(evolutions[0], memory)
    if len(evolutions) == 1:
        return [solution(w0[0], w_steps, points)]
    states = [dict((*e.named_parameters(), *e.named_buffers())) for e in evolutions]
    batch = {f"evolution.{k}": torch.stack([state[k] for state in states]) for k in states[0]}

    def one(state: dict[str, Tensor], w: Tensor) -> list[Tensor]:
        return functional_call(solution, state, (w, w_steps, points))  # type: ignore[no-any-return]

    batched = vmap(one, randomness="different")(batch, torch.stack(list(w0)))
    return [list(reads) for reads in zip(*(r.unbind() for r in batched), strict=True)]


def _keep_in_graph(theta: Tensor, modules: Sequence[nn.Module]) -> Tensor:
    """theta to the bit, with zero gradients for the modules' parameters."""
    unread = [p.sum() for m in modules for p in m.parameters() if p.requires_grad]
    if not unread:
        return theta
    never = torch.zeros((), dtype=torch.bool, device=theta.device)
    return torch.where(never, torch.stack(unread).sum().to(theta.dtype), theta)
