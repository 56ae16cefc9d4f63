"""The optimality system: its gradients are autograd's, and its continuous form tends to them."""

from functools import partial
from math import log2

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, Coupling, configuration_1, configuration_2
from anodev2.evolution import Frozen, LinearEvolution, ReactionDiffusionAdvection, compress
from anodev2.optimality import adjoints, continuous_gradients, gradients
from anodev2.regularization import Regularization
from anodev2.solver import RK4, Midpoint
from cases import EVOLUTIONS, MEMORY_KERNELS
from smooth import COUPLINGS, LINEAR, RAW, data, field, moving


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


def test_a_z0_made_in_inference_mode_has_the_gradients_of_its_copy():
    block = moving(CoupledODE(field(), evolution=LINEAR)).eval()
    with torch.inference_mode():
        z0, _ = data()
    found, expected = (gradients(block, z, data()[1]) for z in (z0, z0.clone()))
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())


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
