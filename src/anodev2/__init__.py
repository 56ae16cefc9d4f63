"""Neural networks whose weights move: coupled neural ODEs for PyTorch.

dz/dt = f(z(t), theta(t)),    dw/dt = q(w(t); p),    theta(t) = int_0^t K(t - s) w(s) ds
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anodev2.block import CoupledODE
    from anodev2.checks import check_finite
    from anodev2.coupling import Coupling, configuration_1, configuration_2

__all__ = ["CoupledODE", "Coupling", "check_finite", "configuration_1", "configuration_2"]

_HOME = {"CoupledODE": "anodev2.block", "check_finite": "anodev2.checks"}


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that the command line starts at once."""
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "anodev2.coupling")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
