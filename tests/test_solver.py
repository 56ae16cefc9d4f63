"""One-step methods: order in z while the weights move, exact counts and bits of one step."""

from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import exp, log2

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, Coupling, configuration_1
from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.solver import Euler, Solver
from cases import SOLVERS

every_solver = pytest.mark.parametrize(
    "solver", [solver for solver, _ in SOLVERS], ids=lambda solver: repr(solver)
)
RHO = 0.8
W0 = (0.7, -1.3, 1.1)


class Logistic(nn.Module):
    """w z (1 - z), channel by channel, with w a depthwise 1x1 kernel; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Conv2d(3, 3, 1, groups=3, bias=False, dtype=torch.float64)
        self.calls = 0
        with torch.no_grad():
            self.rate.weight.copy_(torch.tensor(W0, dtype=torch.float64).reshape(3, 1, 1, 1))

    def forward(self, z: Tensor) -> Tensor:
        self.calls += 1
        return self.rate(z) * (1 - z)


class WithShortcut(nn.Module):
    """F = identity + f."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, z: Tensor) -> Tensor:
        return z + self.f(z)


def growing_block(field: nn.Module, coupling: Coupling, solver: Solver, **settings) -> CoupledODE:
    """A block in float64 whose weights grow as w(t) = w0 exp(rho t)."""
    block = CoupledODE(
        field,
        coupling=coupling,
        solver=solver,
        evolution=partial(ReactionDiffusionAdvection, activation=None),
        **settings,
    ).double()
    for operator in block.evolution.modules():
        if isinstance(operator, ReactionDiffusionAdvection):
            nn.init.constant_(operator.rho, RHO)
    return block


def start() -> Tensor:
    return torch.tensor([0.2, 0.35, 0.6], dtype=torch.float64).reshape(1, 3, 1, 1)


def exact_end() -> Tensor:
    """z(1) of dz/dt = w0 exp(rho t) z (1 - z)."""
    w0 = torch.tensor(W0, dtype=torch.float64).reshape(1, 3, 1, 1)
    return 1 / (1 + (1 / start() - 1) * torch.exp(-w0 * (exp(RHO) - 1) / RHO))


@torch.no_grad()
def orders(couplings: list[Coupling], solver: Solver) -> list[float]:
    """log2 of the ratio of the errors on grids of which each is twice as fine as the last."""
    errors = [
        (growing_block(Logistic(), c, solver)(start()) - exact_end()).abs().max().item()
        for c in couplings
    ]
    return [log2(coarse / fine) for coarse, fine in pairwise(errors)]


@pytest.mark.parametrize(("solver", "order"), SOLVERS, ids=repr)
def test_a_solver_has_its_order_in_z_while_the_weights_move(solver, order):
    found = orders([configuration_1(steps=n) for n in (16, 32, 64)], solver)
    assert found == pytest.approx([order] * 2, abs=0.1)


@pytest.mark.parametrize(("solver", "order"), SOLVERS, ids=repr)
def test_reading_theta_only_at_the_start_of_each_step_leaves_order_1(solver, order):
    held = [Coupling(n, n, read_times=tuple(i / n for i in range(n))) for n in (16, 32, 64)]
    assert orders(held, solver) == pytest.approx([1] * 2, abs=0.1)


@every_solver
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_solver_evaluates_the_field_exactly_steps_times_stages(solver, steps):
    field = Logistic()
    growing_block(field, configuration_1(steps=steps), solver)(start())
    assert field.calls == steps * len(solver.tableau.c)


@every_solver
def test_a_tableau_is_explicit_consistent_and_sums_to_one(solver):
    tableau = solver.tableau
    assert [len(row) for row in tableau.a] == list(range(len(tableau.c)))
    assert [sum(row, Fraction(0)) for row in tableau.a] == list(tableau.c)
    assert sum(tableau.b) == 1


@pytest.mark.parametrize("h", [1.0, 0.5, 1 / 3, 0.2])
def test_the_euler_step_is_torch_add_with_alpha_h_to_the_bit(h):
    z, f = torch.randn(2, 1000)
    (step,) = Euler().step((z,), h, lambda s, x: (f,), residual=False)
    assert torch.equal(step, torch.add(z, f, alpha=h))


@pytest.mark.parametrize("h", [1.0, 0.5, 1 / 3, 0.2])
def test_the_euler_step_of_a_residual_module_is_torch_lerp_to_the_bit(h):
    z, end = torch.randn(2, 1000)
    (step,) = Euler().step((z,), h, lambda s, x: (end,), residual=True)
    assert torch.equal(step, torch.lerp(z, end, h))


def test_one_euler_step_of_a_residual_module_is_the_module_to_the_bit():
    module = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh())
    block = CoupledODE(
        module,
        residual=True,
        coupling=configuration_1(steps=1),
        evolution=partial(ReactionDiffusionAdvection, activation=None),
    )
    z = torch.randn(4, 3, 6, 6)
    assert torch.equal(block(z), module(z))


@every_solver
@pytest.mark.parametrize("steps", [1, 3])
def test_a_module_with_its_shortcut_is_the_same_ode_as_the_plain_field(solver, steps):
    coupling = configuration_1(steps=steps)
    plain = growing_block(Logistic(), coupling, solver)
    residual = growing_block(WithShortcut(Logistic()), coupling, solver, residual=True)
    torch.testing.assert_close(residual(start()), plain(start()), rtol=1e-14, atol=0)


@every_solver
def test_stages_are_numbered_in_order_and_reach_the_field_at_the_states_of_the_tableau(solver):
    h, z = 0.5, torch.tensor(2.0, dtype=torch.float64)
    slopes = [torch.tensor(s + 1.0, dtype=torch.float64) for s in range(len(solver.tableau.c))]
    seen: list[tuple[int, float]] = []

    def field(s: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append((s, x[0].item()))
        return (slopes[s],)

    (end,) = solver.step((z,), h, field, residual=False)
    a, b = solver.tableau.a, solver.tableau.b
    states = [2.0 + h * sum(float(c) * (r + 1) for r, c in enumerate(row)) for row in a]
    assert seen == list(enumerate(states))
    assert end.item() == pytest.approx(
        2.0 + h * sum(float(c) * (r + 1) for r, c in enumerate(b)), rel=1e-15
    )
