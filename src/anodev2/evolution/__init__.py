"""Evolution operators q(w; p): one file an operator.

A new operator is one file with one class of `operator.Evolution`, a line here and a line in
`tests/cases.py`.
"""

from anodev2.evolution.basis import Basis, BasisEvolution, Fourier, Legendre, PiecewiseLinear
from anodev2.evolution.compressed_state import CompressedState, compress
from anodev2.evolution.coordinate import CoordinateEvolution
from anodev2.evolution.frozen import Frozen
from anodev2.evolution.linear import LinearEvolution
from anodev2.evolution.network import NetworkEvolution
from anodev2.evolution.operator import Evolution, ShapeError
from anodev2.evolution.reaction_diffusion_advection import ReactionDiffusionAdvection

__all__ = [
    "Basis",
    "BasisEvolution",
    "CompressedState",
    "CoordinateEvolution",
    "Evolution",
    "Fourier",
    "Frozen",
    "Legendre",
    "LinearEvolution",
    "NetworkEvolution",
    "PiecewiseLinear",
    "ReactionDiffusionAdvection",
    "ShapeError",
    "compress",
]
