"""Coefficients for each point of the kernel's grid: a velocity field and the like, in float64."""

from math import pi, prod

import pytest
import torch
from operators import assert_near, operator_on, weight
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection
from cases import SHAPES

GRIDS = [*SHAPES, (3, 1, 2), (2, 2, 3, 1), (2, 1, 2, 2, 2), (1, 2, 40), (2, 1, 7, 7)]
every_shape = pytest.mark.parametrize("shape", GRIDS, ids=str)
every_name = pytest.mark.parametrize("name", ["d", "v", "rho"])
sigmas = pytest.mark.parametrize("sigma", [None, torch.tanh])


def pointwise(shape, *, seed=None, activation=None) -> ReactionDiffusionAdvection:
    return operator_on(shape, seed=seed, coefficients="point", activation=activation)


def line(values: Tensor, axis: int, shape) -> Tensor:
    """Values along one axis of the kernel, as a weight of this shape."""
    sides = [n if a == axis else 1 for a, n in enumerate(shape[2:])]
    return values.reshape(sides).expand(shape)


@torch.no_grad()
@sigmas
@every_shape
def test_equal_coefficients_at_all_points_take_the_step_of_one_set_for_the_layer(shape, sigma):
    w, layer = weight(shape), operator_on(shape, seed=1, coefficients="layer", activation=sigma)
    operator = pointwise(shape, activation=sigma)
    for name, p in operator.named_parameters():
        p.copy_(layer.get_parameter(name).expand_as(p))
    assert_near(operator(w, 0.0, 0.5), layer(w, 0.0, 0.5), w)


@torch.no_grad()
@every_shape
def test_equal_coefficients_at_all_points_have_the_velocity_of_one_set_for_the_layer(shape):
    w, layer = weight(shape), operator_on(shape, seed=1, coefficients="layer")
    operator = pointwise(shape)
    for name, p in operator.named_parameters():
        p.copy_(layer.get_parameter(name).expand_as(p))
    assert_near(operator.velocity(w, 0.0), layer.velocity(w, 0.0), w)


@every_shape
def test_it_has_2n_plus_1_numbers_for_each_point_of_the_grid(shape):
    kernel = shape[2:]
    operator = ReactionDiffusionAdvection(shape, coefficients="point")
    assert sum(p.numel() for p in operator.parameters()) == (2 * len(kernel) + 1) * prod(kernel)


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("parts", [2, 5])
def test_one_step_of_t_is_n_steps_of_t_over_n(parts, shape):
    w = weight(shape)
    operator = pointwise(shape, seed=2)
    step, small = operator.stepper(0.5 / parts), w
    for m in range(parts):
        small = step(small, m * 0.5 / parts)
    assert_near(small, operator(w, 0.0, 0.5), w)


@torch.no_grad()
@every_shape
def test_central_differences_of_the_semigroup_are_the_velocity_along_the_way(shape):
    w, operator, h = weight(shape), pointwise(shape, seed=1), 1e-5
    rate = (operator(w, 0.0, 0.3 + h) - operator(w, 0.0, 0.3 - h)) / (2 * h)
    assert_near(operator.velocity(operator(w, 0.0, 0.3), 0.3), rate, w, within=1e-9)


@torch.no_grad()
@every_name
@every_shape
def test_coefficients_at_one_point_alone_give_a_velocity_to_that_point_alone(shape, name):
    w, operator, layer = weight(shape), pointwise(shape), operator_on(shape, coefficients="layer")
    point = tuple(n // 2 for n in shape[2:])
    operator.get_parameter(name)[point] = 0.7
    layer.get_parameter(name).fill_(0.7)
    place = (..., *point)
    rate, expected = operator.velocity(w, 0.0), torch.zeros_like(w)
    expected[place] = layer.velocity(w, 0.0)[place]
    assert_near(rate[place], expected[place], w)
    rate[place] = expected[place]
    assert torch.equal(rate, expected)


@torch.no_grad()
@every_name
@every_shape
def test_a_step_moves_the_one_point_that_has_coefficients_and_no_other(shape, name):
    w, operator = weight(shape), pointwise(shape)
    point = tuple(n // 2 for n in shape[2:])
    operator.get_parameter(name)[point] = 0.7
    after = operator(w, 0.0, 0.5)
    after[(..., *point)] = w[(..., *point)]
    assert torch.equal(after, w)


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("phase", [0.0, 0.4])
def test_derivatives_of_waves_below_nyquist_are_those_of_trigonometry(phase, shape):
    operator = pointwise(shape, seed=3)
    for axis, n in enumerate(shape[2:]):
        for m in range((n + 1) // 2):
            k = 2 * pi * m / n
            turns = k * torch.arange(n).double() + phase
            wave, slope = line(turns.cos(), axis, shape), line(-k * turns.sin(), axis, shape)
            v, d = operator.v[..., axis], operator.d[..., axis]
            expected = v * slope - d * k**2 * wave + operator.rho * wave
            assert_near(operator.velocity(wave, 0.0), expected, wave)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 1, 40), (1, 1, 3, 4), (1, 1, 2, 3, 2)], ids=str)
def test_the_nyquist_wave_diffuses_at_pi_squared_and_is_not_advected(shape):
    operator = pointwise(shape, seed=3)
    for axis, n in enumerate(shape[2:]):
        if n % 2 == 0:
            wave = line(torch.tensor([1.0, -1.0]).double().repeat(n // 2), axis, shape)
            expected = (operator.rho - pi**2 * operator.d[..., axis]) * wave
            assert_near(operator.velocity(wave, 0.0), expected, wave)


@torch.no_grad()
def test_derivatives_of_a_product_of_waves_are_taken_axis_by_axis():
    shape = (1, 1, 5, 7)
    operator = pointwise(shape, seed=4)
    k, m = 2 * pi / 5, 4 * pi / 7
    x, y = (torch.arange(n).double() for n in (5, 7))
    wave = torch.outer((k * x).cos(), (m * y).sin())
    along_x = torch.outer(-k * (k * x).sin(), (m * y).sin())
    along_y = torch.outer((k * x).cos(), m * (m * y).cos())
    advected = operator.v[..., 0] * along_x + operator.v[..., 1] * along_y
    diffused = -(operator.d[..., 0] * k**2 + operator.d[..., 1] * m**2) * wave
    expected = advected + diffused + operator.rho * wave
    assert_near(operator.velocity(wave.reshape(shape), 0.0), expected.reshape(shape))


@torch.no_grad()
@every_shape
def test_reaction_alone_multiplies_each_point_by_exp_of_its_rho_t(shape):
    w, operator = weight(shape), pointwise(shape, seed=5)
    for p in (operator.d, operator.v):
        p.zero_()
    assert_near(operator(w, 0.0, 0.7), (0.7 * operator.rho).exp() * w, w)


@torch.no_grad()
@every_shape
def test_a_constant_kernel_without_reaction_stays_what_it_is(shape):
    w, operator = torch.ones(shape, dtype=torch.float64), pointwise(shape, seed=6)
    operator.rho.zero_()
    assert_near(operator(w, 0.0, 0.7), w)


@torch.no_grad()
@pytest.mark.parametrize("n", [3, 4, 9, 40])
def test_advection_by_a_positive_velocity_conserves_the_sum_of_squares_over_it(n):
    """The derivative is antisymmetric, so the sum of w w_x vanishes."""
    w, operator = weight((2, 3, n)), pointwise((2, 3, n))
    operator.v.copy_(0.2 + weight((n, 1), seed=7).abs())
    energies = [(x.square() / operator.v[:, 0]).sum(-1) for x in (w, operator(w, 0.0, 1.0))]
    assert_near(*energies)


@torch.no_grad()
def test_advection_by_one_cell_everywhere_is_a_roll_on_odd_sides():
    w, operator = weight((2, 3, 5, 7)), pointwise((2, 3, 5, 7))
    operator.v[..., 1] = 1
    assert_near(operator(w, 0.0, 1.0), torch.roll(w, -1, dims=3), w)


@torch.no_grad()
@sigmas
def test_every_filter_is_moved_by_the_same_map(sigma):
    w = weight((4, 3, 3, 4))
    operator = pointwise(w.shape, seed=8, activation=sigma)
    alone = pointwise((1, 1, 3, 4), seed=8, activation=sigma)
    each = [alone(f[None, None], 0.0, 0.5)[0, 0] for f in w.flatten(0, 1)]
    assert_near(operator(w, 0.0, 0.5).flatten(0, 1), torch.stack(each), w, within=1e-15)


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_coefficients_start_at_zero_where_a_linear_step_is_the_identity_to_the_bit(dtype, shape):
    w = weight(shape).to(dtype)
    operator = ReactionDiffusionAdvection(shape, coefficients="point", activation=None)
    assert torch.equal(operator(w, 0.0, 0.2), w)


@torch.no_grad()
@every_shape
def test_a_new_operator_with_the_split_sigma_is_tanh_to_the_bit(shape):
    w = weight(shape).float()
    operator = ReactionDiffusionAdvection(shape, coefficients="point")
    assert torch.equal(operator(w, 0.0, 0.2), w.tanh())


@torch.no_grad()
@every_shape
def test_stacked_weights_take_the_step_of_each_alone(shape):
    weights, operators = (
        [weight(shape, i) for i in range(3)],
        [pointwise(shape, seed=i) for i in range(3)],
    )
    together = ReactionDiffusionAdvection.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        assert_near(found, operator(w, 0.0, 0.3), w, within=1e-14)


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_cast_to_half_precision_and_back_loses_nothing_of_the_derivatives(half):
    shape, w = (2, 2, 3, 4), weight((2, 2, 3, 4))
    cast = pointwise(shape).to(half).double()
    source = pointwise(shape, seed=9)
    cast.load_state_dict(source.state_dict())
    assert torch.equal(cast.velocity(w, 0.0), source.velocity(w, 0.0))


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(half):
    w = weight((2, 2, 3, 4)).to(half)
    operator = pointwise(w.shape, seed=1).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@sigmas
@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 1, 3, 2)], ids=str)
def test_gradients_of_w_and_coefficients_are_those_of_finite_differences(shape, sigma):
    operator = pointwise(shape, seed=2, activation=sigma)
    inputs = (weight(shape).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator(w, 0.0, 0.3), inputs)
