"""A network of an entry's coordinates and the time as its velocity, in float64."""

from math import log2

import pytest
import torch
from operators import assert_near, weight
from torch import Tensor

from anodev2.evolution import CoordinateEvolution
from anodev2.solver import RK4
from anodev2.usage import UsageError
from cases import SHAPES, SOLVERS

NUMBER = ()
SOME = [*SHAPES, (5,), (4, 3), (3, 1, 2)]
every_shape = pytest.mark.parametrize("shape", SOME, ids=str)
numbers_too = pytest.mark.parametrize("shape", [*SOME, NUMBER], ids=str)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)


def moving(shape, seed: int = 1, **settings) -> CoordinateEvolution:
    """An operator with random parameters."""
    operator = CoordinateEvolution(shape, **settings).double()
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in operator.parameters():
            p.copy_(torch.randn(p.shape, generator=source, dtype=p.dtype))
    return operator


def coordinates(place, shape) -> list[float]:
    """From -1 to 1 along each axis, 0 on an axis of one."""
    return [2 * i / (n - 1) - 1 if n > 1 else 0.0 for i, n in zip(place, shape, strict=True)]


def patterns(x: Tensor) -> Tensor:
    """Of twelve units."""
    return torch.cat([x[:4].sin(), (-x[4:8].square()).exp(), x[8:].tanh()])


def rate_at(operator: CoordinateEvolution, place, shape, t: float) -> float:
    """q(x, t; p) of one entry, written from the docstring."""
    w1, b1, w2, b2, w3, b3 = operator.parameters()
    x = torch.tensor([*coordinates(place, shape), t], dtype=torch.float64)
    return (w3 @ patterns(w2 @ patterns(w1 @ x + b1) + b2) + b3).item()


@torch.no_grad()
@numbers_too
@pytest.mark.parametrize("t", [0.0, 0.6])
def test_the_velocity_of_an_entry_is_the_network_of_its_coordinates_and_the_time(t, shape):
    operator = moving(shape)
    places = [index.tolist() for index in torch.ones(shape).nonzero()]
    each = [rate_at(operator, place, shape, t) for place in places]
    expected = torch.tensor(each, dtype=torch.float64).reshape(shape)
    found = operator.velocity(weight(shape), t)
    assert_near(found, expected, within=1e-13)


@torch.no_grad()
@every_shape
def test_the_velocity_does_not_depend_on_w(shape):
    operator = moving(shape)
    rates = [operator.velocity(weight(shape, seed), 0.4) for seed in (0, 1)]
    assert torch.equal(*rates)


@torch.no_grad()
@every_solver
def test_weights_that_start_apart_stay_as_far_apart(solver):
    shape = (2, 3, 4, 2)
    operator = moving(shape, solver=solver)
    starts = [weight(shape, seed) for seed in (0, 1)]
    ends = [operator(w, 0.2, 0.5) for w in starts]
    assert_near(ends[1] - ends[0], starts[1] - starts[0], *ends, within=1e-15)


@pytest.mark.parametrize("shape", [(), (5,), (500,), (4, 3), (70, 80), (2, 3, 4, 2)], ids=str)
@pytest.mark.parametrize("hidden", [3, 12])
def test_the_number_of_parameters_depends_on_the_number_of_axes_alone(hidden, shape):
    operator = CoordinateEvolution(shape, hidden=hidden)
    inputs = len(shape) + 1
    expected = (inputs + 1) * hidden + (hidden + 1) * hidden + hidden + 1
    assert sum(p.numel() for p in operator.parameters()) == expected


@torch.no_grad()
@pytest.mark.parametrize("shape", [(5,), (3, 2), (2, 3, 3, 2)], ids=str)
def test_a_weight_twice_as_fine_has_the_same_velocity_at_the_coordinates_they_share(shape):
    fine = tuple(2 * n - 1 for n in shape)
    coarse_rate, fine_rate = (moving(s).velocity(weight(s), 0.3) for s in (shape, fine))
    shared = fine_rate[tuple(slice(None, None, 2) for _ in shape)]
    assert_near(shared, coarse_rate, within=1e-14)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 1, 2), (64, 49)], ids=str)
def test_coordinates_go_from_minus_one_to_one_in_equal_parts_and_are_zero_on_an_axis_of_one(shape):
    lines = [line(torch.float64) for line in CoordinateEvolution(shape).lines]
    places = torch.stack([x.flatten() for x in torch.meshgrid(*lines, indexing="ij")])
    expected = [coordinates(index.tolist(), shape) for index in torch.ones(shape).nonzero()]
    torch.testing.assert_close(places.T, places.new_tensor(expected), rtol=0, atol=2**-52)


def end(operator: CoordinateEvolution, w: Tensor, steps: int) -> Tensor:
    for m in range(steps):
        w = operator(w, m / steps, 1 / steps)
    return w


@torch.no_grad()
@pytest.mark.parametrize(("solver", "order"), SOLVERS)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 2)], ids=str)
def test_the_path_is_a_quadrature_in_time_of_the_solvers_order(shape, solver, order):
    ends = [end(moving(shape, solver=solver), weight(shape), n) for n in (8, 16, 32)]
    coarse, fine = (ends[1] - ends[0]).norm(), (ends[2] - ends[1]).norm()
    assert log2(coarse / fine) == pytest.approx(order, abs=0.1)


@torch.no_grad()
@every_shape
def test_an_euler_step_is_w_and_dt_times_the_velocity_at_its_start_to_the_bit(shape):
    w, operator = weight(shape), moving(shape)
    expected = torch.add(w, operator.velocity(w, 0.4), alpha=0.3)
    assert torch.equal(operator(w, 0.4, 0.3), expected)


@torch.no_grad()
@numbers_too
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_it_starts_at_rest_to_the_bit(dtype, shape):
    w, operator = weight(shape).to(dtype), CoordinateEvolution(shape, solver=RK4())
    assert torch.equal(operator(w, 0.5, 0.3), w)


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_cast_to_half_precision_and_back_loses_nothing_of_the_coordinates(half):
    shape, w = (7, 4), weight((7, 4))
    cast, source = moving(shape).to(half).double(), moving(shape)
    cast.load_state_dict(source.state_dict())
    assert torch.equal(cast.velocity(w, 0.3), source.velocity(w, 0.3))


def test_its_state_is_p_alone():
    operator = CoordinateEvolution((4, 3))
    assert operator.state_dict().keys() == dict(operator.named_parameters()).keys()


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(half):
    w = weight((2, 3, 4, 2)).to(half)
    operator = moving(w.shape).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@every_solver
@pytest.mark.parametrize("shape", [(3,), (2, 2, 3)], ids=str)
def test_gradients_of_w_and_p_are_those_of_finite_differences(shape, solver):
    operator = moving(shape, hidden=3, solver=solver)
    inputs = (weight(shape).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator(w, 0.2, 0.3), inputs)


def test_a_layer_without_hidden_units_is_refused():
    with pytest.raises(UsageError, match="hidden must be at least 1, got 0"):
        CoordinateEvolution((4, 3), hidden=0)
