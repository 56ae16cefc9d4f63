"""The evolution equation dw/dt = q(w; p) of one weight, as an operator over one step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from anodev2.precision import full_precision, widened
from anodev2.solver import Solver
from anodev2.usage import UsageError

Step = Callable[[Tensor, float], Tensor]
"""Maps w(t) and t to w(t + dt)."""


class ShapeError(UsageError):
    """An evolution was asked to move a weight of a shape it is not defined for."""


class Evolution(nn.Module, ABC):
    """How one weight moves; its parameters are p.

    An evolution is built from the shape of its weight, raises a `ShapeError` where it makes
    no sense for that shape, and starts at rest or close to it. Write it for one weight: the
    block runs weights of equal shape together under `torch.func.vmap`.
    """

    @abstractmethod
    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        """Advance w by one step.

        Args:
            w: w(t), of the weight's shape.
            t: time at the start of the step, in [0, 1).
            dt: length of the step.

        Returns:
            w(t + dt), of the weight's shape and dtype.
        """

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"] | None:
        """dw/dt = q(w; p) at w and t, of the weight's shape.

        None, as here, for an evolution that is a map from step to step and has no rate, or
        does not move; the continuous adjoint and the continuous optimality system ask.
        """
        return None

    def stepper(self, dt: float) -> Step:
        """The map (w(t), t) -> w(t + dt) for all steps of length dt.

        All steps of a grid have the same length, so an evolution that can make something
        from dt alone, such as a propagator, overrides this and makes it once.
        """
        return lambda w, t: self(w, t, dt)

    @classmethod
    def stacked(cls, evolutions: Sequence["Evolution"], dt: float) -> Step | None:
        """The map for several weights of one shape, stacked along a new first axis.

        An evolution that runs faster on them than under `torch.func.vmap` overrides this.

        Args:
            evolutions: one of this class for each weight; they differ in parameters and
                buffers alone.
            dt: length of the step.
        """
        return None


class RateEvolution(Evolution):
    """An evolution that is its rate, integrated by a one-step method.

    It computes in float32 at least, whatever the autocast state, and keeps the weight's dtype.

    Args:
        solver: of the evolution ODE, one step for each step of the w-grid.
    """

    def __init__(self, *, solver: Solver) -> None:
        super().__init__()
        self.solver = solver

    @abstractmethod
    def rate(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        """q(w; p) at w and t, for w in float32 or float64."""

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        with full_precision(w.device):
            return integrate(self.solver, self.rate, widened(w), t, dt).to(w.dtype)

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        with full_precision(w.device):
            return self.rate(widened(w), t).to(w.dtype)

    def extra_repr(self) -> str:
        return str(self.solver)


def integrate(
    solver: Solver,
    rate: Callable[[Tensor, float], Tensor],
    w: Float[Tensor, "*shape"],
    t: float,
    dt: float,
) -> Float[Tensor, "*shape"]:
    """w(t + dt) by one step of a solver.

    Args:
        solver: a one-step method.
        rate: dw/dt at w and t.
        w: w(t).
        t: time at the start of the step.
        dt: length of the step.
    """
    nodes = [float(c) for c in solver.tableau.c]
    (end,) = solver.step((w,), dt, lambda s, x: (rate(x[0], t + nodes[s] * dt),), residual=False)
    return end
