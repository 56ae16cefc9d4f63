"""A network as the velocity of every filter: HyperNetworks, order, counts, rest."""

from math import log2, prod

import pytest
import torch
from operators import assert_near, weight
from torch import Tensor, nn

from anodev2 import CoupledODE, Coupling
from anodev2.evolution import NetworkEvolution, ShapeError
from anodev2.solver import RK4
from anodev2.usage import UsageError
from cases import SHAPES, SOLVERS

every_shape = pytest.mark.parametrize("shape", [*SHAPES, (5,), (4, 3), (2, 3, 1, 1)], ids=str)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)


def stirred(operator: NetworkEvolution, seed: int = 1) -> NetworkEvolution:
    """The operator with random parameters."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in operator.parameters():
            p.copy_(0.4 * torch.randn(p.shape, generator=source, dtype=p.dtype))
    return operator


def moving(shape, seed: int = 1, **settings) -> NetworkEvolution:
    return stirred(NetworkEvolution(shape, **settings).double(), seed)


def points(shape) -> int:
    """N: the kernel of a convolution, a row of anything else."""
    return prod(shape[2:]) if len(shape) > 2 else shape[-1]


@torch.no_grad()
@every_shape
@pytest.mark.parametrize("activation", [torch.tanh, torch.sin])
def test_the_velocity_is_the_network_of_each_filter(activation, shape):
    w, operator = weight(shape), moving(shape, activation=activation)
    w1, b1, w2, b2 = operator.parameters()
    each = [w2 @ activation(w1 @ x + b1) + b2 for x in w.reshape(-1, points(shape))]
    expected = torch.stack(each).reshape(shape)
    assert_near(operator.velocity(w, 0.0), expected, w, within=1e-14)


@torch.no_grad()
@every_solver
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_permuted_out_and_in_pairs_have_the_permuted_step(shape, solver):
    w, operator = weight(shape), moving(shape, solver=solver)
    order = torch.randperm(shape[0] * shape[1], generator=torch.Generator().manual_seed(3))

    def permuted(x: Tensor) -> Tensor:
        return x.flatten(0, 1)[order].reshape(shape)

    assert_near(operator(permuted(w), 0.0, 0.3), permuted(operator(w, 0.0, 0.3)), w, within=1e-14)


@torch.no_grad()
def test_a_filter_of_a_matrix_is_a_row():
    w, operator = weight((4, 3)), moving((4, 3))
    changed = w.clone()
    changed[2, 0] += 1
    moved = operator.velocity(changed, 0.0) - operator.velocity(w, 0.0)
    assert torch.equal((moved != 0).all(1), torch.arange(4) == 2)
    assert torch.equal((moved != 0).any(1), torch.arange(4) == 2)


@torch.no_grad()
@pytest.mark.parametrize("residual", [True, False])
def test_a_hypernetwork_has_the_weights_w0_and_q_of_w0_to_the_bit(residual):
    field = nn.Conv2d(3, 3, 3, padding=1)
    coupling = Coupling(1, 1, read_times=(1.0,))
    block = CoupledODE(field, residual=residual, coupling=coupling, evolution=NetworkEvolution)
    operator = stirred(block.evolution.get_submodule("weight"))
    theta = field.weight + operator.velocity(field.weight, 0.0)
    z = weight((2, 3, 5, 5)).float()
    f = torch.conv2d(z, theta, field.bias, padding=1)
    assert (theta - field.weight).abs().max() > 0.1
    assert torch.equal(block(z), f if residual else z + f)


def end(operator: NetworkEvolution, w: Tensor, steps: int) -> Tensor:
    for m in range(steps):
        w = operator(w, m / steps, 1 / steps)
    return w


@torch.no_grad()
@pytest.mark.parametrize(("solver", "order"), SOLVERS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 2), (4, 3)], ids=str)
def test_it_tends_to_the_solution_at_the_solvers_order(shape, solver, order):
    w, operator = weight(shape), moving(shape, solver=solver)
    exact = end(moving(shape, solver=RK4()), w, 128)
    coarse, fine = ((end(operator, w, n) - exact).norm() for n in (16, 32))
    assert log2(coarse / fine) == pytest.approx(order, abs=0.1)


@torch.no_grad()
@every_shape
def test_an_euler_step_is_w_and_dt_times_the_velocity_to_the_bit(shape):
    w, operator = weight(shape), moving(shape)
    assert torch.equal(operator(w, 0.0, 0.3), torch.add(w, operator.velocity(w, 0.0), alpha=0.3))


@torch.no_grad()
@every_solver
def test_a_step_evaluates_the_network_once_a_stage_for_all_filters(solver):
    calls = []

    def counted(x: Tensor) -> Tensor:
        calls.append(x.shape)
        return x.tanh()

    NetworkEvolution((4, 3, 5), activation=counted, solver=solver)(torch.ones(4, 3, 5), 0.0, 0.1)
    assert calls == [(16, 12)] * len(solver.tableau.b)


@every_shape
@pytest.mark.parametrize("hidden", [1, 16])
def test_p_has_2_n_hidden_and_hidden_and_n_numbers(hidden, shape):
    n = points(shape)
    operator = NetworkEvolution(shape, hidden=hidden)
    assert sum(p.numel() for p in operator.parameters()) == 2 * n * hidden + hidden + n


@torch.no_grad()
@every_solver
@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_it_starts_at_rest_to_the_bit(dtype, shape, solver):
    w, operator = weight(shape).to(dtype), NetworkEvolution(shape, solver=solver)
    assert torch.equal(operator(w, 0.0, 0.3), w)


def test_at_rest_the_last_layer_gets_a_gradient():
    operator = NetworkEvolution((4, 3, 5))
    operator(weight((4, 3, 5)).float(), 0.0, 0.3).square().sum().backward()
    *_, matrix, bias = operator.parameters()
    assert matrix.grad.abs().min() > 0 and bias.grad.abs().min() > 0


@torch.no_grad()
@every_solver
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_weight_gets_the_float32_step_cast_whatever_the_autocast_state(
    half, solver
):
    w = weight((2, 3, 4, 2)).to(half)
    operator = moving(w.shape, solver=solver).float()
    expected = operator(w.float(), 0.0, 0.3).to(half)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(w, 0.0, 0.3), expected)


@every_solver
@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 2)], ids=str)
def test_gradients_of_w_and_p_are_those_of_finite_differences(shape, solver):
    operator = moving(shape, hidden=4, solver=solver)
    inputs = (weight(shape).requires_grad_(), *operator.parameters())
    assert torch.autograd.gradcheck(lambda w, *_: operator(w, 0.0, 0.3), inputs)


def test_a_single_number_is_refused():
    with pytest.raises(ShapeError, match="at least one axis"):
        NetworkEvolution(())


def test_a_layer_without_hidden_units_is_refused():
    with pytest.raises(UsageError, match="hidden must be at least 1, got 0"):
        NetworkEvolution((4, 3), hidden=0)
