"""dw/dt = A w: weights that move by a linear equation of their own, solved exactly."""

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anodev2.evolution.operator import Evolution, ShapeError, Step
from anodev2.evolution.product import add_product, expm1, phi1
from anodev2.precision import full_precision, widened
from anodev2.usage import UsageError, check_choice, check_count

LARGEST_DENSE = 128
"""Points up to which A may be a dense matrix."""


class LinearEvolution(Evolution):
    """w(t + dt) = exp(dt A) w(t), with one A along some axes for all the others.

    Exact for any dt, so one step of t equals n steps of t/n to rounding; A = 0 at first.

        "dense"     A = `a`, any matrix, N^2 numbers
        "skew"      A = S - S^T with S strictly lower, N (N - 1) / 2 numbers `s`; it turns w, whose
                    norm along the axes stays what it is
        "low-rank"  A = U V^T with `u` and `v` of N x rank, for long axes;
                    exp(dt A) - I = dt U phi1(dt V^T U) V^T needs rank x rank matrices alone

    Args:
        shape: any but that of a single number.
        form: "dense", "skew" or "low-rank".
        axes: those along which A acts, flattened together to N points; None takes the kernel's
            of a convolution (all after the first two) and the last of anything else.
        rank: of "low-rank", at least 1.

    Raises:
        ShapeError: no axes, more than 128 points for a dense matrix, or one for a skew one.
        ValueError: an unknown form, a rank below one, or axes that the weight has not.

    Source: q linear in dw/dt = q(w; p) [anodev2_loss_w_pde]; the matrix exponential.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        form: str = "dense",
        axes: Sequence[int] | None = None,
        rank: int = 2,
    ) -> None:
        super().__init__()
        check_choice("form", form, FORMS)
        check_count("rank", rank)
        if len(shape) == 0:
            raise ShapeError("LinearEvolution moves weights with at least one axis, got a number")
        self.axes = _from_the_end(len(shape), axes)
        self.form = form
        n = prod(shape[a] for a in self.axes)
        if form != "low-rank" and n > LARGEST_DENSE:
            raise ShapeError(
                f"LinearEvolution({form!r}) has one matrix for up to {LARGEST_DENSE} points, got "
                f"{n} along the axes {self.axes} of a weight of shape {tuple(shape)}; "
                "form='low-rank' fits"
            )
        if form == "skew" and n < 2:
            raise ShapeError(
                f"LinearEvolution('skew') turns at least two points, got one along the axes "
                f"{self.axes} of a weight of shape {tuple(shape)}"
            )
        self.points = n
        if form == "dense":
            self.a = nn.Parameter(torch.zeros(n, n))
        elif form == "skew":
            self.s = nn.Parameter(torch.zeros(n * (n - 1) // 2))
        else:
            self.u = nn.Parameter(torch.zeros(n, rank))
            self.v = nn.Parameter(torch.randn(n, rank) / n**0.5)

    def forward(self, w: Float[Tensor, "*shape"], t: float, dt: float) -> Float[Tensor, "*shape"]:
        return self.stepper(dt)(w, t)

    def velocity(self, w: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
        with full_precision(w.device):
            factors = self._generator()
            wide = widened(w, factors[0])
            factors = [x.to(wide.dtype)[None] for x in factors]
            return add_product(torch.zeros_like(wide), wide, self.axes, factors).to(w.dtype)

    def stepper(self, dt: float) -> Step:
        return self._step(self._generator(), dt)

    @classmethod
    def stacked(cls, evolutions: Sequence[Evolution], dt: float) -> Step:
        members = [e for e in evolutions if isinstance(e, LinearEvolution)]
        each = zip(*(e._generator() for e in members), strict=True)
        return members[0]._step([torch.stack(parts) for parts in each], dt)

    def extra_repr(self) -> str:
        return f"{self.points} points along {self.axes}, form={self.form!r}"

    def _generator(self) -> list[Tensor]:
        """A as a product of matrices, the first to act being the first; in float32 at least."""
        if self.form == "low-rank":
            return [widened(self.v).mT, widened(self.u)]
        if self.form == "dense":
            return [widened(self.a)]
        s = widened(self.s)
        rows, columns = torch.tril_indices(self.points, self.points, -1, device=s.device)
        lower = s.new_zeros(self.points, self.points).index_put((rows, columns), s)
        return [lower - lower.mT]

    def _step(self, generator: Sequence[Tensor], dt: float) -> Step:
        """The step, for matrices of one weight or stacked for several."""
        sets = [x if x.ndim == 3 else x[None] for x in generator]
        with full_precision(sets[0].device):
            if len(sets) == 1:
                factors = [expm1(dt * sets[0])]
            else:
                inner, outer = sets
                factors = [inner, dt * outer @ phi1(dt * inner @ outer)]

        def step(w: Tensor, t: float) -> Tensor:
            with full_precision(w.device):
                wide = widened(w, factors[0])
                same = [x.to(wide.dtype) for x in factors]
                return add_product(wide, wide, self.axes, same).to(w.dtype)

        return step


FORMS = ("dense", "skew", "low-rank")


def _from_the_end(ndim: int, axes: Sequence[int] | None) -> tuple[int, ...]:
    """The axes counted from the last, in order, so that they hold for stacked weights too."""
    if axes is None:
        return tuple(range(2 - ndim, 0)) if ndim > 2 else (-1,)
    found = sorted({a - ndim if a >= 0 else a for a in axes})
    if not found or not all(-ndim <= a < 0 for a in found):
        raise UsageError(f"axes {tuple(axes)}: expected some of 0 to {ndim - 1}")
    return tuple(found)
