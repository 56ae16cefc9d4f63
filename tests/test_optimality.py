"""The optimality system: its gradients are autograd's, and its continuous form tends to them."""

from functools import partial
from itertools import product
from math import log2

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, Coupling, configuration_1, configuration_2
from anodev2.evolution import Frozen, LinearEvolution, ReactionDiffusionAdvection, compress
from anodev2.memory import Exponential
from anodev2.optimality import adjoints, continuous_gradients, gradients
from anodev2.regularization import Regularization
from anodev2.solver import RK4, Midpoint
from anodev2.stationarity import as_table, stationarity
from cases import EVOLUTIONS, MEMORY_KERNELS

COUPLINGS = [configuration_1(3), configuration_2(2, 4)]
RAW = partial(Exponential, learn=True, normalize=False)
LINEAR = partial(ReactionDiffusionAdvection, activation=None)


def field() -> nn.Sequential:
    """Smooth, with norms, dropout and a bias that no norm takes away."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, bias=False),
        nn.BatchNorm2d(2),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Conv2d(2, 2, 3, padding=1),
    )


def moving(block: CoupledODE) -> CoupledODE:
    """In float64, with random p."""
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.copy_(0.4 * torch.rand(p.shape, generator=source) - 0.2)
    return block.double()


def data(size: int = 5) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(4)
    z0, dj_dz1 = torch.randn(2, 2, 2, size, size, generator=source, dtype=torch.float64)
    return z0, dj_dz1


def by_autograd(block: CoupledODE) -> dict[str, Tensor]:
    z0, dj_dz1 = data()
    torch.manual_seed(5)
    ((block(z0) * dj_dz1).sum() + block.regularization()).backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in own(block).items()}


def own(block: nn.Module) -> dict[str, nn.Parameter]:
    return {n: p for n, p in block.named_parameters() if p.requires_grad}


def assert_equal_to_autograd(block: CoupledODE) -> None:
    torch.manual_seed(5)
    found = gradients(block, *data())
    expected = by_autograd(block)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("coupling", COUPLINGS, ids=["configuration1", "configuration2"])
@pytest.mark.parametrize("memory", [*MEMORY_KERNELS, RAW], ids=str)
@pytest.mark.parametrize(
    "evolution", EVOLUTIONS, ids=[f"evolution{i}" for i in range(len(EVOLUTIONS))]
)
def test_its_gradients_are_those_of_autograd(evolution, memory, coupling):
    block = CoupledODE(field(), coupling=coupling, evolution=evolution, memory=memory())
    assert_equal_to_autograd(moving(block))


@pytest.mark.parametrize("coupling", COUPLINGS, ids=["configuration1", "configuration2"])
def test_its_gradients_include_those_of_r(coupling):
    r = Regularization(w0=0.1, p=0.2, path=0.3)
    block = CoupledODE(field(), coupling=coupling, evolution=LINEAR, memory=RAW(), regularize=r)
    assert_equal_to_autograd(moving(block))


OTHERS = {
    "residual": {"residual": True},
    "shared norms": {"per_step": ()},
    "one weight alone": {"evolve": ["4.weight"]},
    "a bias too": {"evolve": ["4.bias"], "evolution": partial(LinearEvolution, form="skew")},
    "one step": {"coupling": configuration_1(1)},
    "a hypernetwork": {"coupling": Coupling(1, 1, (1.0,))},
    "times read twice": {"coupling": Coupling(3, 2, (0.0, 0.5, 0.5))},
}


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_its_gradients_are_those_of_autograd_for(settings):
    given = {"coupling": configuration_1(3), "evolution": LINEAR} | settings
    assert_equal_to_autograd(moving(CoupledODE(field(), **given)))


def test_its_gradients_are_those_of_autograd_for_the_modes_of_a_compressed_state():
    assert_equal_to_autograd(moving(CoupledODE(compress(field(), factor=3), evolution=LINEAR)))


def test_its_gradients_are_those_of_autograd_in_evaluation_mode():
    assert_equal_to_autograd(moving(CoupledODE(field(), evolution=LINEAR)).eval())


def test_its_gradients_leave_out_parameters_that_are_not_trained():
    block = moving(CoupledODE(field(), evolution=LINEAR))
    block.field[4].weight.requires_grad_(False)
    block.evolution.get_submodule("0.weight").d.requires_grad_(False)
    assert_equal_to_autograd(block)


def test_its_gradients_are_those_of_autograd_for_a_tuple_of_tensors():
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))

        def forward(self, z):
            return self.one(z[1]).tanh(), self.two(z[0])

    torch.manual_seed(0)
    block = moving(CoupledODE(Pair(), evolution=LINEAR))
    z0, dj_dz1 = (x.unbind() for x in torch.randn(2, 2, 2, 2, 4, 4, dtype=torch.float64))
    found = gradients(block, z0, dj_dz1)
    sum((a * b).sum() for a, b in zip(block(z0), dj_dz1, strict=True)).backward()
    for name, p in own(block).items():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-10, atol=1e-12)


def test_alpha_at_0_is_minus_the_gradient_of_z0_and_beta_minus_that_of_w0():
    block = moving(CoupledODE(field().eval(), evolution=LINEAR).eval())
    z0, dj_dz1 = data()
    solved = adjoints(block, z0, dj_dz1)
    z0.requires_grad_()
    (block(z0) * dj_dz1).sum().backward()
    torch.testing.assert_close(solved.alpha[0], -z0.grad, rtol=1e-10, atol=1e-12)
    for name in block.evolved:
        w0 = block.get_parameter(name)
        torch.testing.assert_close(solved.beta[name], -w0.grad, rtol=1e-10, atol=1e-12)


def test_beta_at_0_holds_no_r_while_the_gradient_of_w0_does():
    r = Regularization(w0=0.5)
    plain, regular = (
        moving(CoupledODE(field(), evolution=LINEAR, memory=RAW(), **settings).eval())
        for settings in ({}, {"regularize": r})
    )
    solved = adjoints(regular, *data())
    for name in regular.evolved:
        w0 = regular.get_parameter(name)
        shift = solved.gradients[name] + solved.beta[name]
        torch.testing.assert_close(shift, 0.5 * w0.detach(), rtol=1e-10, atol=1e-12)
        assert torch.equal(solved.beta[name], adjoints(plain, *data()).beta[name])


def test_weights_at_rest_have_a_continuous_system_too():
    block = moving(CoupledODE(field().eval(), evolution=Frozen, coupling=configuration_1(200)))
    exact, other = (f(block.eval(), *data()) for f in (gradients, continuous_gradients))
    for name, gradient in exact.items():
        assert (other[name] - gradient).norm() < 0.02 * gradient.norm()


def test_it_changes_no_buffer_no_gradient_and_no_random_number():
    block = moving(CoupledODE(field(), evolution=LINEAR))
    before = {n: b.clone() for n, b in block.named_buffers()}
    state = torch.get_rng_state()
    gradients(block, *data())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(b, before[n]) for n, b in block.named_buffers())
    assert all(p.grad is None for p in block.parameters())


@pytest.mark.parametrize("solver", [Midpoint(), RK4()], ids=str)
@pytest.mark.parametrize("solve", [gradients, continuous_gradients])
def test_solvers_other_than_euler_are_refused_by_name(solve, solver):
    block = CoupledODE(nn.Conv2d(2, 2, 3, padding=1), solver=solver)
    with pytest.raises(ValueError, match=rf"Euler steps, got {type(solver).__name__}\(\)"):
        solve(block, *(x.float() for x in data()))


SMOOTH = [LINEAR, partial(ReactionDiffusionAdvection, solver=RK4()), LinearEvolution]


def distance(evolution, memory, steps: int) -> float:
    """Of the continuous gradients from the discrete ones, relative, the farthest of any name."""
    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 2, 3, padding=1))
    block = moving(
        CoupledODE(smooth, coupling=configuration_1(steps), evolution=evolution, memory=memory())
    )
    exact, other = (f(block, *data()) for f in (gradients, continuous_gradients))
    return max(((other[n] - g).norm() / g.norm()).item() for n, g in exact.items())


@pytest.mark.parametrize("memory", [MEMORY_KERNELS[0], RAW], ids=str)
@pytest.mark.parametrize("evolution", SMOOTH, ids=str)
def test_the_continuous_system_tends_to_it_at_first_order(evolution, memory):
    coarse, fine = (distance(evolution, memory, steps) for steps in (40, 80))
    assert log2(coarse / fine) == pytest.approx(1, abs=0.15)


def test_the_continuous_system_is_far_from_it_at_two_steps():
    assert distance(LINEAR, MEMORY_KERNELS[0], 2) > 0.1


def test_the_continuous_system_needs_rates_and_a_theta_at_every_time():
    with pytest.raises(ValueError, match="has no rate"):
        continuous_gradients(moving(CoupledODE(field())), *data())
    block = moving(CoupledODE(field(), evolution=LINEAR, coupling=configuration_2()))
    with pytest.raises(ValueError, match="reads theta at every time"):
        continuous_gradients(block, *data())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [
        CoupledODE(field(), evolution=LINEAR, coupling=c, memory=m())
        for c, m in product(COUPLINGS, [MEMORY_KERNELS[0], RAW])
    ]
    return nn.Sequential(*(moving(block) for block in blocks), nn.ReLU(inplace=True))


@pytest.mark.parametrize("p_decay", [None, 0.0, 0.3])
def test_residuals_of_a_network_are_the_norms_of_its_gradients_and_weight_decay(p_decay):
    model, (z0, _) = network(), data()
    torch.manual_seed(6)
    rows = stationarity(
        model, lambda: (model(z0) + 1).square().mean(), weight_decay=0.01, p_decay=p_decay
    )
    factors = dict.fromkeys(["p", "kernel"], 0.01 if p_decay is None else p_decay) | {"w0": 0.01}
    assert all(p.grad is None for p in model.parameters())
    torch.manual_seed(6)
    (model(z0) + 1).square().mean().backward()
    for row, block in zip(rows, list(model)[:-1], strict=True):
        groups = {
            "w0": [block.get_parameter(name) for name in block.evolved],
            "p": [*block.evolution.parameters()],
            "kernel": [*block.memory.parameters()],
        }
        for group, parameters in groups.items():
            found = getattr(row, group)
            if not parameters:
                assert found is None
                continue
            total = torch.cat([(p.grad + factors[group] * p).flatten() for p in parameters])
            assert found.norm == pytest.approx(total.norm().item(), rel=1e-9)
            assert 0 < found.relative <= 1


class Noting(nn.Sequential):
    """Notes whether autocast is on wherever it runs."""

    cast: list[bool]

    def forward(self, z: Tensor) -> Tensor:
        self.cast.append(torch.is_autocast_enabled("cpu"))
        return super().forward(z)


@pytest.mark.parametrize("cast", [True, False])
def test_residuals_are_computed_under_the_autocast_state_of_the_loss(cast):
    seen = Noting.cast = []
    model = CoupledODE(Noting(*field()), evolution=LINEAR, coupling=configuration_1(2))
    z0 = data()[0].float()

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            return model(z0).float().square().mean()

    stationarity(model, loss)
    assert seen == [cast] * 6  # the loss, the forward pass of the system, and its way back


def test_a_block_that_does_not_run_just_once_is_named():
    model, (z0, _) = network(), data()
    with pytest.raises(ValueError, match="block '3' did not run"):
        stationarity(model, lambda: model[:3](z0).sum())
    with pytest.raises(ValueError, match="block '0' ran twice"):
        stationarity(model, lambda: model(model(z0)).sum())


def test_a_residual_is_zero_where_the_loss_does_not_depend_on_the_weights():
    w = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    model = CoupledODE(w, evolution=LINEAR, coupling=configuration_1(1)).double()
    z0 = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    (row,) = stationarity(model, lambda: model(z0).sum())
    assert row.w0.norm == 0 and row.w0.relative == 0


def test_the_report_has_a_line_for_each_block():
    model, (z0, _) = network(), data()
    table = as_table(stationarity(model, lambda: model(z0).square().mean()))
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["0", "1", "2", "3"]
