"""One-step methods for the activation ODE: a tableau and a name.

A step of an explicit Runge-Kutta method with nodes c, matrix a and weights b is

    k_s = f(z + h sum_{r<s} a_sr k_r, theta(t + c_s h)),     z(t + h) = z + h sum_s b_s k_s.

The field may be given as a module F that contains its shortcut, f = F - identity. Its step
is then an interpolation, z + h (F(z) - z), computed by `torch.lerp`, so that one Euler step
is F itself to the bit (writing F(z) - z and adding z back is not).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor

Activations = tuple[Tensor, ...]
"""z inside a block: as many tensors as the field acts on, often one."""

Z = Float[Tensor, "..."] | tuple[Float[Tensor, "..."], ...]
"""z as a user gives it: one tensor, or a tuple for a field that acts on one."""


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of an explicit method: nodes c, matrix a (strictly lower), weights b."""

    c: tuple[Fraction, ...]
    a: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]


class Solver(ABC):
    """An explicit one-step method."""

    @property
    @abstractmethod
    def tableau(self) -> Tableau:
        """The method's coefficients."""

    def step(
        self,
        z: Activations,
        h: float,
        field: Callable[[int, Activations], Activations],
        *,
        residual: bool,
    ) -> Activations:
        """Advance z by h.

        Args:
            z: state at the start of the step, one or several tensors of any shape.
            h: length of the step, in units of the block's time [0, 1].
            field: called with a stage's number s and its state; returns f there, or F if
                `residual`.
            residual: whether the field contains its shortcut, f = F - identity.

        Returns:
            The state at the end of the step, shaped like z.
        """
        stages: list[tuple[Activations, Activations]] = []

        def combine(coefficients: Sequence[Fraction]) -> Activations:
            each = [list(zip(*stage, strict=True)) for stage in stages]
            return tuple(
                _combine(x, h, coefficients, [stage[part] for stage in each], residual)
                for part, x in enumerate(z)
            )

        for s, row in enumerate(self.tableau.a):
            state = combine(row)
            stages.append((state, field(s, state)))
        return combine(self.tableau.b)


@dataclass(frozen=True)
class Euler(Solver):
    """Forward Euler, z + h f(z): order 1, one evaluation a step; the paper's solver."""

    @property
    def tableau(self) -> Tableau:
        return Tableau(c=(Fraction(0),), a=((),), b=(Fraction(1),))


@dataclass(frozen=True)
class Midpoint(Solver):
    """Explicit midpoint rule, z + h f(z + h/2 f(z)): order 2, two evaluations a step.

    Source: Runge 1895; the paper's RK2.
    """

    @property
    def tableau(self) -> Tableau:
        half = Fraction(1, 2)
        return Tableau(c=(Fraction(0), half), a=((), (half,)), b=(Fraction(0), Fraction(1)))


@dataclass(frozen=True)
class RK4(Solver):
    """The classical Runge-Kutta method: order 4, four evaluations a step.

    z + h/6 (k_1 + 2 k_2 + 2 k_3 + k_4), with nodes 0, 1/2, 1/2, 1. Source: Kutta 1901.
    """

    @property
    def tableau(self) -> Tableau:
        zero, half, one = Fraction(0), Fraction(1, 2), Fraction(1)
        return Tableau(
            c=(zero, half, half, one),
            a=((), (half,), (zero, half), (zero, zero, one)),
            b=(Fraction(1, 6), Fraction(1, 3), Fraction(1, 3), Fraction(1, 6)),
        )


def _combine(
    z: Float[Tensor, "*state"],
    h: float,
    coefficients: Sequence[Fraction],
    stages: Sequence[tuple[Tensor, Tensor]],
    residual: bool,
) -> Float[Tensor, "*state"]:
    """z + h sum_s coefficient_s k_s, with k_s = F(state) - state where `residual`."""
    total = z
    for coefficient, (state, value) in zip(coefficients, stages, strict=True):
        if not coefficient:
            continue
        weight = h * float(coefficient)
        if not residual:
            total = torch.add(total, value, alpha=weight)
        elif total is state:
            wide = torch.promote_types(state.dtype, value.dtype)
            total = torch.lerp(state.to(wide), value.to(wide), weight)
        else:
            total = torch.add(total, value - state, alpha=weight)
    return total
