"""How to differentiate a block: a strategy receives the program to run.

`direct` keeps every step; `recompute` carries out a `schedule` of integers; `adjoint` is the
continuous adjoint, for comparison. A new strategy is one class of `program.GradientStrategy`,
a line here and a line in `tests/cases.py`.
"""

from anodev2.gradient.adjoint import ContinuousAdjoint
from anodev2.gradient.direct import Direct
from anodev2.gradient.evaluations import Evaluations
from anodev2.gradient.program import GradientStrategy, Program
from anodev2.gradient.recompute import Binomial, Checkpoint

__all__ = [
    "Binomial",
    "Checkpoint",
    "ContinuousAdjoint",
    "Direct",
    "Evaluations",
    "GradientStrategy",
    "Program",
]
