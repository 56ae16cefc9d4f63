"""The continuous adjoint by every solver of torchdiffeq, and its tolerances."""

from math import ceil, floor, log2

import pytest
import torch
from adjoints import all_gradients, exact_block, gaps, gradients, images, neural_ode, smooth_field
from torch import Tensor, nn
from torchdiffeq import odeint_adjoint

from anodev2 import CoupledODE
from anodev2.gradient import ContinuousAdjoint, Evaluations
from anodev2.gradient.adjoint import _Rate, solver_names
from anodev2.solver import RK4, Euler, Midpoint, Solver, Tableau

FIXED = {"euler": 1, "midpoint": 2, "heun2": 2, "heun3": 3, "rk4": 4} | dict.fromkeys(
    ("explicit_adams", "implicit_adams", "fixed_adams"), 3
)
"""torchdiffeq's solvers with fixed steps, and an order that they have at 16 steps."""
ADAPTIVE = [name for name in solver_names() if name not in FIXED]


class OfTime(nn.Module):
    """A field as torchdiffeq takes it."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.field(z)


@pytest.mark.parametrize("method", solver_names())
def test_every_solver_of_torchdiffeq_is_torchdiffeq_to_the_bit(method):
    field, z = smooth_field(), images().requires_grad_()
    names, values = zip(*field.named_parameters(), strict=True)
    options = {"step_size": 1 / 5} if method in FIXED else None
    times = torch.tensor([0.0, 1.0])
    settings = {"method": method, "rtol": 1e-4, "atol": 1e-5}
    end = odeint_adjoint(OfTime(field), z, times, **settings, options=options)[-1]
    expected = torch.autograd.grad(end.square().sum(), (z, *values))
    block = neural_ode(field, 5, **settings)
    found = all_gradients(block, images())
    assert torch.equal(block(images()), end)
    for name, gradient in zip(("z0", *(f"field.{n}" for n in names)), expected, strict=True):
        assert torch.equal(found[name], gradient), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [49, 61, 98, 103, 109, 187])
def test_steps_whose_number_times_their_length_is_rounded_are_no_more_than_their_number(
    steps, dtype
):
    block = neural_ode(nn.Conv2d(1, 1, 1), steps).to(dtype)
    block(torch.randn(1, 1, 2, 2, dtype=dtype)).sum().backward()
    assert block.evaluations == Evaluations(steps, steps)


def errors(method: str, steps: int = 5, tolerance: float = 1e-3) -> tuple[float, float, int]:
    """Of z(1) and of the gradients, relative, for a smooth field; and evaluations going forward."""
    accurate = exact_block(smooth_field(), 64, solver=RK4()).double()
    block = neural_ode(smooth_field(), steps, method=method, rtol=tolerance, atol=tolerance)
    z, expected = images().double(), accurate(images().double())
    end = block.double()(z)
    apart = gaps(all_gradients(block), all_gradients(accurate))
    return ((end - expected).norm() / expected.norm()).item(), max(apart.values()), evaluated(block)


def evaluated(block: CoupledODE) -> int:
    with torch.no_grad():
        block(images().double())
    return block.evaluations.forward


@pytest.mark.parametrize(("method", "order"), FIXED.items())
def test_a_solver_with_fixed_steps_has_its_order_in_z_and_in_gradients(method, order):
    coarse, fine = errors(method, 8), errors(method, 16)
    assert log2(coarse[0] / fine[0]) > order - 0.2
    assert log2(coarse[1] / fine[1]) > order - 0.2


@pytest.mark.parametrize("method", ADAPTIVE)
def test_a_solver_that_chooses_its_steps_is_as_accurate_as_its_tolerance(method):
    """To the sum of its steps' errors, and it takes up to hundreds."""
    assert max(errors(method, tolerance=1e-6)[:2]) < 300 * 1e-6


@pytest.mark.parametrize("method", [m for m in ADAPTIVE if m != "dopri8"])
def test_a_tighter_tolerance_gives_smaller_errors_for_more_evaluations(method):
    loose, tight = errors(method, tolerance=1e-3), errors(method, tolerance=1e-6)
    assert tight[0] < loose[0] and tight[1] < loose[1]
    assert tight[2] > loose[2]


def test_without_a_name_it_takes_the_blocks_own_solver():
    found = [
        gradients(exact_block(smooth_field(), 3, solver=Midpoint(), gradient=strategy))
        for strategy in (ContinuousAdjoint(), ContinuousAdjoint("midpoint"))
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", [0, -1e-3, float("nan")])
def test_a_tolerance_that_is_not_positive_is_refused(value, name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got {value}"):
        ContinuousAdjoint("dopri5", **{name: value})


@pytest.mark.parametrize(("given", "nearest"), [("rk45", "rk4"), ("midpint", "midpoint")])
def test_an_unknown_solver_is_refused_with_the_nearest_one(given, nearest):
    with pytest.raises(ValueError, match=f"unknown torchdiffeq solver .* mean {nearest!r}"):
        ContinuousAdjoint(given)


class Own(Solver):
    """Euler under a name that torchdiffeq does not know."""

    @property
    def tableau(self) -> Tableau:
        return Euler().tableau


def test_a_solver_that_torchdiffeq_does_not_have_is_refused_with_what_to_name_instead():
    block = CoupledODE(nn.Conv2d(2, 2, 3, padding=1), solver=Own(), gradient=ContinuousAdjoint())
    with pytest.raises(ValueError, match=r"as in ContinuousAdjoint\('euler'\)"):
        block(torch.randn(1, 2, 4, 4))


def test_a_solver_that_chooses_its_steps_has_the_norms_of_its_time_in_both_directions(monkeypatch):
    """Its last step may reach beyond the end, where the norms are the last step's."""
    seen: list[tuple[float, bool, int]] = []
    call = _Rate.__call__

    def watch(self: _Rate, t: Tensor, y: Tensor) -> Tensor:
        rate = call(self, t, y)
        seen.append((t.item(), torch.is_grad_enabled(), self.step))
        return rate

    monkeypatch.setattr(_Rate, "__call__", watch)
    block = neural_ode(smooth_field(), 4, method="dopri5", rtol=1e-5, atol=1e-5)
    block(images()).sum().backward()
    within = [(4 * t, back, i) for t, back, i in seen if (4 * t) % 1 > 1e-3]
    assert {back for _, back, _ in within} == {True, False}
    expected = [min(max(ceil(t) - 1 if back else floor(t), 0), 3) for t, back, _ in within]
    assert [i for *_, i in within] == expected
