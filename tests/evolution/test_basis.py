"""Bases of functions of time, and weights as paths in their span, in float64."""

from math import cos, pi, prod, sin

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operators import assert_near, weight
from torch import Tensor

from anodev2.evolution import Basis, BasisEvolution, Fourier, Legendre, PiecewiseLinear
from anodev2.usage import UsageError
from cases import SHAPES

BASES = [PiecewiseLinear(1), PiecewiseLinear(10), Legendre(1), Legendre(5), Fourier(1), Fourier(3)]
every_basis = pytest.mark.parametrize("basis", BASES, ids=repr)
every_shape = pytest.mark.parametrize("shape", [*SHAPES, (), (5,), (4, 3)], ids=str)
ROUNDING = 2**-48
times = st.floats(0, 1)


def numbers(x) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def gauss(points: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1] of the rule that is exact up to degree 2 points - 1."""
    k = torch.arange(1, points, dtype=torch.float64)
    off = k / (4 * k**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (nodes + 1) / 2, vectors[0].square()


@pytest.mark.parametrize(
    ("basis", "count"), [(PiecewiseLinear(7), 7), (Legendre(7), 7), (Fourier(7), 14)], ids=repr
)
def test_a_basis_has_as_many_values_and_rates_as_it_counts(basis, count):
    assert basis.count == len(basis.values(0.3)) == len(basis.rates(0.3)) == count


@every_basis
def test_rates_integrate_to_the_differences_of_values(basis: Basis):
    """Between tenths, where no hat has a kink."""
    nodes, weights = gauss(8)
    for m in range(10):
        rates = numbers([basis.rates((m + x) / 10) for x in nodes.tolist()])
        ends = numbers([basis.values(m / 10), basis.values((m + 1) / 10)])
        torch.testing.assert_close(weights @ rates / 10, ends[1] - ends[0], rtol=0, atol=1e-13)


@every_basis
def test_rates_are_the_derivatives_of_values(basis: Basis):
    """Central differences, extrapolated to order four, in the midst of every tenth."""
    h = 1e-3
    for m in range(10):
        t = (m + 0.5) / 10
        values = {k: numbers(basis.values(t + k * h)) for k in (-2, -1, 1, 2)}
        slopes = (8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * h)
        torch.testing.assert_close(numbers(basis.rates(t)), slopes, rtol=0, atol=1e-8)


@pytest.mark.parametrize("intervals", [1, 3, 10])
def test_hats_are_one_at_their_own_knot_and_zero_at_all_others(intervals):
    basis = PiecewiseLinear(intervals)
    found = numbers([basis.values(k / intervals) for k in range(intervals + 1)])
    expected = torch.eye(intervals + 1, dtype=torch.float64)[:, 1:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@given(intervals=st.integers(1, 20), t=times)
def test_hats_and_the_one_at_zero_are_a_partition_of_one(intervals, t):
    first = max(0.0, 1 - t * intervals)
    assert first + sum(PiecewiseLinear(intervals).values(t)) == pytest.approx(1, rel=1e-13)


@given(intervals=st.integers(1, 20), t=times)
def test_at_any_time_at_most_two_hats_are_not_zero(intervals, t):
    assert sum(value > 0 for value in PiecewiseLinear(intervals).values(t)) <= 2


def side_slopes(intervals: int, knot: int) -> list[float]:
    """Of every hat to the right of a knot, to the left of the last."""
    left = min(knot, intervals - 1)
    return [intervals * ((k == left + 1) - (k == left)) for k in range(1, intervals + 1)]


@pytest.mark.parametrize("intervals", [1, 2, 3, 5, 10, 20])
def test_rates_at_a_knot_are_those_from_the_right_and_at_one_from_the_left(intervals):
    basis = PiecewiseLinear(intervals)
    for knot in range(intervals + 1):
        assert basis.rates(knot / intervals) == side_slopes(intervals, knot)


@pytest.mark.parametrize("intervals", [22, 23, 26, 49])
def test_rates_at_a_knot_are_those_from_the_right_whatever_its_time_rounds_to(intervals):
    basis = PiecewiseLinear(intervals)
    for knot in range(intervals + 1):
        assert basis.rates(knot / intervals) == side_slopes(intervals, knot)


def test_legendre_polynomials_are_those_of_the_tables():
    x = -0.3
    known = [x, (3 * x**2 - 1) / 2, (5 * x**3 - 3 * x) / 2, (35 * x**4 - 30 * x**2 + 3) / 8]
    assert Legendre(4).values((x + 1) / 2) == pytest.approx(known, rel=1e-14)


def test_legendre_polynomials_are_orthogonal_on_the_unit_interval_and_to_constants():
    nodes, weights = gauss(9)
    values = numbers([[1.0, *Legendre(8).values(t)] for t in nodes.tolist()])
    products = values.T @ (weights[:, None] * values)
    expected = torch.diag(1 / (2 * torch.arange(9, dtype=torch.float64) + 1))
    torch.testing.assert_close(products, expected, rtol=0, atol=1e-14)


def test_legendre_polynomials_are_one_at_the_end_and_alternate_at_the_start():
    basis = Legendre(6)
    assert (basis.values(1.0), basis.values(0.0)) == ([1.0] * 6, [-1.0, 1.0] * 3)


@given(t=times)
def test_fourier_functions_are_cosines_and_then_sines_of_half_turns(t):
    cosines, sines = ([f(k * pi * t) for k in (1, 2, 3)] for f in (cos, sin))
    assert Fourier(3).values(t) == pytest.approx([*cosines, *sines], abs=1e-15)


def test_fourier_functions_are_orthogonal_over_their_period_of_two():
    points = [m / 8 for m in range(16)]
    values = numbers([Fourier(3).values(t) for t in points])
    expected = 8 * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(values.T @ values, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("build", [PiecewiseLinear, Legendre, Fourier])
def test_a_basis_without_functions_is_refused(build):
    with pytest.raises(UsageError, match="must be at least 1, got 0"):
        build(0)


def moving(shape, basis: Basis, seed: int = 1) -> BasisEvolution:
    """An operator with random coefficients."""
    operator = BasisEvolution(shape, basis=basis).double()
    with torch.no_grad():
        operator.c.copy_(weight(operator.c.shape, seed))
    return operator


def shift(operator: BasisEvolution, t: float) -> Tensor:
    """sum_k c_k (phi_k(t) - phi_k(0))."""
    start, end = (operator.basis.values(s) for s in (0.0, t))
    each = zip(operator.c.unflatten(1, operator.shape or (1,)), start, end, strict=True)
    return sum(c * (b - a) for c, a, b in each)


@torch.no_grad()
@every_basis
@every_shape
@pytest.mark.parametrize("steps", [1, 3, 10])
def test_w_has_moved_by_the_path_at_every_time_whatever_the_number_of_steps(steps, shape, basis):
    w0, operator = weight(shape), moving(shape, basis)
    step, w = operator.stepper(1 / steps), w0
    for m in range(steps):
        w = step(w, m / steps)
        assert_near(w, w0 + shift(operator, (m + 1) / steps), operator.c, within=ROUNDING)


@torch.no_grad()
@every_basis
@every_shape
def test_the_velocity_is_the_derivative_of_the_path_and_does_not_depend_on_w(shape, basis):
    operator, t, h = moving(shape, basis), 0.25, 1e-3
    moved = {k: shift(operator, t + k * h) for k in (-2, -1, 1, 2)}
    slope = (8 * (moved[1] - moved[-1]) - (moved[2] - moved[-2])) / (12 * h)
    for seed in (0, 1):
        assert_near(operator.velocity(weight(shape, seed), t), slope, operator.c, within=1e-8)


@every_basis
@every_shape
def test_it_has_a_number_for_each_function_and_entry(shape, basis):
    operator = BasisEvolution(shape, basis=basis)
    assert sum(p.numel() for p in operator.parameters()) == basis.count * prod(shape)


@torch.no_grad()
@every_basis
@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_it_starts_at_rest_to_the_bit(dtype, shape, basis):
    w, operator = weight(shape).to(dtype), BasisEvolution(shape, basis=basis)
    assert torch.equal(operator(w, 0.2, 0.3), w)


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("steps", [1, 4, 10])
def test_a_piecewise_linear_basis_as_fine_as_the_steps_goes_through_any_weights(steps, shape):
    weights = [weight(shape, seed) for seed in range(steps + 1)]
    operator = BasisEvolution(shape, basis=PiecewiseLinear(steps)).double()
    operator.c.copy_((torch.stack(weights[1:]) - weights[0]).reshape(operator.c.shape))
    w, step = weights[0], operator.stepper(1 / steps)
    for m in range(steps):
        w = step(w, m / steps)
        assert_near(w, weights[m + 1], *weights, within=ROUNDING)


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("intervals", [1, 3, 10])
def test_a_refined_path_is_the_same_at_all_times_with_twice_the_intervals(intervals, shape):
    coarse = moving(shape, PiecewiseLinear(intervals))
    fine = coarse.refined()
    assert fine.basis == PiecewiseLinear(2 * intervals)
    for m in range(101):
        assert_near(shift(fine, m / 100), shift(coarse, m / 100), coarse.c, within=ROUNDING)


@torch.no_grad()
def test_the_new_knots_of_a_refined_path_lie_halfway_between_the_old():
    operator = BasisEvolution((), basis=PiecewiseLinear(2))
    operator.c.copy_(torch.tensor([[4.0], [-2.0]]))
    assert operator.refined().c.flatten().tolist() == [2, 4, 1, -2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_refining_keeps_the_dtype_and_leaves_a_parameter_without_a_graph(dtype):
    fine = BasisEvolution((4, 3)).to(dtype).refined()
    assert fine.c.dtype == dtype and fine.c.is_leaf and fine.c.requires_grad


def test_refining_does_not_change_the_path_that_it_refines():
    operator = moving((4, 3), PiecewiseLinear(3))
    before = operator.c.detach().clone()
    operator.refined().c.data.zero_()
    assert torch.equal(operator.c, before) and operator.basis == PiecewiseLinear(3)


@pytest.mark.parametrize("basis", [Legendre(3), Fourier(2)], ids=repr)
def test_only_a_piecewise_linear_path_is_refined(basis):
    with pytest.raises(TypeError, match=f"got {type(basis).__name__}"):
        BasisEvolution((4, 3), basis=basis).refined()


@torch.no_grad()
@every_basis
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(
    half, basis
):
    w, operator = weight((4, 3)).to(half), moving((4, 3), basis).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@every_basis
def test_the_gradient_of_a_coefficient_is_how_far_its_function_moves(basis):
    w, operator = weight((4, 3)), moving((4, 3), basis)
    (operator(w, 0.2, 0.3) * w).sum().backward()
    start, end = (numbers(basis.values(t)) for t in (0.2, 0.2 + 0.3))
    assert_near(operator.c.grad, (end - start)[:, None] * w.flatten(), w, within=1e-15)
