"""dw/dt = A w: the exact solution, its invariants, and where A acts, in float64."""

from math import prod

import pytest
import torch
from operators import assert_near, weight
from torch import Tensor

from anodev2.evolution import LinearEvolution, ShapeError
from anodev2.usage import UsageError
from cases import SHAPES

FORMS = ["dense", "skew", "low-rank"]
every_form = pytest.mark.parametrize("form", FORMS)
every_shape = pytest.mark.parametrize("shape", [*SHAPES, (5,), (4, 3), (2, 3, 1, 2)], ids=str)
every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str
)
# Axes of a weight of shape (2, 3, 4, 2), and the same counted from the first.
AXES = [([0], [0]), ([1, 2], [1, 2]), ([-1], [3]), ([-2, 0], [0, 2]), ([0, 2], [0, 2])]
every_axes = pytest.mark.parametrize(("axes", "counted"), AXES, ids=str)


def moving(shape, seed=1, **settings) -> LinearEvolution:
    """An operator whose A has entries of about 0.3."""
    operator = LinearEvolution(shape, **settings).double()
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in operator.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=source, dtype=p.dtype))
    return operator


def matrix(operator: LinearEvolution) -> Tensor:
    """A, written from the docstring."""
    if operator.form == "low-rank":
        return operator.u @ operator.v.T
    if operator.form == "dense":
        return operator.a
    lower = torch.zeros(operator.points, operator.points, dtype=operator.s.dtype)
    numbers = iter(operator.s)
    for row in range(operator.points):
        for column in range(row):
            lower[row, column] = next(numbers)
    return lower - lower.T


def applied(a: Tensor, w: Tensor, axes) -> Tensor:
    """A w along some axes, counted from the first."""
    sizes = [w.shape[i] for i in axes]
    inputs = range(len(axes), 2 * len(axes))
    product = torch.tensordot(a.reshape(*sizes, *sizes), w, dims=(list(inputs), list(axes)))
    return product.movedim(list(range(len(axes))), list(axes))


def solution(a: Tensor, w: Tensor, axes, t: float) -> Tensor:
    """exp(t A) w by its Taylor series."""
    total, term = w, w
    for k in range(1, 60):
        term = applied(a, term, axes) * t / k
        total = total + term
    return total


def own_axes(shape) -> list[int]:
    """The kernel's axes of a convolution, the last of anything else."""
    return list(range(2, len(shape))) or [len(shape) - 1]


@torch.no_grad()
@every_form
@every_shape
def test_a_step_is_the_exponential_along_the_kernel_or_the_last_axis_of_a_matrix(shape, form):
    w, operator = weight(shape), moving(shape, form=form)
    expected = solution(matrix(operator), w, own_axes(shape), 0.7)
    assert_near(operator(w, 0.0, 0.7), expected, w, within=1e-13)


@torch.no_grad()
@every_form
@every_axes
def test_a_step_is_the_exponential_along_the_axes_given(axes, counted, form):
    w = weight((2, 3, 4, 2))
    operator = moving(w.shape, form=form, axes=axes)
    expected = solution(matrix(operator), w, counted, 0.7)
    assert_near(operator(w, 0.0, 0.7), expected, w, within=1e-13)


@torch.no_grad()
@every_form
@every_axes
def test_the_velocity_is_a_w_along_the_axes_given(axes, counted, form):
    w = weight((2, 3, 4, 2))
    operator = moving(w.shape, form=form, axes=axes)
    assert_near(operator.velocity(w, 0.0), applied(matrix(operator), w, counted), w, within=1e-15)


@torch.no_grad()
@every_form
@every_shape
def test_central_differences_of_the_semigroup_are_the_velocity_along_the_way(shape, form):
    w, operator, h = weight(shape), moving(shape, form=form), 1e-5
    rate = (operator(w, 0.0, 0.3 + h) - operator(w, 0.0, 0.3 - h)) / (2 * h)
    assert_near(operator.velocity(operator(w, 0.0, 0.3), 0.3), rate, w, within=1e-9)


@torch.no_grad()
@every_form
@every_shape
@pytest.mark.parametrize("parts", [2, 10])
def test_one_step_of_t_is_n_steps_of_t_over_n(parts, shape, form):
    w = weight(shape)
    operator = moving(shape, form=form)
    step, small = operator.stepper(1 / parts), w
    for m in range(parts):
        small = step(small, m / parts)
    assert_near(small, operator(w, 0.0, 1.0), w, within=1e-13)


@torch.no_grad()
@every_axes
def test_a_thousand_steps_of_skew_keep_the_norm_along_its_axes(axes, counted):
    w = weight((2, 3, 4, 2))
    step, turned = moving(w.shape, form="skew", axes=axes).stepper(0.1), w
    for m in range(1000):
        turned = step(turned, 0.1 * m)
    norms = [x.square().sum(counted).sqrt() for x in (turned, w)]
    assert_near(*norms, within=1000 * 2e-15)
    assert (turned - w).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("rank", [1, 2, 7])
@every_shape
def test_low_rank_takes_the_step_of_dense_with_a_equal_to_u_v_transposed(shape, rank):
    w, low = weight(shape), moving(shape, form="low-rank", rank=rank)
    dense = LinearEvolution(shape).double()
    dense.a.copy_(low.u @ low.v.T)
    assert_near(low(w, 0.0, 0.7), dense(w, 0.0, 0.7), w, within=1e-13)


@torch.no_grad()
@every_form
def test_the_order_in_which_axes_are_given_does_not_matter(form):
    w = weight((2, 3, 4, 2))
    ends = [moving(w.shape, form=form, axes=a)(w, 0.0, 0.5) for a in ([0, 2], [2, 0], [-4, -2])]
    assert torch.equal(ends[0], ends[1]) and torch.equal(ends[0], ends[2])


@torch.no_grad()
@every_form
def test_every_part_along_the_other_axes_is_moved_alike(form):
    w = weight((2, 3, 4, 2))
    operator = moving(w.shape, form=form, axes=[0, 2])
    expected = operator(w, 0.0, 0.5).flip(1, 3)
    assert_near(operator(w.flip(1, 3), 0.0, 0.5), expected, w, within=1e-15)


@every_form
@every_shape
def test_its_parameters_are_those_of_the_matrix_form(shape, form):
    n = prod(shape[a] for a in own_axes(shape))
    counts = {"dense": n**2, "skew": n * (n - 1) // 2, "low-rank": 2 * n * 3}
    operator = LinearEvolution(shape, form=form, rank=3)
    assert sum(p.numel() for p in operator.parameters()) == counts[form]


@torch.no_grad()
@every_form
@every_shape
@every_dtype
def test_it_starts_at_rest_to_the_bit(dtype, shape, form):
    w, operator = weight(shape).to(dtype), LinearEvolution(shape, form=form)
    assert torch.equal(operator(w, 0.0, 0.3), w)
    assert torch.equal(operator.velocity(w, 0.0), torch.zeros_like(w))


def test_low_rank_starts_at_rest_by_u_alone_so_that_u_gets_a_gradient():
    w, operator = weight((4, 3, 3, 3)), LinearEvolution((4, 3, 3, 3), form="low-rank").double()
    (operator(w, 0.0, 0.3) * w).sum().backward()
    assert operator.v.abs().min() > 0
    assert operator.u.grad.abs().min() > 0


@torch.no_grad()
@every_form
@every_shape
def test_stacked_weights_take_the_step_of_each_alone(shape, form):
    weights = [weight(shape, i) for i in range(3)]
    operators = [moving(shape, i, form=form) for i in range(3)]
    together = LinearEvolution.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        assert_near(found, operator(w, 0.0, 0.3), w, within=1e-15)


@torch.no_grad()
@every_form
@every_axes
def test_stacked_weights_move_along_the_axes_given(axes, counted, form):
    weights = [weight((2, 3, 4, 2), i) for i in range(2)]
    operators = [moving((2, 3, 4, 2), i, form=form, axes=axes) for i in range(2)]
    together = LinearEvolution.stacked(operators, 0.3)(torch.stack(weights), 0.0)
    for found, operator, w in zip(together, operators, weights, strict=True):
        assert_near(found, operator(w, 0.0, 0.3), w, within=1e-15)


@torch.no_grad()
@every_form
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(half, form):
    w = weight((2, 3, 4, 2)).to(half)
    operator = moving(w.shape, form=form).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@every_form
@pytest.mark.parametrize("axes", [None, [0], [1, 2]])
def test_gradients_of_w_and_p_are_those_of_finite_differences(axes, form):
    operator = moving((2, 2, 3), form=form, axes=axes)
    inputs = (weight((2, 2, 3)).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator(w, 0.0, 0.3), inputs)


@every_form
def test_a_single_number_is_refused(form):
    with pytest.raises(ShapeError, match="at least one axis"):
        LinearEvolution((), form=form)


@pytest.mark.parametrize("form", ["dense", "skew"])
@pytest.mark.parametrize("shape", [(4, 129), (2, 2, 3, 43)], ids=str)
def test_more_than_128_points_are_refused_with_the_form_that_fits_them(shape, form):
    with pytest.raises(ShapeError, match=r"got 129 along .* form='low-rank' fits"):
        LinearEvolution(shape, form=form)
    assert LinearEvolution(shape, form="low-rank").points == 129


@every_form
def test_128_points_are_accepted(form):
    assert LinearEvolution((2, 2, 8, 16), form=form).points == 128


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"form": "lowrank"}, "did you mean 'low-rank'"),
        ({"form": "low-rank", "rank": 0}, "rank must be at least 1, got 0"),
        ({"axes": []}, "expected some of 0 to 3"),
        ({"axes": [4]}, "expected some of 0 to 3"),
        ({"axes": [0, -5]}, "expected some of 0 to 3"),
    ],
    ids=str,
)
def test_a_setting_that_is_not_valid_is_refused_with_what_would_be(given, message):
    with pytest.raises(UsageError, match=message):
        LinearEvolution((2, 3, 4, 2), **given)


def test_a_skew_matrix_of_one_point_is_refused_since_it_could_not_move():
    with pytest.raises(ShapeError, match="turns at least two points, got one"):
        LinearEvolution((4, 4, 1, 1), form="skew")
