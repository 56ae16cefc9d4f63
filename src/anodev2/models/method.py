"""The five methods of the paper: what becomes of a residual block."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from anodev2.block import CoupledODE
from anodev2.coupling import configuration_1, configuration_2
from anodev2.evolution import Frozen
from anodev2.gradient import Checkpoint, ContinuousAdjoint, GradientStrategy
from anodev2.models.residual import Residual
from anodev2.usage import UsageError, check_choice


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


def _anodev2_1() -> Method:
    def block(field: nn.Module) -> nn.Module:
        return CoupledODE(field, coupling=configuration_1(steps=5))

    return Method(5, block, moves=True)


def _anodev2_2() -> Method:
    def block(field: nn.Module) -> nn.Module:
        return CoupledODE(field, coupling=configuration_2())

    return Method(2, block, moves=True)


METHODS: dict[str, Callable[..., Method]] = {
    "baseline": _baseline,
    "neural-ode": _neural_ode,
    "anode": _anode,
    "anodev2-1": _anodev2_1,
    "anodev2-2": _anodev2_2,
}


NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
SPELLED = re.compile(
    rf"(?P<name>anode|neural-ode)(?:-(?P<steps>\d+))?"
    rf"(?:-(?P<solver>[a-z]\w*)(?:-(?P<rtol>{NUMBER})(?:-(?P<atol>{NUMBER}))?)?)?"
)


def find_method(name: str) -> Method:
    """The method of that name.

    Args:
        name: one of `METHODS`. `anode-N` and `neural-ode-N` take N steps instead of two, for a
            comparison at equal depth; `neural-ode-SOLVER`, or `neural-ode-N-SOLVER`, takes
            another solver of torchdiffeq, and `neural-ode-SOLVER-RTOL` or
            `neural-ode-SOLVER-RTOL-ATOL` its tolerances (1e-3 unless given, and ATOL is RTOL):
            `neural-ode-dopri5-1e-4`.

    Raises:
        ValueError: no such method or solver, with the nearest one.
    """
    spelled = SPELLED.fullmatch(name)
    if spelled is None or (spelled["name"] == "anode" and spelled["solver"]):
        check_choice("method", name, METHODS)
        return METHODS[name]()
    if (spelled["steps"] or "1").startswith("0"):
        raise UsageError(f"method {name!r} has no steps: expected at least 1, as in 'anode-5'")
    kinds = {"steps": int, "solver": str, "rtol": float, "atol": float}
    given = {key: kind(spelled[key]) for key, kind in kinds.items() if spelled[key]}
    return METHODS[spelled["name"]](**given)
