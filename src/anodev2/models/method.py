"""The five methods of the paper: what becomes of a residual block."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from torch import nn

from anodev2.block import CoupledODE
from anodev2.coupling import Coupling, configuration_1, configuration_2
from anodev2.evolution import Evolution, Frozen, ReactionDiffusionAdvection, compress
from anodev2.gradient import Checkpoint, ContinuousAdjoint, GradientStrategy
from anodev2.memory import Dirac, MemoryKernel
from anodev2.models.residual import Residual
from anodev2.regularization import Regularization
from anodev2.solver import RK4, Euler, Midpoint, Solver
from anodev2.usage import UsageError, check_choice


@dataclass(frozen=True)
class Moving:
    """How weights move in the methods that move them.

    Args:
        evolution: q, called with each weight's shape.
        memory: makes K, once a block.
        regularize: R.
        compression: how many times fewer numbers hold w0 than it has entries; 1 is all of it.
    """

    evolution: Callable[[Sequence[int]], Evolution] = ReactionDiffusionAdvection
    memory: Callable[[], MemoryKernel] = Dirac
    regularize: Regularization = field(default_factory=Regularization)
    compression: float = 1

    def __post_init__(self) -> None:
        if not 1 <= self.compression < inf:
            raise UsageError(f"compression must be at least 1, got {self.compression:g}")

    def block(self, f: nn.Module, coupling: Coupling, solver: Solver) -> CoupledODE:
        """A block of the field f under a coupling."""
        if self.compression != 1:
            compress(f, factor=self.compression)
        return CoupledODE(
            f,
            coupling=coupling,
            evolution=self.evolution,
            memory=self.memory(),
            solver=solver,
            regularize=self.regularize,
        )


@dataclass(frozen=True)
class Method:
    """A way to make a block of a field.

    Args:
        steps: z-steps it takes.
        block: makes the block.
        at_rest: where weights move, the method of the same steps in which they do not.
    """

    steps: int
    block: Callable[[nn.Module], nn.Module]
    at_rest: str | None = None

    @property
    def moves(self) -> bool:
        """Whether its weights move."""
        return self.at_rest is not None


def _baseline() -> Method:
    return Method(1, Residual)


def _without_block() -> Method:
    return Method(0, lambda field: nn.Identity())


def _frozen(steps: int, gradient: GradientStrategy, solver: Solver = Euler()) -> Method:
    coupling = configuration_1(steps=steps)

    def block(field: nn.Module) -> nn.Module:
        return CoupledODE(
            field, coupling=coupling, evolution=Frozen, solver=solver, gradient=gradient
        )

    return Method(steps, block)


def _neural_ode(
    steps: int = 2, solver: str = "euler", rtol: float = 1e-3, atol: float | None = None
) -> Method:
    tolerance = rtol if atol is None else atol
    if solver in SOLVERS:
        return _frozen(steps, ContinuousAdjoint(rtol=rtol, atol=tolerance), SOLVERS[solver])
    return _frozen(steps, ContinuousAdjoint(solver, rtol=rtol, atol=tolerance))


def _anode(steps: int = 2, solver: str = "euler") -> Method:
    return _frozen(steps, Checkpoint(), SOLVERS[solver])


def _anodev2_1(moving: Moving, steps: int = 5, solver: str = "euler") -> Method:
    return _moving(moving, configuration_1(steps=steps), solver)


def _anodev2_2(moving: Moving, steps: int = 2, solver: str = "euler") -> Method:
    return _moving(moving, configuration_2(z_steps=steps), solver)


def _moving(moving: Moving, coupling: Coupling, solver: str) -> Method:
    steps = coupling.z_steps
    at_rest = spell_method("anode", steps, solver)
    return Method(steps, lambda field: moving.block(field, coupling, SOLVERS[solver]), at_rest)


SOLVERS: dict[str, Solver] = {"euler": Euler(), "midpoint": Midpoint(), "rk4": RK4()}
AT_REST: dict[str, Callable[..., Method]] = {
    "baseline": _baseline,
    "neural-ode": _neural_ode,
    "anode": _anode,
    "without-block": _without_block,
}
THAT_MOVE: dict[str, Callable[..., Method]] = {
    "anodev2-1": _anodev2_1,
    "anodev2-2": _anodev2_2,
}
METHODS = ("baseline", "neural-ode", "anode", *THAT_MOVE)
"""The paper's five."""

NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
SPELLED = re.compile(
    rf"(?P<name>anode|anodev2-1|anodev2-2|neural-ode)(?:-(?P<steps>\d+))?"
    rf"(?:-(?P<solver>[a-z]\w*)(?:-(?P<rtol>{NUMBER})(?:-(?P<atol>{NUMBER}))?)?)?"
)


def spell_method(kind: str, steps: int, solver: str = "euler") -> str:
    """The shortest name of a method with these steps and this solver, as `find_method` reads it.

    Args:
        kind: neural-ode, anode, anodev2-1 or anodev2-2.
        steps: z-steps.
        solver: euler, midpoint or rk4.
    """
    usual = 5 if kind == "anodev2-1" else 2
    others = [str(steps)] if steps != usual else []
    return "-".join([kind, *others, *([solver] if solver != "euler" else [])])


def find_method(name: str, moving: Moving = Moving()) -> Method:
    """The method of that name.

    Args:
        name: one of `METHODS`, or `without-block`, where the identity takes the block's place.
            A number after the name is the z-steps, as in `anode-5`, for a comparison at equal
            depth, and a solver may follow: euler, midpoint or rk4, as in `anodev2-1-2-rk4`.
            `neural-ode-SOLVER`, or `neural-ode-N-SOLVER`, takes any solver of torchdiffeq, and
            `neural-ode-SOLVER-RTOL` or `neural-ode-SOLVER-RTOL-ATOL` its tolerances (1e-3 unless
            given, and ATOL is RTOL): `neural-ode-dopri5-1e-4`.
        moving: how the weights of methods that move them do so.

    Raises:
        ValueError: no such method or solver, with the nearest one, or something for a method
            whose weights stay at rest to move by.
    """
    kind, options = _read(name)
    if kind in THAT_MOVE:
        return THAT_MOVE[kind](moving, **options)
    method = AT_REST[kind](**options)
    if moving != Moving():
        raise UsageError(
            f"the weights of {name!r} stay at rest: evolution, memory and regularization are for "
            f"{' and '.join(THAT_MOVE)}"
        )
    return method


def _read(name: str) -> tuple[str, dict[str, Any]]:
    """A method's name without its steps and solver, and these."""
    spelled = SPELLED.fullmatch(name)
    if spelled is None:
        check_choice("method", name, [*METHODS, "without-block"])
        return name, {}
    if (spelled["steps"] or "1").startswith("0"):
        raise UsageError(f"method {name!r} has no steps: expected at least 1, as in 'anode-5'")
    kinds = {"steps": int, "solver": str, "rtol": float, "atol": float}
    given = {key: kind(spelled[key]) for key, kind in kinds.items() if spelled[key]}
    if spelled["name"] != "neural-ode":
        check_choice(f"solver of {spelled['name']}", given.get("solver", "euler"), SOLVERS)
        if "rtol" in given:
            raise UsageError(f"method {name!r}: {given['solver']} has no tolerance")
    return spelled["name"], given
