"""The continuous adjoint: ANODE going forward, another gradient coming back."""

from functools import partial
from itertools import pairwise
from math import ceil, floor, log2

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.discretization import Steps
from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from anodev2.gradient import ContinuousAdjoint
from anodev2.gradient.adjoint import solver_names
from anodev2.models.residual import link

every_step_count = pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 10])


def images() -> Tensor:
    return torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(0))


def image_field(order: str = "pre") -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*link(4, order=order), *link(4, order=order))


def smooth_field() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))


def exact_block(field: nn.Module, steps: int) -> CoupledODE:
    """The same discrete program with its exact gradient."""
    return CoupledODE(field, coupling=configuration_1(steps), evolution=Frozen)


def neural_ode(field: nn.Module, steps: int, **settings) -> CoupledODE:
    block = exact_block(field, steps)
    block.gradient = ContinuousAdjoint(**settings)
    return block


def gradients(block: nn.Module) -> Tensor:
    """All gradients of z0 and of the field's parameters, as one vector."""
    z = images().requires_grad_()
    values = (z, *block.field.parameters())
    found = torch.autograd.grad(block(z).square().sum(), values)
    return torch.cat([g.flatten() for g in found])


def relative_distance(field: nn.Module, steps: int) -> float:
    """Of the adjoint's gradient to that of the discrete program."""
    found, exact = gradients(neural_ode(field, steps)), gradients(exact_block(field, steps))
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False])
def test_it_goes_forward_as_frozen_euler_to_the_bit_where_steps_are_binary(training, steps):
    block, frozen = neural_ode(image_field(), steps), exact_block(image_field(), steps)
    with torch.no_grad():
        for i, copy in enumerate(block.norms):
            for p in copy.parameters():
                p.add_(0.1 * (i + 1))
    frozen.load_state_dict(block.state_dict())
    assert torch.equal(block.train(training)(images()), frozen.train(training)(images()))


@pytest.mark.parametrize("steps", [3, 5, 10])
def test_it_goes_forward_as_frozen_euler_to_rounding_for_any_steps(steps):
    block, frozen = neural_ode(smooth_field(), steps), exact_block(smooth_field(), steps)
    torch.testing.assert_close(block(images()), frozen(images()), rtol=1e-6, atol=1e-6)


@pytest.fixture
def steps_seen(monkeypatch) -> list[int]:
    """The step whose norms are used, for each evaluation of the field."""
    seen: list[int] = []
    rate = Steps.rate
    monkeypatch.setattr(
        Steps, "rate", lambda self, i, z, state: seen.append(i) or rate(self, i, z, state)
    )
    return seen


@every_step_count
def test_norms_are_those_of_floor_tn_forward_and_of_ceil_tn_minus_1_in_the_sweep(steps, steps_seen):
    end = neural_ode(image_field(), steps)(images().requires_grad_())
    times = [i / steps for i in range(steps)]
    assert steps_seen == [floor(round(t * steps, 6)) for t in times]
    end.sum().backward()
    back = [1 - t for t in times]
    assert steps_seen[steps:] == [ceil(round(t * steps, 6)) - 1 for t in back]


@every_step_count
def test_the_field_is_evaluated_2n_times(steps, steps_seen):
    neural_ode(image_field(), steps)(images().requires_grad_()).sum().backward()
    assert len(steps_seen) == 2 * steps


def test_the_sweep_updates_running_statistics_again():
    block = neural_ode(image_field(), 2)
    block(images().requires_grad_()).sum().backward()
    counts = [b.item() for n, b in block.named_buffers() if n.endswith("num_batches_tracked")]
    assert counts == [2] * 4


@pytest.mark.parametrize("order", ["pre", "post"])
def test_its_gradient_at_two_steps_of_a_relu_field_is_not_the_exact_one(order):
    field = image_field(order)
    exact = [gradients(exact_block(field, 2)) for _ in range(2)]
    assert torch.equal(*exact)
    assert relative_distance(field, 2) > 0.05


def test_its_gradient_of_a_smooth_field_converges_to_the_exact_one_at_first_order():
    distances = [relative_distance(smooth_field(), steps) for steps in (8, 16, 32, 64)]
    orders = [log2(coarse / fine) for coarse, fine in pairwise(distances)]
    assert orders == pytest.approx([1, 1, 1], abs=0.1)


def test_at_one_step_the_two_gradients_of_a_nonlinear_field_differ_already():
    assert relative_distance(smooth_field(), 1) > 0.05


def moving_block(steps: int, gradient: ContinuousAdjoint | None = None) -> CoupledODE:
    """A smooth field in float64 whose weights move with a rate."""
    evolution = partial(ReactionDiffusionAdvection, activation=None)
    block = CoupledODE(smooth_field(), coupling=configuration_1(steps), evolution=evolution)
    for p in block.evolution.parameters():
        nn.init.constant_(p, 0.1)
    if gradient is not None:
        block.gradient = gradient
    return block.double()


def all_gradients(block: CoupledODE) -> dict[str, Tensor]:
    block(images().double()).square().sum().backward()
    return {name: p.grad for name, p in block.named_parameters()}


def test_with_moving_weights_gradients_of_w0_and_p_converge_to_the_exact_ones_at_first_order():
    distances: dict[str, list[float]] = {}
    for steps in (16, 32, 64):
        exact = all_gradients(moving_block(steps))
        found = all_gradients(moving_block(steps, ContinuousAdjoint()))
        for kind in ("field.0.weight", "evolution.0.weight.d", "evolution.2.weight.rho"):
            gap = ((found[kind] - exact[kind]).norm() / exact[kind].norm()).item()
            distances.setdefault(kind, []).append(gap)
    for errors in distances.values():
        orders = [log2(coarse / fine) for coarse, fine in pairwise(errors)]
        assert orders == pytest.approx([1, 1], abs=0.15)


@pytest.mark.parametrize("method", [None, *solver_names()])
def test_every_solver_of_torchdiffeq_comes_near_the_solution_going_forward(method):
    with torch.no_grad():
        fine = exact_block(smooth_field(), 400)(images())
        found = neural_ode(smooth_field(), 20, method=method, rtol=1e-4, atol=1e-4)(images())
    assert ((found - fine).norm() / fine.norm()).item() < 0.01


@pytest.mark.parametrize("method", solver_names())
def test_every_solver_of_torchdiffeq_comes_near_the_gradient(method):
    field = smooth_field()
    fine = gradients(exact_block(field, 200))
    found = gradients(neural_ode(field, 20, method=method))
    assert ((found - fine).norm() / fine.norm()).item() < 0.05


def test_a_tighter_tolerance_takes_more_evaluations():
    counts = []
    for tolerance in (1e-2, 1e-5):
        block = neural_ode(smooth_field(), 2, method="dopri5", rtol=tolerance, atol=tolerance)
        block(images())
        counts.append(block.evaluations.forward)
    assert counts[0] < counts[1]


def test_evaluations_are_counted_for_both_passes():
    block = neural_ode(smooth_field(), 3)
    block(images()).sum().backward()
    assert (block.evaluations.forward, block.evaluations.backward) == (3, 3)


@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_that_is_not_positive_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        ContinuousAdjoint("dopri5", **{name: 0})


def test_transforms_are_refused_by_an_error_that_names_direct():
    with pytest.raises(RuntimeError, match=r"gradient=Direct\(\)"):
        torch.func.vmap(neural_ode(smooth_field(), 2))(images()[None])


def test_second_derivatives_are_refused_by_an_error_that_names_direct():
    z0 = images().requires_grad_()
    with pytest.raises(RuntimeError, match=r"gradient=Direct\(\)"):
        torch.autograd.grad(neural_ode(smooth_field(), 2)(z0).sum(), z0, create_graph=True)


def test_a_gradient_of_bfloat16_autocast_comes_near_that_of_float32():
    found = []
    for autocast in (False, True):
        field = smooth_field()
        z0 = images().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            z1 = neural_ode(field, 2)(z0)
        z1.float().square().sum().backward()
        found.append(z0.grad)
    assert ((found[1] - found[0]).norm() / found[0].norm()).item() < 0.02
