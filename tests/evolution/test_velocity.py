"""The rate of an evolution, which the continuous adjoint solves beside z."""

from math import log2

import pytest
import torch
from operators import LARGE, assert_near, fourier, operator_on, symbol, weight

from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from cases import SHAPES

every_shape = pytest.mark.parametrize("shape", [*SHAPES, *LARGE], ids=str)
every_layout = pytest.mark.parametrize("layout", ["layer", "channel", "filter"])


@torch.no_grad()
@every_layout
@every_shape
def test_the_velocity_is_lambda_in_fourier_space(shape, layout):
    w, operator = weight(shape), operator_on(shape, seed=1, coefficients=layout)
    rate = fourier(w, symbol(w, operator)).real
    assert_near(operator.velocity(w, 0.0), rate, w)


@torch.no_grad()
@every_layout
@every_shape
def test_steps_tend_to_the_velocity_at_first_order_as_dt_goes_to_zero(shape, layout):
    w, operator = weight(shape), operator_on(shape, seed=1, coefficients=layout)
    rate = operator.velocity(w, 0.0)
    coarse, fine = (((operator(w, 0.0, dt) - w) / dt - rate).norm() for dt in (2**-12, 2**-13))
    assert log2(coarse / fine) == pytest.approx(1, abs=0.01)


@torch.no_grad()
@every_shape
def test_central_differences_of_the_semigroup_are_the_velocity_along_the_way(shape):
    w, operator, h = weight(shape), operator_on(shape, seed=1), 1e-5
    t = 0.3
    rate = (operator(w, 0.0, t + h) - operator(w, 0.0, t - h)) / (2 * h)
    assert_near(operator.velocity(operator(w, 0.0, t), t), rate, w, within=1e-9)


@torch.no_grad()
@every_shape
def test_the_velocity_of_a_step_is_the_step_of_the_velocity(shape):
    w, operator = weight(shape), operator_on(shape, seed=1)
    of_step = operator.velocity(operator(w, 0.0, 0.4), 0.4)
    assert_near(of_step, operator(operator.velocity(w, 0.0), 0.0, 0.4), w)


@torch.no_grad()
def test_at_zero_coefficients_the_velocity_is_zero_to_the_bit():
    w = weight((3, 3, 3, 3))
    assert torch.equal(operator_on(w.shape).velocity(w, 0.0), torch.zeros_like(w))


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_the_velocity_of_a_half_precision_weight_is_that_in_float32_cast(half):
    w, operator = weight((3, 3, 3, 3)).to(half), operator_on((3, 3, 3, 3), seed=1).float()
    assert torch.equal(operator.velocity(w, 0.0), operator.velocity(w.float(), 0.0).to(half))


@torch.no_grad()
def test_autocast_changes_no_bit_of_the_velocity():
    w, operator = weight((3, 3, 3, 3)).float(), operator_on((3, 3, 3, 3), seed=1).float()
    expected = operator.velocity(w, 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(operator.velocity(w, 0.0), expected)


@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 2, 3, 2), (2, 1, 9, 8)])
@every_layout
def test_gradients_of_the_velocity_are_those_of_finite_differences(layout, shape):
    operator = operator_on(shape, seed=2, coefficients=layout)
    inputs = (weight(shape).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator.velocity(w, 0.0), inputs)


@pytest.mark.parametrize("sigma", [torch.tanh, torch.sin])
def test_with_a_sigma_there_is_no_velocity(sigma):
    shape = (2, 2, 3, 3)
    operator = ReactionDiffusionAdvection(shape, activation=sigma)
    assert operator.velocity(torch.ones(shape), 0.0) is None


def test_frozen_has_no_velocity():
    assert Frozen((2, 2, 3, 3)).velocity(torch.ones(2, 2, 3, 3), 0.0) is None


@torch.no_grad()
@every_layout
@every_shape
@pytest.mark.parametrize("sigma", [None, torch.tanh], ids=["without sigma", "with tanh"])
def test_stacked_weights_take_the_step_of_each_alone(sigma, shape, layout):
    weights = [weight(shape, seed) for seed in range(3)]
    operators = [
        operator_on(shape, seed=seed, coefficients=layout, activation=sigma) for seed in range(3)
    ]
    together = ReactionDiffusionAdvection.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        assert_near(found, operator(w, 0.0, 0.3), w, within=1e-15)


@every_layout
@pytest.mark.parametrize("shape", [(2, 3, 3, 3), (2, 3, 9, 9)], ids=str)
def test_stacked_operators_get_the_gradients_of_each_alone(shape, layout):
    weights = [weight(shape, seed) for seed in range(2)]
    operators = [operator_on(shape, seed=seed, coefficients=layout) for seed in range(2)]
    c = weight(shape, 7)
    together = ReactionDiffusionAdvection.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        parameters = list(operator.parameters())
        gradients = torch.autograd.grad((found * c).sum(), parameters, retain_graph=True)
        expected = torch.autograd.grad((operator(w, 0.0, 0.3) * c).sum(), parameters)
        for a, b in zip(gradients, expected, strict=True):
            assert_near(a, b)


def test_evolutions_without_a_stacked_form_say_so():
    assert Frozen.stacked([Frozen((2, 2)), Frozen((2, 2))], 0.1) is None
