"""The Neural ODE baseline: ANODE going forward, another gradient coming back."""

from itertools import pairwise
from math import ceil, floor, log2

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import Frozen
from anodev2.models.neural_ode import NeuralODE, _Rate
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


def gradients(block: nn.Module) -> Tensor:
    """All gradients of z0 and of the field's parameters, as one vector."""
    z = images().requires_grad_()
    values = (z, *block.field.parameters())
    found = torch.autograd.grad(block(z).square().sum(), values)
    return torch.cat([g.flatten() for g in found])


def relative_distance(field: nn.Module, steps: int) -> float:
    """Of the adjoint's gradient to that of the discrete program."""
    found, exact = gradients(NeuralODE(field, steps=steps)), gradients(exact_block(field, steps))
    return ((found - exact).norm() / exact.norm()).item()


@every_step_count
def test_parameters_and_buffers_have_the_names_of_the_coupled_block(steps):
    field = image_field()
    assert list(NeuralODE(field, steps=steps).state_dict()) == list(
        exact_block(field, steps).state_dict()
    )


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False])
def test_it_goes_forward_as_frozen_euler_to_the_bit_where_steps_are_binary(training, steps):
    block, frozen = NeuralODE(image_field(), steps=steps), exact_block(image_field(), steps)
    with torch.no_grad():
        for i, copy in enumerate(block.norms):
            for p in copy.parameters():
                p.add_(0.1 * (i + 1))
    frozen.load_state_dict(block.state_dict())
    assert torch.equal(block.train(training)(images()), frozen.train(training)(images()))


@pytest.mark.parametrize("steps", [3, 5, 10])
def test_it_goes_forward_as_frozen_euler_to_rounding_for_any_steps(steps):
    block, frozen = NeuralODE(smooth_field(), steps=steps), exact_block(smooth_field(), steps)
    torch.testing.assert_close(block(images()), frozen(images()), rtol=1e-6, atol=1e-6)


@pytest.fixture
def steps_seen(monkeypatch) -> list[int]:
    """The step whose norms are used, for each evaluation of the field."""
    seen: list[int] = []
    evaluate = _Rate.forward
    monkeypatch.setattr(
        _Rate, "forward", lambda self, t, z: seen.append(self.step) or evaluate(self, t, z)
    )
    return seen


@every_step_count
def test_norms_are_those_of_floor_tn_forward_and_of_ceil_tn_minus_1_in_the_sweep(steps, steps_seen):
    end = NeuralODE(image_field(), steps=steps)(images().requires_grad_())
    times = [i / steps for i in range(steps)]
    assert steps_seen == [floor(round(t * steps, 6)) for t in times]
    end.sum().backward()
    back = [1 - t for t in times]
    assert steps_seen[steps:] == [ceil(round(t * steps, 6)) - 1 for t in back]


@every_step_count
def test_the_field_is_evaluated_2n_times(steps, steps_seen):
    NeuralODE(image_field(), steps=steps)(images().requires_grad_()).sum().backward()
    assert len(steps_seen) == 2 * steps


def test_the_sweep_updates_running_statistics_again():
    block = NeuralODE(image_field(), steps=2)
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


def test_the_representation_shows_the_steps():
    assert "3 steps" in repr(NeuralODE(smooth_field(), steps=3))
