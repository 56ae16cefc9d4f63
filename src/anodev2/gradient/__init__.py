"""How to differentiate a block: a strategy receives the program to run.

`direct` keeps every step; `recompute` executes a `schedule` of integers. A new strategy is
one class of `program.GradientStrategy`, a line here and a line in `tests/cases.py`.
"""

from anodev2.gradient.direct import Direct
from anodev2.gradient.program import GradientStrategy, Program
from anodev2.gradient.recompute import Checkpoint

__all__ = ["Checkpoint", "Direct", "GradientStrategy", "Program"]
