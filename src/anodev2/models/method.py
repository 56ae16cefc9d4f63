"""The five methods of the paper: what becomes of a residual block."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from torch import nn

from anodev2.block import CoupledODE
from anodev2.coupling import Coupling, configuration_1, configuration_2
from anodev2.evolution import Evolution, Frozen, ReactionDiffusionAdvection, compress
from anodev2.gradient import Checkpoint, ContinuousAdjoint, GradientStrategy
from anodev2.memory import Dirac, MemoryKernel
from anodev2.models.residual import Residual
from anodev2.regularization import Regularization
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

    def block(self, f: nn.Module, coupling: Coupling) -> CoupledODE:
        """A block of the field f under a coupling."""
        if self.compression != 1:
            compress(f, factor=self.compression)
        return CoupledODE(
            f,
            coupling=coupling,
            evolution=self.evolution,
            memory=self.memory(),
            regularize=self.regularize,
        )


@dataclass(frozen=True)
class Method:
    """A way to make a block of a field, and the z-steps it takes."""

    steps: int
    block: Callable[[nn.Module], nn.Module]
    moves: bool = False
    """Whether its weights move."""


def _baseline() -> Method:
    return Method(1, Residual)


def _frozen(steps: int, gradient: GradientStrategy) -> Method:
    def block(field: nn.Module) -> nn.Module:
        coupling = configuration_1(steps=steps)
        return CoupledODE(field, coupling=coupling, evolution=Frozen, gradient=gradient)

    return Method(steps, block)


def _neural_ode(
    steps: int = 2, solver: str = "euler", rtol: float = 1e-3, atol: float | None = None
) -> Method:
    tolerance = rtol if atol is None else atol
    return _frozen(steps, ContinuousAdjoint(solver, rtol=rtol, atol=tolerance))


def _anode(steps: int = 2) -> Method:
    return _frozen(steps, Checkpoint())


def _anodev2_1(moving: Moving) -> Method:
    coupling = configuration_1(steps=5)
    return Method(5, lambda field: moving.block(field, coupling), moves=True)


def _anodev2_2(moving: Moving) -> Method:
    coupling = configuration_2()
    return Method(2, lambda field: moving.block(field, coupling), moves=True)


AT_REST: dict[str, Callable[..., Method]] = {
    "baseline": _baseline,
    "neural-ode": _neural_ode,
    "anode": _anode,
}
THAT_MOVE: dict[str, Callable[[Moving], Method]] = {
    "anodev2-1": _anodev2_1,
    "anodev2-2": _anodev2_2,
}
METHODS = (*AT_REST, *THAT_MOVE)

NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
SPELLED = re.compile(
    rf"(?P<name>anode|neural-ode)(?:-(?P<steps>\d+))?"
    rf"(?:-(?P<solver>[a-z]\w*)(?:-(?P<rtol>{NUMBER})(?:-(?P<atol>{NUMBER}))?)?)?"
)


def find_method(name: str, moving: Moving = Moving()) -> Method:
    """The method of that name.

    Args:
        name: one of `METHODS`. `anode-N` and `neural-ode-N` take N steps instead of two, for a
            comparison at equal depth; `neural-ode-SOLVER`, or `neural-ode-N-SOLVER`, takes
            another solver of torchdiffeq, and `neural-ode-SOLVER-RTOL` or
            `neural-ode-SOLVER-RTOL-ATOL` its tolerances (1e-3 unless given, and ATOL is RTOL):
            `neural-ode-dopri5-1e-4`.
        moving: how the weights of methods that move them do so.

    Raises:
        ValueError: no such method or solver, with the nearest one, or something for a method
            whose weights stay at rest to move by.
    """
    if name in THAT_MOVE:
        return THAT_MOVE[name](moving)
    method = _at_rest(name)
    if moving != Moving():
        raise UsageError(
            f"the weights of {name!r} stay at rest: evolution, memory and regularization are for "
            f"{' and '.join(THAT_MOVE)}"
        )
    return method


def _at_rest(name: str) -> Method:
    spelled = SPELLED.fullmatch(name)
    if spelled is None or (spelled["name"] == "anode" and spelled["solver"]):
        check_choice("method", name, METHODS)
        return AT_REST[name]()
    if (spelled["steps"] or "1").startswith("0"):
        raise UsageError(f"method {name!r} has no steps: expected at least 1, as in 'anode-5'")
    kinds = {"steps": int, "solver": str, "rtol": float, "atol": float}
    given = {key: kind(spelled[key]) for key, kind in kinds.items() if spelled[key]}
    return AT_REST[spelled["name"]](**given)
