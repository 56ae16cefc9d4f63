"""The five methods of the paper: what becomes of a residual block."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from anodev2.block import CoupledODE
from anodev2.coupling import configuration_1, configuration_2
from anodev2.evolution import Frozen
from anodev2.gradient import Checkpoint
from anodev2.models.neural_ode import NeuralODE
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


def _neural_ode(steps: int = 2) -> Method:
    return Method(steps, lambda field: NeuralODE(field, steps=steps))


def _anode(steps: int = 2) -> Method:
    def block(field: nn.Module) -> nn.Module:
        coupling = configuration_1(steps=steps)
        return CoupledODE(field, coupling=coupling, evolution=Frozen, gradient=Checkpoint())

    return Method(steps, block)


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


def find_method(name: str) -> Method:
    """The method of that name.

    Args:
        name: one of `METHODS`; `anode-N` and `neural-ode-N` take N steps instead of two, for
            a comparison at equal depth.

    Raises:
        ValueError: no such method, with the nearest one.
    """
    counted = re.fullmatch(r"(anode|neural-ode)-(\d+)", name)
    if counted is None:
        check_choice("method", name, METHODS)
        return METHODS[name]()
    if counted[2].startswith("0"):
        raise UsageError(f"method {name!r} has no steps: expected at least 1, as in 'anode-5'")
    return METHODS[counted[1]](int(counted[2]))
