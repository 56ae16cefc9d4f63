"""The continuous adjoint: ANODE going forward, another gradient coming back."""

from functools import partial
from itertools import pairwise
from math import ceil, floor, log2

import pytest
import torch
from adjoints import (
    all_gradients,
    exact_block,
    gaps,
    gradients,
    image_field,
    images,
    moving_adjoint,
    moving_block,
    neural_ode,
    smooth_field,
)
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.discretization import Steps
from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from anodev2.gradient import ContinuousAdjoint
from cases import SOLVERS

LINEAR = partial(ReactionDiffusionAdvection, activation=None)
every_step_count = pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 10])


def frozen_adjoint() -> CoupledODE:
    return neural_ode(smooth_field(), 2)


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
        Steps, "rate", lambda self, i, *rest: seen.append(i) or rate(self, i, *rest)
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


SIGMAS = {"without sigma": None, "with tanh": torch.tanh}
COUPLINGS = {
    "configuration_1": configuration_1,
    "configuration_2": lambda steps: configuration_2(steps + 1, steps),
}


def orders_of_agreement(make, steps: tuple[int, ...]) -> dict[str, float]:
    """With the exact gradients, of z0 and of each parameter, over the last doubling of steps."""
    apart = []
    for n in steps:
        exact = all_gradients(make(n))
        adjoint = make(n)
        adjoint.gradient = ContinuousAdjoint()
        apart.append(gaps(all_gradients(adjoint), exact))
    coarse, fine = apart[-2:]
    return {name: log2(coarse[name] / fine[name]) for name in fine}


@pytest.mark.parametrize("coupling", COUPLINGS.values(), ids=COUPLINGS)
@pytest.mark.parametrize("sigma", SIGMAS.values(), ids=SIGMAS)
def test_with_moving_weights_all_gradients_converge_to_the_exact_ones_at_first_order(
    sigma, coupling
):
    found = orders_of_agreement(partial(moving_block, sigma=sigma, coupling=coupling), (32, 64))
    assert found == pytest.approx(dict.fromkeys(found, 1), abs=0.1)


@pytest.mark.parametrize(("solver", "order"), SOLVERS, ids=str)
def test_with_the_blocks_own_solver_all_gradients_converge_at_its_order(solver, order):
    found = orders_of_agreement(partial(moving_block, solver=solver), (16, 32))
    assert found == pytest.approx(dict.fromkeys(found, order), abs=0.1)


@pytest.mark.parametrize(
    ("sigma", "coupling"),
    [
        (torch.tanh, configuration_1),
        (torch.tanh, COUPLINGS["configuration_2"]),
        (None, COUPLINGS["configuration_2"]),
    ],
)
def test_where_theta_is_constant_on_each_step_it_goes_forward_as_direct(sigma, coupling):
    block, direct = (moving_block(3, sigma, coupling) for _ in range(2))
    block.gradient = ContinuousAdjoint()
    z = images().double()
    torch.testing.assert_close(block(z), direct(z), rtol=1e-14, atol=1e-14)


both_adjoints = pytest.mark.parametrize("make", [frozen_adjoint, moving_adjoint])
TRANSFORMS = {
    "vmap": lambda block, z: torch.func.vmap(block)(z[None]),
    "grad": lambda block, z: torch.func.grad(lambda x: block(x).sum())(z),
    "jvp": lambda block, z: torch.func.jvp(block, (z,), (z,)),
    "second derivatives": lambda block, z: torch.func.hessian(lambda x: block(x).sum())(z),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@both_adjoints
def test_a_transform_is_refused_by_an_error_that_names_direct(make, transform):
    with pytest.raises(RuntimeError, match=r"gradient=Direct\(\)"):
        transform(make(), images().to(next(make().parameters()).dtype))


@pytest.mark.parametrize("of", ["z0", "field.0.weight", "evolution.0.weight.d"])
def test_second_derivatives_are_refused_by_an_error_that_names_direct(of):
    block, z0 = moving_adjoint(), images().double().requires_grad_()
    tensors = {"z0": z0, **dict(block.named_parameters())}
    with pytest.raises(RuntimeError, match=r"gradient=Direct\(\)"):
        torch.autograd.grad(block(z0).sum(), tensors[of], create_graph=True)


def apart_in(half: torch.dtype, make) -> float:
    """The largest relative gap between gradients of a half-precision block and those in float32."""
    found = all_gradients(make().to(half), images().to(half))
    exact = all_gradients(make().to(half).float(), images().to(half).float())
    assert {g.dtype for g in found.values()} == {half}
    return max(gaps({n: g.float() for n, g in found.items()}, exact).values())


HALVES = [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)]


@pytest.mark.parametrize(("half", "rounding"), HALVES, ids=str)
def test_a_block_in_half_precision_has_gradients_of_float32_to_its_rounding(half, rounding):
    assert apart_in(half, frozen_adjoint) < rounding


@pytest.mark.parametrize(("half", "rounding"), HALVES, ids=str)
def test_moving_weights_in_half_precision_have_gradients_of_float32_to_its_rounding(half, rounding):
    assert apart_in(half, moving_adjoint) < rounding


@both_adjoints
def test_a_gradient_under_bfloat16_autocast_is_that_of_float32_to_its_rounding(make):
    exact = all_gradients(make().float(), images())
    found = all_gradients(make().float(), images(), autocast=True)
    assert 0 < max(gaps(found, exact).values()) < 2**-6


@both_adjoints
def test_the_sweep_runs_under_the_autocast_of_the_forward_pass(make):
    block, seen = make().float(), []
    block.field[0].register_forward_hook(lambda module, args, rate: seen.append(rate.dtype))
    all_gradients(block, images(), autocast=True)
    assert seen == [torch.bfloat16] * 4


class Halves(nn.Module):
    """A field on all channels as one on a tuple of two halves of them."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.whole = field

    def forward(self, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.whole(torch.cat(z, 1)).split(2, 1)


@pytest.mark.parametrize("evolution", [Frozen, LINEAR])
def test_a_tuple_of_halves_of_z_has_the_gradients_of_z(evolution):
    settings = {"coupling": configuration_1(4), "gradient": ContinuousAdjoint()}
    whole = CoupledODE(smooth_field(), evolution=evolution, **settings).double()
    halves = CoupledODE(Halves(smooth_field()), evolution=evolution, **settings).double()
    z, w = (images().double().requires_grad_() for _ in range(2))
    whole(z).square().sum().backward()
    sum(part.square().sum() for part in halves(w.split(2, 1))).backward()
    pairs = zip((z, *whole.parameters()), (w, *halves.parameters()), strict=True)
    for expected, found in pairs:
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-13, atol=1e-13)
