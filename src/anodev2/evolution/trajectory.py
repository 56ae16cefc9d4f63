"""theta at the times that the activations read it: the evolution ODE run over its grid.

Weights of one shape whose evolutions differ in parameters and buffers alone run in one
batched call.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import compress

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from anodev2.evolution.operator import Evolution, Step
from anodev2.memory import MemoryKernel
from anodev2.precision import full_precision, widened
from anodev2.usage import UsageError

PLAIN = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has; what is not among them is a setting."""
EXACT = (bool, int, float, complex, str, bytes, torch.device)
"""Types of settings that are alike where they print alike."""


@dataclass(frozen=True)
class Path:
    """One weight over the grid, in float32 at least.

    Attributes:
        w: w(0), w(dt), ... up to the last point that is read.
        theta: theta at each of the points, in the weight's dtype.
        dt: spacing of the grid.
    """

    w: list[Tensor]
    theta: list[Tensor]
    dt: float


class Trajectory:
    """theta(t) = int_0^t K(t - s) w(s) ds with dw/dt = q(w; p), at points of the w-grid.

    Args:
        evolutions: one operator for each weight, by name. What they are set to, parameters and
            buffers aside, is read here, once.
        memory: the kernel K that turns w into theta.
        w_steps: steps M of the uniform grid on [0, 1].
        points: the grid points to return, ascending; nothing beyond the last is computed.
    """

    def __init__(
        self,
        evolutions: Mapping[str, Evolution],
        memory: MemoryKernel,
        *,
        w_steps: int,
        points: Sequence[int],
    ) -> None:
        self.parts = (*evolutions.values(), memory)
        self.memory = memory
        self.w_steps = w_steps
        self.points = tuple(points)
        self.solutions = {
            name: _Solution(evolution, w_steps=w_steps, steps=self.points[-1])
            for name, evolution in evolutions.items()
        }
        self.kinds = {name: _kind(evolution) or name for name, evolution in evolutions.items()}

    def consists_of(self, *parts: nn.Module) -> bool:
        """Whether these are its operators and memory kernel, in order."""
        pairs = zip(self.parts, parts, strict=True)
        return all(mine is given for mine, given in pairs)

    def solve(self, weights: Mapping[str, Tensor]) -> dict[str, Path]:
        """Solve dw/dt = q(w; p) and apply the memory kernel.

        Args:
            weights: w0 by name. They are read, never written.

        Returns:
            For each weight its path. Half-precision weights evolve in float32 and are cast
            back. Parameters that none of the points depends on are in the graph all the same,
            with gradient zero.
        """
        groups: defaultdict[object, list[str]] = defaultdict(list)
        for name, w0 in weights.items():
            groups[(self.kinds[name], w0.shape, w0.dtype, w0.device)].append(name)
        paths: dict[str, Path] = {}
        for names in groups.values():
            wide = [widened(weights[name]) for name in names]
            with full_precision(wide[0].device):
                solved = self._solve_together([self.solutions[name] for name in names], wide)
            for name, (w, theta) in zip(names, solved, strict=True):
                reads = [read.to(weights[name].dtype) for read in theta]
                paths[name] = Path(w, reads, 1 / self.w_steps)
        return {name: paths[name] for name in weights}

    def _solve_together(
        self, solutions: Sequence["_Solution"], w0: Sequence[Tensor]
    ) -> list[tuple[list[Tensor], list[Tensor]]]:
        """w and theta of weights whose solutions differ in their state alone."""
        if len(solutions) == 1 or self.points[-1] == 0:
            paths = [solution(w) for solution, w in zip(solutions, w0, strict=True)]
            return [
                (w, _kept_in_graph(self._read(w), solution, self.memory))
                for w, solution in zip(paths, solutions, strict=True)
            ]
        together = _run_together(solutions, torch.stack(list(w0)))
        each = [
            zip(*(x.unbind() for x in xs), strict=True) for xs in (together, self._read(together))
        ]
        return [(list(w), list(theta)) for w, theta in zip(*each, strict=True)]

    def _read(self, w: Sequence[Tensor]) -> list[Tensor]:
        """theta at the points, from w at all times."""
        return [self.memory(w[: point + 1], 1 / self.w_steps) for point in self.points]


def _kind(evolution: Evolution) -> tuple[Hashable, ...]:
    """Equal for evolutions that differ in parameters and buffers alone; empty without p."""
    if not any(True for _ in evolution.parameters()):
        return ()
    return tuple(
        (path, id(type(module)), key, _setting(value))
        for path, module in evolution.named_modules()
        for key, value in vars(module).items()
        if key not in PLAIN
    )


def _setting(value: object) -> Hashable:
    """Equal for settings that are surely equal: plain ones by value, others the same object."""
    kind = id(type(value))  # a number, as not every type can be pickled with a block
    if isinstance(value, tuple | list):
        return (kind, *map(_setting, value))
    if is_dataclass(value) and not isinstance(value, type):
        return (kind, *(_setting(getattr(value, field.name)) for field in fields(value)))
    # What repr tells apart is told exactly: 0.0 from -0.0, 1 from True.
    return kind, repr(value) if isinstance(value, EXACT) else id(value)


class _Solution(nn.Module):
    """w over the grid, as a module so that p can be swapped for a batch of them."""

    def __init__(self, evolution: Evolution, *, w_steps: int, steps: int) -> None:
        super().__init__()
        self.evolution = evolution
        self.w_steps = w_steps
        self.steps = steps

    def forward(self, w0: Tensor) -> list[Tensor]:
        """w(0), w(dt), ... after so many steps."""
        return self.run(w0, self.evolution.stepper(1 / self.w_steps)) if self.steps else [w0]

    def run(self, w0: Tensor, step: Step) -> list[Tensor]:
        w = [w0]
        for m in range(self.steps):
            w.append(self._checked(step, w[m], m / self.w_steps))
        return w

    def _checked(self, step: Step, w: Tensor, t: float) -> Tensor:
        """w(t + dt), or an error where the operator's own mistake would go on unseen."""
        version = None if torch.compiler.is_compiling() or w.is_inference() else w._version
        end = step(w, t)
        if end.shape != w.shape:
            raise UsageError(
                f"{type(self.evolution).__name__} maps {tuple(w.shape)} to {tuple(end.shape)}: "
                "w(t + dt) must have the shape of w"
            )
        if version is not None and w._version != version:
            raise RuntimeError(f"{type(self.evolution).__name__} changes w in place: return anew")
        return end


def _run_together(solutions: Sequence[_Solution], w0: Tensor) -> list[Tensor]:
    """w over the grid for stacked weights."""
    first = solutions[0]
    evolutions = [solution.evolution for solution in solutions]
    step = first.evolution.stacked(evolutions, 1 / first.w_steps)
    if step is not None:
        return first.run(w0, step)
    states = [dict((*e.named_parameters(), *e.named_buffers())) for e in evolutions]
    batch = {f"evolution.{k}": torch.stack([state[k] for state in states]) for k in states[0]}

    if torch.compiler.is_compiling():  # a traced tensor does not count changes
        return list(vmap(partial(_run, first), randomness="different")(batch, w0))
    versions = [tensor._version for tensor in batch.values()]
    anew: set[str] = set()
    run = partial(_run_noting, first, anew)
    together = list(vmap(run, randomness="different")(batch, w0))
    changed = (t._version != version for t, version in zip(batch.values(), versions, strict=True))
    written = anew | set(compress(batch, changed))
    if written:
        raise RuntimeError(
            f"{type(first.evolution).__name__} changes {min(written).removeprefix('evolution.')!r} "
            "as it runs, which is lost for weights of one shape, since these run together: keep no "
            "state but w"
        )
    return together


def _run(solution: _Solution, state: dict[str, Tensor], w0: Tensor) -> list[Tensor]:
    """w over the grid with the state put in."""
    return functional_call(solution, state, (w0,))  # type: ignore[no-any-return]


def _run_noting(
    solution: _Solution, anew: set[str], state: dict[str, Tensor], w0: Tensor
) -> list[Tensor]:
    """The same, with the names of what was assigned anew."""
    before = dict(state)
    path = _run(solution, state, w0)
    anew.update(name for name, tensor in state.items() if tensor is not before[name])
    return path


def _kept_in_graph(theta: Sequence[Tensor], *parts: nn.Module) -> list[Tensor]:
    """theta to the bit, with zero gradients for parameters that no read depends on."""
    unread = [p.sum() for part in parts for p in part.parameters() if p.requires_grad]
    if any(part.steps for part in parts if isinstance(part, _Solution)) or not unread:
        return list(theta)
    never = torch.zeros((), dtype=torch.bool, device=theta[0].device)
    none = torch.stack([x.to(theta[0].dtype) for x in unread]).sum()
    return [torch.where(never, none.to(read.dtype), read) for read in theta]
