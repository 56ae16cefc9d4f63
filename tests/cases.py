"""Every solver, evolution, memory kernel and gradient strategy, once: add one, add a line.

Contract tests are parametrized over these lists.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from anodev2.evolution import (
    BasisEvolution,
    CoordinateEvolution,
    Evolution,
    Fourier,
    Frozen,
    Legendre,
    LinearEvolution,
    NetworkEvolution,
    PiecewiseLinear,
    ReactionDiffusionAdvection,
)
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy
from anodev2.memory import Dirac, Exponential, Gaussian, Learned, MemoryKernel, Uniform
from anodev2.solver import RK4, Euler, Midpoint, Solver

# A solver and its order.
SOLVERS: list[tuple[Solver, int]] = [
    (Euler(), 1),
    (Midpoint(), 2),
    (RK4(), 4),
]

# Built from the shape of a weight (out, in, *kernel).
EVOLUTIONS: list[Callable[[Sequence[int]], Evolution]] = [
    Frozen,
    ReactionDiffusionAdvection,
    partial(ReactionDiffusionAdvection, coefficients="layer"),
    partial(ReactionDiffusionAdvection, coefficients="filter"),
    partial(ReactionDiffusionAdvection, activation=None),
    partial(ReactionDiffusionAdvection, activation=torch.sin),
    partial(ReactionDiffusionAdvection, coefficients="point", activation=None),
    partial(ReactionDiffusionAdvection, solver=RK4()),
    partial(ReactionDiffusionAdvection, coefficients="point", solver=Euler()),
    LinearEvolution,
    partial(LinearEvolution, form="skew"),
    partial(LinearEvolution, form="low-rank"),
    partial(LinearEvolution, axes=[0, 1]),
    NetworkEvolution,
    partial(NetworkEvolution, solver=RK4()),
    CoordinateEvolution,
    partial(CoordinateEvolution, solver=Midpoint()),
    BasisEvolution,
    partial(BasisEvolution, basis=PiecewiseLinear(10)),
    partial(BasisEvolution, basis=Legendre()),
    partial(BasisEvolution, basis=Fourier()),
]

# Shapes of weights that every evolution accepts: one, two and three kernel axes, odd and even.
SHAPES: list[tuple[int, ...]] = [(3, 2, 5), (3, 3, 3, 3), (2, 3, 4, 2), (2, 2, 3, 2, 3)]

MEMORY_KERNELS: list[Callable[[], MemoryKernel]] = [
    Dirac,
    Exponential,
    partial(Exponential, learn=True),
    Gaussian,
    partial(Gaussian, learn=True),
    Uniform,
    partial(Uniform, window=0.25),
    Learned,
    partial(Learned, lags=20),
]

STRATEGIES: list[GradientStrategy] = [
    Direct(),
    Checkpoint(segments=1),
    Checkpoint(segments=2),
    Checkpoint(segments=100),  # one a step
    Binomial(slots=1),
    Binomial(slots=2),
    Binomial(slots=100),  # keeps the graph instead
]
