"""Reaction, diffusion and advection by a solver: dw/dt = sigma(A w) as it stands, in float64."""

from functools import partial
from itertools import pairwise
from math import exp, factorial, log2

import pytest
import torch
from operators import LARGE, assert_near, fourier, operator_on, symbol, weight
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.solver import Euler, Midpoint, Solver
from cases import SHAPES, SOLVERS

every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
every_order = pytest.mark.parametrize(("solver", "order"), SOLVERS)
every_shape = pytest.mark.parametrize("shape", [*SHAPES, *LARGE], ids=str)
some_shapes = pytest.mark.parametrize("shape", [(2, 3, 4, 2), (2, 1, 7, 7)], ids=str)
spectral_layouts = pytest.mark.parametrize("layout", ["layer", "channel", "filter"])
every_layout = pytest.mark.parametrize("layout", ["layer", "channel", "filter", "point"])
T = 0.25


def unsplit(
    shape, solver: Solver, *, seed=None, coefficients="channel", activation=None
) -> ReactionDiffusionAdvection:
    """The operator of `operator_on` with a solver."""
    operator = ReactionDiffusionAdvection(
        shape, coefficients=coefficients, activation=activation, solver=solver
    ).double()
    split = operator_on(shape, seed=seed, coefficients=coefficients)
    operator.load_state_dict(split.state_dict())
    return operator


def end(operator: ReactionDiffusionAdvection, w: Tensor, steps: int) -> Tensor:
    """w at T after so many steps."""
    step = operator.stepper(T / steps)
    for m in range(steps):
        w = step(w, m * T / steps)
    return w


def last_slope(errors: list[Tensor]) -> float:
    """log2 of the ratio of the last two, of steps of which one is half the other."""
    coarse, fine = errors[-2:]
    return log2(coarse / fine)


@torch.no_grad()
@every_order
@every_layout
def test_without_sigma_it_tends_to_the_split_step_at_the_solvers_order(layout, solver, order):
    w = weight((2, 3, 4, 2))
    exact = operator_on(w.shape, seed=1, coefficients=layout)
    operator = unsplit(w.shape, solver, seed=1, coefficients=layout)
    errors = [(end(operator, w, n) - exact(w, 0.0, T)).norm() for n in (32, 64)]
    assert last_slope(errors) == pytest.approx(order, abs=0.1)


@torch.no_grad()
@every_order
@every_layout
def test_with_tanh_it_has_a_limit_that_steps_approach_at_the_solvers_order(layout, solver, order):
    w = weight((2, 3, 4, 2))
    operator = unsplit(w.shape, solver, seed=1, coefficients=layout, activation=torch.tanh)
    ends = [end(operator, w, n) for n in (16, 32, 64)]
    apart = [(b - a).norm() for a, b in pairwise(ends)]
    assert last_slope(apart) == pytest.approx(order, abs=0.1)


@torch.no_grad()
@every_layout
def test_with_tanh_the_split_form_shrinks_to_zero_as_one_over_the_root_of_the_steps(layout):
    w = weight((2, 3, 4, 2))
    operator = operator_on(w.shape, seed=1, coefficients=layout, activation=torch.tanh)
    norms = [end(operator, w, 2**k).norm() for k in range(1, 11)]
    assert all(fine < coarse for coarse, fine in pairwise(norms))
    assert last_slope(norms) == pytest.approx(0.5, abs=0.02)


@torch.no_grad()
@every_order
@spectral_layouts
@every_shape
def test_a_linear_step_multiplies_a_mode_by_the_taylor_polynomial_of_the_solvers_order(
    shape, layout, solver, order
):
    w, operator = weight(shape), unsplit(shape, solver, seed=2, coefficients=layout)
    x = 0.3 * symbol(w, operator)
    growth = sum(x**j / factorial(j) for j in range(order + 1))
    assert_near(operator(w, 0.0, 0.3), fourier(w, growth).real, w)


@torch.no_grad()
@every_order
@pytest.mark.parametrize("rho", [-1.5, 0.8])
def test_reaction_alone_with_tanh_tends_to_its_solution_in_closed_form(solver, order, rho):
    """dw/dt = tanh(rho w) makes sinh(rho w) grow as exp(rho t)."""
    w, operator = weight((2, 2, 3)), unsplit((2, 2, 3), solver, activation=torch.tanh)
    operator.rho.fill_(rho)
    exact = ((rho * w).sinh() * exp(rho * T)).asinh() / rho
    errors = [(end(operator, w, n) - exact).norm() for n in (32, 64)]
    assert last_slope(errors) == pytest.approx(order, abs=0.1)


@torch.no_grad()
@every_solver
@every_layout
@pytest.mark.parametrize("sigma", [torch.tanh, torch.sin, None])
def test_a_constant_kernel_without_reaction_stays_what_it_is(sigma, layout, solver):
    w = torch.ones(2, 3, 4, 3, dtype=torch.float64)
    operator = unsplit(w.shape, solver, seed=3, coefficients=layout, activation=sigma)
    operator.rho.zero_()
    assert_near(operator(w, 0.0, 0.7), w)


@torch.no_grad()
@spectral_layouts
@every_shape
def test_the_velocity_is_sigma_of_the_formula_in_fourier_space(shape, layout):
    w = weight(shape)
    operator = unsplit(shape, Euler(), seed=1, coefficients=layout, activation=torch.tanh)
    rate = fourier(w, symbol(w, operator)).real
    assert_near(operator.velocity(w, 0.0), rate.tanh(), w)


@torch.no_grad()
@every_solver
def test_the_velocity_does_not_depend_on_the_solver(solver):
    w = weight((3, 2, 3, 4))
    rates = (unsplit(w.shape, s, seed=1, activation=torch.tanh) for s in (solver, Euler()))
    assert torch.equal(*(operator.velocity(w, 0.0) for operator in rates))


@torch.no_grad()
@every_layout
@every_shape
def test_an_euler_step_is_w_and_dt_times_the_velocity_to_the_bit(shape, layout):
    w = weight(shape)
    operator = unsplit(shape, Euler(), seed=1, coefficients=layout, activation=torch.tanh)
    assert torch.equal(operator(w, 0.0, 0.3), torch.add(w, operator.velocity(w, 0.0), alpha=0.3))


@torch.no_grad()
def test_a_midpoint_step_is_w_and_dt_times_the_velocity_halfway_to_the_bit():
    w = weight((3, 2, 3, 4))
    operator = unsplit(w.shape, Midpoint(), seed=1, activation=torch.tanh)
    halfway = torch.add(w, operator.velocity(w, 0.0), alpha=0.15)
    expected = torch.add(w, operator.velocity(halfway, 0.15), alpha=0.3)
    assert torch.equal(operator(w, 0.0, 0.3), expected)


@torch.no_grad()
@pytest.mark.parametrize(("solver", "order"), SOLVERS[1:])
@every_layout
def test_finite_differences_tend_to_the_velocity_at_first_order(layout, solver, order):
    w = weight((3, 2, 3, 4))
    operator = unsplit(w.shape, solver, seed=1, coefficients=layout, activation=torch.tanh)
    rate = operator.velocity(w, 0.0)
    errors = [((operator(w, 0.0, dt) - w) / dt - rate).norm() for dt in (2**-12, 2**-13)]
    assert last_slope(errors) == pytest.approx(1, abs=0.01)


@torch.no_grad()
@every_solver
@every_layout
@some_shapes
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_with_tanh_it_starts_at_rest_to_the_bit(dtype, shape, layout, solver):
    w = weight(shape).to(dtype)
    operator = ReactionDiffusionAdvection(shape, coefficients=layout, solver=solver)
    assert torch.equal(operator(w, 0.0, 0.2), w)


@torch.no_grad()
@every_solver
@every_layout
@some_shapes
def test_stacked_weights_take_the_step_of_each_alone(shape, layout, solver):
    build = partial(unsplit, shape, solver, coefficients=layout, activation=torch.tanh)
    weights, operators = [weight(shape, i) for i in range(3)], [build(seed=i) for i in range(3)]
    together = ReactionDiffusionAdvection.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        assert_near(found, operator(w, 0.0, 0.3), w, within=1e-15)


@torch.no_grad()
@every_solver
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(
    half, solver
):
    w = weight((3, 2, 3, 4)).to(half)
    operator = unsplit(w.shape, solver, seed=1, activation=torch.tanh).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@every_solver
@every_layout
def test_gradients_of_w_and_coefficients_are_those_of_finite_differences(layout, solver):
    shape = (2, 1, 3, 2)
    operator = unsplit(shape, solver, seed=2, coefficients=layout, activation=torch.tanh)
    inputs = (weight(shape).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator(w, 0.0, 0.3), inputs)
