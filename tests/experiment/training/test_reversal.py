"""The distance of z(0), solved backward from z(1), to the true one."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import BasisEvolution, Fourier, Frozen
from anodev2.experiment.training.reversal import LARGEST, reversal_error
from anodev2.gradient import ContinuousAdjoint
from anodev2.models import build_model
from anodev2.solver import RK4, Euler, Midpoint, Solver


def field(a: float, *, bias: bool = False) -> nn.Conv2d:
    """f(z) = a z, so that a step of h and its reverse leave (1 + a h) (1 - a h) z."""
    convolution = nn.Conv2d(3, 3, 1, bias=bias).double()
    with torch.no_grad():
        convolution.weight.copy_(a * torch.eye(3)[:, :, None, None])
    return convolution


def network(a: float, steps: int, solver: Solver = Euler()) -> nn.Module:
    block = CoupledODE(field(a), evolution=Frozen, coupling=configuration_1(steps), solver=solver)
    return nn.Sequential(nn.Identity(), block)


def images() -> Tensor:
    return torch.randn(4, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def rgb() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("a", [-3.0, 0.5])
def test_it_is_that_of_a_linear_field_worked_out_by_hand(a: float, steps: int) -> None:
    expected = abs((1 - (a / steps) ** 2) ** steps - 1)
    assert reversal_error(network(a, steps), images()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("solver", [Euler(), Midpoint(), RK4()])
def test_the_way_back_is_the_solvers_own(solver: Solver) -> None:
    def growth(x: float) -> float:
        """Of z in a step of h = x / a: the series of exp(x) up to the solver's order."""
        order = {Euler: 1, Midpoint: 2, RK4: 4}[type(solver)]
        return sum(x**k / math.factorial(k) for k in range(order + 1))

    expected = abs((growth(0.75 / 3) * growth(-0.75 / 3)) ** 3 - 1)
    found = reversal_error(network(0.75, 3, solver), images())
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("solver", "order"), [(Euler(), 1), (Midpoint(), 2), (RK4(), 4)])
def test_where_weights_move_it_falls_with_the_solvers_order(solver: Solver, order: int) -> None:
    def error(steps: int) -> float:
        torch.manual_seed(0)
        path = partial(BasisEvolution, basis=Fourier(1))
        field = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Tanh()).double()
        block = CoupledODE(
            field, evolution=path, coupling=configuration_1(steps), solver=solver
        ).double()
        with torch.no_grad():
            for name, p in block.named_parameters():
                if "evolution" in name:
                    p.copy_(torch.randn(p.shape))
        found = reversal_error(block, images())
        assert found is not None
        return found

    assert math.log2(error(16) / error(32)) > order - 0.3


@pytest.mark.parametrize("solver", [Euler(), Midpoint(), RK4()])
def test_that_of_a_neural_ode_is_solved_as_torchdiffeq_does(solver: Solver) -> None:
    tanh = nn.Sequential(field(0.75), nn.Tanh())
    block = CoupledODE(tanh, evolution=Frozen, coupling=configuration_1(3), solver=solver)
    block.gradient = ContinuousAdjoint()
    method = {Euler: "euler", Midpoint: "midpoint", RK4: "rk4"}[type(solver)]

    def solve(z: Tensor, *times: float) -> Tensor:
        t = torch.linspace(*times, 4, dtype=torch.float64)
        return odeint(lambda t, z: tanh(z), z, t, method=method)[-1]

    z0 = images()
    again = solve(solve(z0, 0.0, 1.0), 1.0, 0.0)
    expected = ((again - z0).norm() / z0.norm()).item()
    assert reversal_error(block, z0) == pytest.approx(expected, rel=1e-6)


def test_there_is_none_where_a_solver_of_torchdiffeq_is_named() -> None:
    assert reversal_error(build_model("resnet4", method="neural-ode-dopri5"), rgb()) is None
    assert reversal_error(build_model("resnet4", method="neural-ode-rk4"), rgb()) is not None


def test_it_is_zero_for_a_field_that_does_not_see_z() -> None:
    constant = field(0.0, bias=True)
    block = CoupledODE(constant, evolution=Frozen, coupling=configuration_1(5))
    assert reversal_error(block, images()) == pytest.approx(0.0, abs=1e-15)


def test_it_ends_at_its_largest_where_the_solve_overflows_and_is_none_without_blocks() -> None:
    assert reversal_error(network(1e200, 5), images()) == LARGEST
    assert math.isfinite(LARGEST)
    assert reversal_error(nn.Identity(), images()) is None


def test_it_leaves_the_network_in_its_mode() -> None:
    model = network(0.5, 2).train()
    reversal_error(model, images())
    assert model.training
