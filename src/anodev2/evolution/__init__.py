"""Evolution operators q(w; p): one file an operator.

A new operator is one file with one class of `operator.Evolution`, a line here and a line in
`tests/cases.py`.
"""

from anodev2.evolution.frozen import Frozen
from anodev2.evolution.operator import Evolution, ShapeError
from anodev2.evolution.reaction_diffusion_advection import ReactionDiffusionAdvection

__all__ = ["Evolution", "Frozen", "ReactionDiffusionAdvection", "ShapeError"]
