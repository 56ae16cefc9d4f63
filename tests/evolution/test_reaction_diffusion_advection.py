"""Reaction, diffusion and advection: the identities of the equation, in float64.

Differences are relative to the largest value that occurs.
"""

from math import exp, pi

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operators import LARGE, assert_near, fourier_step, operator_on, weight
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection, ShapeError
from anodev2.usage import UsageError
from cases import SHAPES

kernels = st.lists(st.integers(2, 7), min_size=1, max_size=3)
layouts = st.sampled_from(["layer", "channel", "filter"])
durations = st.floats(0.05, 1)
seeds = st.integers(0, 2**32 - 1)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, seed=seeds)
def test_a_linear_step_is_the_formula_in_fourier_space(kernel, layout, t, seed):
    w = weight((2, 3, *kernel), seed)
    operator = operator_on(w.shape, seed=seed, coefficients=layout)
    assert_near(operator(w, 0.0, t), fourier_step(w, operator, t).real, w)


@torch.no_grad()
@pytest.mark.parametrize("shape", LARGE)
def test_a_large_grid_with_a_matrix_for_each_axis_is_the_formula_too(shape):
    w, operator = weight(shape), operator_on(shape, seed=1)
    assert len(operator.propagators(0.5)) == len(shape) - 2
    assert_near(operator(w, 0.0, 0.5), fourier_step(w, operator, 0.5).real, w)


@torch.no_grad()
@given(kernel=kernels, t=durations, seed=seeds)
def test_the_formula_with_the_nyquist_rule_is_real_on_every_grid(kernel, t, seed):
    w = weight((2, 3, *kernel), seed)
    step = fourier_step(w, operator_on(w.shape, seed=seed), t)
    assert_near(step.imag, torch.zeros_like(w), step.real)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, seed=seeds)
def test_sigma_acts_on_the_result_of_the_linear_step(kernel, layout, t, seed):
    w = weight((2, 3, *kernel), seed)
    linear = operator_on(w.shape, seed=seed, coefficients=layout)
    curbed = operator_on(w.shape, seed=seed, coefficients=layout, activation=torch.tanh)
    assert torch.equal(curbed(w, 0.0, t), linear(w, 0.0, t).tanh())


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations)
def test_zero_coefficients_are_the_identity_to_the_bit(kernel, layout, t):
    w = weight((2, 3, *kernel))
    assert torch.equal(operator_on(w.shape, coefficients=layout)(w, 0.0, t), w)


@torch.no_grad()
@pytest.mark.parametrize("shape", SHAPES + LARGE)
def test_coefficients_start_at_zero_and_sigma_as_tanh_so_a_new_operator_is_tanh(shape):
    w = weight(shape).float()
    assert torch.equal(ReactionDiffusionAdvection(shape)(w, 0.0, 0.2), w.tanh())


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, parts=st.integers(2, 8), seed=seeds)
def test_one_step_of_t_is_n_steps_of_t_over_n(kernel, layout, t, parts, seed):
    w = weight((2, 3, *kernel), seed)
    operator = operator_on(w.shape, seed=seed, coefficients=layout)
    step, small = operator.stepper(t / parts), w
    for m in range(parts):
        small = step(small, m * t / parts)
    assert_near(small, operator(w, 0.0, t), w)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, seed=seeds)
def test_advection_by_one_cell_is_a_roll_without_the_nyquist_modes_of_even_sides(
    kernel, layout, seed
):
    w = weight((2, 3, *kernel), seed)
    for axis, n in enumerate(kernel):
        smooth = w
        if n % 2 == 0:
            alternating = torch.tensor([1.0, -1.0], dtype=w.dtype).repeat(n // 2)
            alternating = alternating.reshape([n if a == axis else 1 for a in range(len(kernel))])
            smooth = w - alternating * (alternating * w).mean(dim=2 + axis, keepdim=True)
        operator = operator_on(w.shape, coefficients=layout)
        operator.v[..., axis] = 1
        assert_near(operator(smooth, 0.0, 1.0), torch.roll(smooth, -1, dims=2 + axis), w)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, seed=seeds)
def test_advection_conserves_the_sum_of_squares_of_each_filter(kernel, layout, t, seed):
    w = weight((2, 3, *kernel), seed)
    operator = operator_on(w.shape, seed=seed, coefficients=layout)
    for p in (operator.d, operator.rho):
        p.zero_()
    grid = tuple(range(2, w.ndim))
    assert_near(operator(w, 0.0, t).square().sum(grid), w.square().sum(grid))


@torch.no_grad()
@pytest.mark.parametrize("kernel", [(2,), (2, 2), (2, 2, 2)])
def test_advection_does_not_move_a_kernel_of_side_two_whose_modes_have_no_partner(kernel):
    w = weight((2, 3, *kernel))
    operator = operator_on(w.shape)
    operator.v.fill_(0.7)
    assert torch.equal(operator(w, 0.0, 1.0), w)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, rho=st.floats(-2, 2))
def test_reaction_multiplies_by_exp_of_rho_t(kernel, layout, t, rho):
    w = weight((2, 3, *kernel))
    operator = operator_on(w.shape, coefficients=layout)
    operator.rho.fill_(rho)
    assert_near(operator(w, 0.0, t), exp(rho * t) * w, w)


@torch.no_grad()
@given(kernel=kernels, layout=layouts, t=durations, seed=seeds)
def test_the_sum_of_a_filter_changes_only_through_rho(kernel, layout, t, seed):
    w = weight((2, 3, *kernel), seed)
    operator = operator_on(w.shape, seed=seed, coefficients=layout)
    grid = tuple(range(2, w.ndim))
    after = operator(w, 0.0, t)
    growth = (operator.rho * t).exp()
    growth = growth.reshape(*growth.shape, *(1,) * (2 - growth.ndim))
    expected = growth * w.sum(grid)
    assert_near(after.sum(grid), expected, after, w)


def wrapped_gaussian(variance: float, centre: float) -> Tensor:
    """The periodic sum of a normal density on 64 cells."""
    x = torch.arange(64, dtype=torch.float64)
    images = torch.arange(-8, 9, dtype=torch.float64)[:, None]
    density = (-((x - centre + 64 * images) ** 2) / (2 * variance)).exp().sum(0)
    return density / (2 * pi * variance) ** 0.5


@torch.no_grad()
@given(variance=st.floats(6, 20), d=st.floats(0.1, 4), t=durations, centre=st.floats(0, 64))
def test_a_wrapped_gaussian_keeps_its_shape_and_its_variance_grows_by_2_d_t(variance, d, t, centre):
    operator = operator_on((1, 1, 64))
    operator.d.fill_(d)
    w = wrapped_gaussian(variance, centre)
    after = operator(w.reshape(1, 1, 64), 0.0, t).flatten()
    assert_near(after, wrapped_gaussian(variance + 2 * d * t, centre), w)


@torch.no_grad()
@given(d=st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)), t=durations)
def test_a_gaussian_in_the_plane_widens_along_each_axis_by_that_axis_d(d, t):
    operator = operator_on((1, 1, 64, 64))
    operator.d.copy_(torch.tensor(d, dtype=torch.float64))
    w = torch.outer(wrapped_gaussian(6, 20), wrapped_gaussian(9, 50))
    after = operator(w.reshape(1, 1, 64, 64), 0.0, t)[0, 0]
    wide = [wrapped_gaussian(6 + 2 * d[0] * t, 20), wrapped_gaussian(9 + 2 * d[1] * t, 50)]
    assert_near(after, torch.outer(*wide), w)


@torch.no_grad()
@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.parametrize("v", [0.3, -2.0, 50.0])
def test_even_kernels_stay_finite_under_advection(side, v):
    w = weight((2, 3, side, side))
    operator = operator_on(w.shape)
    operator.v.fill_(v)
    after = operator(w, 0.0, 1.0)
    assert after.is_floating_point() and after.isfinite().all()


@pytest.mark.parametrize(("layout", "sets"), [("layer", 1), ("channel", 4), ("filter", 12)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_set_of_coefficients_has_2n_plus_1_numbers(layout, sets, axes):
    operator = ReactionDiffusionAdvection((4, 3, *[3] * axes), coefficients=layout)
    assert sum(p.numel() for p in operator.parameters()) == sets * (2 * axes + 1)


@torch.no_grad()
@pytest.mark.parametrize("name", ["d", "v", "rho"])
@pytest.mark.parametrize("layout", ["channel", "filter"])
def test_coefficients_move_their_own_channel_or_filter_only(layout, name):
    w = weight((4, 3, 3, 3))
    operator = operator_on(w.shape, coefficients=layout)
    place = (2,) if layout == "channel" else (2, 1)
    operator.get_parameter(name)[place] = 0.1
    moved = (operator(w, 0.0, 1.0) != w).flatten(2).any(-1)
    expected = torch.zeros(4, 3, dtype=torch.bool)
    expected[place] = True
    assert torch.equal(moved, expected)


@torch.no_grad()
def test_one_set_for_a_layer_moves_every_filter_alike():
    w = weight((1, 1, 3, 3)).expand(4, 3, 3, 3)
    after = operator_on(w.shape, seed=3, coefficients="layer")(w, 0.0, 1.0)
    assert_near(after, after[:1, :1].expand_as(w))


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 2, 2, 2, 2, 2)])
def test_a_weight_without_one_to_three_kernel_axes_is_refused_by_shape(shape):
    with pytest.raises(ShapeError) as refusal:
        ReactionDiffusionAdvection(shape)
    assert str(shape) in str(refusal.value)


def test_an_unknown_layout_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match="did you mean 'channel'"):
        ReactionDiffusionAdvection((2, 2, 3, 3), coefficients="chanel")


@pytest.mark.parametrize("layout", ["layer", "channel", "filter"])
@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 2, 3, 2), (2, 1, 9, 8)])
def test_gradients_of_w_and_coefficients_are_those_of_finite_differences(shape, layout):
    operator = operator_on(shape, seed=2, coefficients=layout, activation=torch.tanh)
    names, values = zip(*operator.named_parameters(), strict=True)

    def step(w: Tensor, *coefficients: Tensor) -> Tensor:
        swapped = dict(zip(names, coefficients, strict=True))
        return torch.func.functional_call(operator, swapped, (w, 0.0, 0.3))

    inputs = (0.3 * weight(shape).requires_grad_(), *values)
    assert torch.autograd.gradcheck(step, inputs, rtol=1e-5, atol=1e-7)
