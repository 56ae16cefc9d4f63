"""The continuous adjoint of Neural ODEs, as the baseline that exact gradients beat.

Going back it solves z backward in time instead of keeping it, beside the adjoint ODE

    da/dt = -(df/dz)^T a,    dg/dt = -(df/dtheta)^T a,    a(1) = dJ/dz(1),

discretized on its own: at the few steps that networks use its result is no gradient of what
the forward pass computed.
"""

from dataclasses import dataclass
from functools import reduce
from math import ceil, floor
from typing import Any

import torch
from torch import Tensor

from anodev2.gradient.program import GradientStrategy, Motion, Program, State
from anodev2.gradient.recompute import NEEDS_DIRECT, refuse_transforms
from anodev2.precision import Precision
from anodev2.solver import RK4, Activations, Euler, Midpoint, Solver
from anodev2.usage import UsageError, check_choice

SAME: dict[type[Solver], str] = {Euler: "euler", Midpoint: "midpoint", RK4: "rk4"}
"""torchdiffeq's names for the solvers here; its rk4 is the 3/8 rule."""


@dataclass(frozen=True)
class ContinuousAdjoint(GradientStrategy):
    """torchdiffeq's `odeint_adjoint`: optimize, then discretize.

    Memory: one state. Cost: every step is evaluated once more. Gradients are wrong by first
    order in the step, and batch norms update their statistics a second time, from the states
    that are solved backward. It is here to compare with; `Binomial` is exact at bounded memory.

    Where all evolutions have a rate, theta is w and read at its own time, the state is (z, w) and
    torchdiffeq solves both, on the z-grid. Otherwise theta is the discrete trajectory, constant on
    each step, and the adjoint is in z alone. Norms and theta are those of step floor(t N) going
    forward and ceil(t N) - 1 going back.

    Args:
        method: any of torchdiffeq's solvers by name; None takes the block's own.
        rtol, atol: relative and absolute tolerance of solvers that choose their steps.

    Raises:
        ValueError: an unknown method, or a tolerance that is not positive.
        ImportError: torchdiffeq is not installed.
        RuntimeError: when differentiated twice, or under a transform of `torch.func`.

    Source: Chen et al. 2018, through the paper's ablation study.
    """

    method: str | None = None
    rtol: float = 1e-3
    atol: float = 1e-3

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value > 0:
                raise UsageError(f"{name} must be positive, got {value!r}")
        if self.method is not None:
            check_choice("torchdiffeq solver", self.method, solver_names())

    def solve(self, program: Program, z0: Activations) -> Activations:
        solvers = _torchdiffeq_solvers()
        from torchdiffeq import odeint_adjoint

        motion = program.motion()
        refuse_transforms((*z0, *program.tensors.values()))
        method = self.method or SAME.get(type(program.solver))
        if method is None:
            raise UsageError(
                f"torchdiffeq has no {program.solver}: name one of its solvers, as in "
                "ContinuousAdjoint('euler')"
            )
        rate = _Rate(program, motion, z0, fixed=_has_fixed_steps(solvers[method]))
        start = (*(x.to(rate.wide) for x in z0), *(motion.w0.values() if motion else ()))
        end: Any = odeint_adjoint(
            rate,
            start if len(start) > 1 else start[0],
            torch.tensor([0.0, 1.0], dtype=rate.wide, device=z0[0].device),
            method=method,
            rtol=self.rtol,
            atol=self.atol,
            options={"grid_constructor": rate.grid} if rate.fixed else None,
            adjoint_params=rate.parameters(),
        )
        ends = end if len(start) > 1 else (end,)
        for solution in ends:
            if solution.requires_grad:
                solution.register_hook(_refuse_second_derivatives)
        return tuple(x[-1].to(dtype) for x, dtype in zip(ends, rate.narrow, strict=False))


def solver_names() -> list[str]:
    """Names of torchdiffeq's solvers; but for SciPy's, which has no gradient."""
    return [name for name in _torchdiffeq_solvers() if name != "scipy_solver"]


def _torchdiffeq_solvers() -> dict[str, type]:
    try:
        from torchdiffeq._impl.odeint import SOLVERS
    except ImportError as error:
        raise ImportError(
            "the continuous adjoint needs torchdiffeq: pip install 'anodev2[train]'"
        ) from error
    return dict(SOLVERS)


def _has_fixed_steps(solver: type) -> bool:
    from torchdiffeq._impl.solvers import FixedGridODESolver

    return issubclass(solver, FixedGridODESolver)


def _refuse_second_derivatives(gradient: Tensor) -> None:
    """torchdiffeq's sweep makes no graph, so what it returns must not be differentiated."""
    if torch.is_grad_enabled():
        raise RuntimeError(NEEDS_DIRECT)


class _Rate:
    """d(z, w)/dt as torchdiffeq calls it, with what belongs to the step that it is at.

    The state that torchdiffeq solves is at least float32; the field sees the block's dtype.
    """

    def __init__(
        self, program: Program, motion: Motion | None, z0: Activations, *, fixed: bool
    ) -> None:
        self.program = program
        self.motion = motion
        self.fixed = fixed
        dtypes = [x.dtype for x in z0]
        self.wide = reduce(torch.promote_types, dtypes, torch.float32)
        autocast = Precision.capture(z0[0].device).enabled
        self.narrow = [self.wide] * len(z0) if autocast else dtypes
        self.step = 0

    def parameters(self) -> tuple[Tensor, ...]:
        """All tensors besides the state that the rate reads, once each."""
        tensors = [*self.program.tensors.values()]
        tensors += self.motion.tensors.values() if self.motion else ()
        return tuple({id(t): t for t in tensors}.values())

    def grid(self, rate: object, y: Tensor, t: Tensor) -> Tensor:
        """The z-grid from t[0] to t[-1], as torchdiffeq calls it.

        Its own, by a `step_size`, has a step too many where 1 / step_size is rounded up.
        """
        n = self.program.steps
        h = (t[-1] - t[0]) * (1 / n)
        times = torch.arange(n + 1, dtype=t.dtype, device=t.device) * h + t[0]
        times[-1] = t[-1]
        return times

    def __call__(self, t: Tensor, y: Any) -> Any:
        going_back = torch.is_grad_enabled()
        if not self.fixed:
            self.step = self._step_back(t) if going_back else self._step_forward(t)
        if going_back:
            with self.program.evaluations.in_backward():
                return self._evaluate(t, y)
        return self._evaluate(t, y)

    def _evaluate(self, t: Tensor, y: Any) -> Any:
        state = (y,) if isinstance(y, Tensor) else y
        parts = len(self.narrow)
        z = tuple(x.to(dtype) for x, dtype in zip(state[:parts], self.narrow, strict=True))
        w: State = {}
        if self.motion:
            own = zip(self.motion.w0.items(), state[parts:], strict=True)
            w = {name: value.to(w0.dtype) for (name, w0), value in own}
        tensors = dict(self.program.tensors)
        if self.motion:
            tensors |= {self.motion.keys(self.step, name): value for name, value in w.items()}
        rates = [r.to(self.wide) for r in self.program.rate(self.step, 0, z, tensors)]
        if self.motion:
            rates += [r.to(self.wide) for r in self.motion.velocity(w, t.item()).values()]
        return rates[0] if isinstance(y, Tensor) else tuple(rates)

    def callback_step(self, t: Tensor, y: Any, dt: Any) -> None:
        """Called by torchdiffeq at the start of each step of the forward solve."""
        self.step = self._step_forward(t)

    def callback_step_adjoint(self, t: Tensor, y: Any, dt: Any) -> None:
        """Called by torchdiffeq at the start of each step of the adjoint's sweep."""
        self.step = self._step_back(t)

    def _step_forward(self, t: Tensor) -> int:
        return min(floor(round(t.detach().item() * self.program.steps, 3)), self.program.steps - 1)

    def _step_back(self, t: Tensor) -> int:
        return max(ceil(round(t.detach().item() * self.program.steps, 3)) - 1, 0)
