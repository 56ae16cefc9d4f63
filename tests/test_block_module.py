"""The block as a torch module: names, copies, casts, and what it refuses."""

import pickle
import re
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import Frozen, ShapeError
from anodev2.gradient import Checkpoint
from anodev2.models.residual import link
from anodev2.usage import UsageError
from cases import EVOLUTIONS, SOLVERS, STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
every_evolution = pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
before_or_after_backward = pytest.mark.parametrize("used", [False, True], ids=["new", "used"])


def images() -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(0))


def image_block(*, used: bool = False, **settings) -> CoupledODE:
    """Two links with moving weights; `used` after a forward and a backward pass."""
    torch.manual_seed(1)
    field = nn.Sequential(*link(4, order="pre"), *link(4, order="post"))
    block = CoupledODE(field, **settings)
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.uniform_(-0.2, 0.2)
    if used:
        block(images().requires_grad_()).square().sum().backward()
    return block


@every_evolution
def test_every_name_that_the_block_returns_is_one_of_its_parameters(evolution):
    block = image_block(evolution=evolution)
    names = dict(block.named_parameters())
    assert block.evolved == ("field.2.weight", "field.3.weight")
    assert set(block.evolved) == set(block.weight_trajectory()) <= set(names)


def test_parameters_live_under_field_norms_and_evolution():
    names = {n.split(".")[0] for n, _ in image_block().named_parameters()}
    assert names == {"field", "norms", "evolution"}


def test_names_in_the_state_are_the_same_whatever_the_strategy():
    keys = [list(image_block(gradient=strategy).state_dict()) for strategy in STRATEGIES]
    assert all(k == keys[0] for k in keys)


@every_strategy
@before_or_after_backward
@pytest.mark.parametrize(
    "copied",
    [deepcopy, lambda block: pickle.loads(pickle.dumps(block))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_computes_the_same_bits_and_shares_nothing(copied, used, strategy):
    block = image_block(used=used, gradient=strategy).eval()
    copy = copied(block)
    expected = block(images())
    assert torch.equal(copy(images()), expected)
    with torch.no_grad():
        for p in block.parameters():
            p.zero_()
    assert torch.equal(copy(images()), expected)


@every_strategy
@before_or_after_backward
def test_a_state_loaded_into_a_new_block_computes_the_same_bits(used, strategy):
    block = image_block(used=used, gradient=strategy).eval()
    other = CoupledODE(nn.Sequential(*link(4, order="pre"), *link(4, order="post"))).eval()
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(images()), block(images()))


@every_strategy
@before_or_after_backward
def test_a_cast_to_float64_and_back_changes_no_bit(used, strategy):
    block = image_block(used=used, gradient=strategy).eval()
    expected = block(images())
    assert block.to(torch.float64)(images().double()).dtype == torch.float64
    assert torch.equal(block.to(torch.float32)(images()), expected)


@every_strategy
@before_or_after_backward
def test_a_block_cast_to_bfloat16_runs_in_it(used, strategy):
    block = image_block(used=used, gradient=strategy).to(torch.bfloat16)
    block(images().bfloat16()).sum().backward()
    assert {p.grad.dtype for p in block.parameters()} == {torch.bfloat16}


def test_w0_is_the_fields_own_parameter_and_not_a_copy():
    block = image_block()
    assert dict(block.named_parameters())["field.2.weight"] is block.field[2].weight


@every_evolution
def test_configuration_1_reads_theta_at_the_start_of_each_step_w0_first(evolution):
    block = image_block(evolution=evolution)
    theta = block.weight_trajectory()["field.2.weight"]
    assert block.read_times == (0, 0.2, 0.4, 0.6, 0.8)
    assert theta.shape == (5, 4, 4, 3, 3)
    assert torch.equal(theta[0], block.field[2].weight)


@every_evolution
def test_configuration_2_reads_theta_0_which_is_w0_and_theta_1(evolution):
    block = image_block(evolution=evolution, coupling=configuration_2())
    theta = block.weight_trajectory()["field.2.weight"]
    w = block.field[2].weight
    step = block.evolution.get_submodule("2.weight").stepper(0.1)
    assert block.read_times == (0, 1)
    assert torch.equal(theta[0], w)
    for m in range(10):
        w = step(w, m / 10)
    torch.testing.assert_close(theta[1], w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_representation_shows_steps_solver_and_strategy(steps):
    shown = repr(image_block(coupling=configuration_1(steps)))
    assert f"{steps} z-steps, {steps} w-steps, Euler(), Direct()" in shown


def test_by_default_the_convolutions_that_the_evolution_accepts_evolve():
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(5, 5))
    assert CoupledODE(field).evolved == ("field.0.weight",)


def test_by_default_frozen_takes_linear_weights_too():
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(5, 5))
    assert CoupledODE(field, evolution=Frozen).evolved == ("field.0.weight", "field.2.weight")


def test_weights_to_evolve_can_be_named():
    assert image_block(evolve=["3.weight"]).evolved == ("field.3.weight",)


def test_weights_to_evolve_can_be_chosen_by_a_predicate_on_name_and_parameter():
    block = image_block(evolve=lambda name, p: p.ndim == 4 and name.startswith("2"))
    assert block.evolved == ("field.2.weight",)


def test_the_evolution_is_called_with_shapes_in_the_order_of_names():
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 5, padding=2))
    shapes = []
    CoupledODE(field, evolution=lambda shape: shapes.append(tuple(shape)) or Frozen(shape))
    assert shapes == [(4, 4, 3, 3), (4, 4, 5, 5)]


def test_a_weight_that_is_not_chosen_has_no_evolution():
    block = image_block(evolve=["3.weight"])
    assert list(block.weight_trajectory()) == ["field.3.weight"]
    assert [n for n, _ in block.evolution.named_children()] == ["3"]


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match=re.escape("did you mean '2.weight'")):
        image_block(evolve=["2.weigth"])


def test_a_named_weight_that_the_evolution_refuses_is_refused_by_its_shape():
    with pytest.raises(ShapeError, match=re.escape("(4,)")):
        image_block(evolve=["0.weight"], per_step=())


def test_a_field_without_anything_to_evolve_is_refused():
    with pytest.raises(UsageError, match="no convolution or linear weight of ReLU"):
        CoupledODE(nn.ReLU())


def test_linear_layers_under_a_kernel_evolution_are_refused_saying_what_to_name():
    with pytest.raises(
        UsageError, match="choose an evolution that does, or name parameters that fit it"
    ):
        CoupledODE(nn.Sequential(nn.Linear(5, 5), nn.Tanh()))


def test_a_weight_cannot_both_evolve_and_have_a_copy_for_every_step():
    with pytest.raises(UsageError, match=re.escape("'2.weight' cannot evolve and have a copy")):
        image_block(per_step=(nn.Conv2d,), evolve=["2.weight"])


@every_solver
@every_strategy
@pytest.mark.parametrize(
    "context", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda c: c.__name__
)
def test_a_field_that_changes_its_input_in_place_is_refused_by_name(context, strategy, solver):
    field = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
    block = CoupledODE(field, gradient=strategy, solver=solver)
    refusal = r"field Sequential changes its input in place.*'0'"
    with context(), pytest.raises(RuntimeError, match=refusal):
        block(images())


@every_solver
@every_strategy
def test_a_field_that_changes_the_shape_is_refused_with_both_shapes(strategy, solver):
    block = CoupledODE(nn.Conv2d(4, 4, 3), gradient=strategy, solver=solver)
    shapes = re.escape("maps (3, 4, 5, 5) to (3, 4, 3, 3)")
    with pytest.raises(UsageError, match=f"field Conv2d {shapes}"):
        block(images())


@every_strategy
def test_a_residual_module_that_broadcasts_is_refused_too(strategy):
    block = CoupledODE(nn.Conv2d(4, 1, 3, padding=1), residual=True, gradient=strategy)
    with pytest.raises(UsageError, match=re.escape("(3, 1, 5, 5)")):
        block(images())


@pytest.mark.parametrize("configuration", [configuration_1, partial(configuration_2, w_steps=4)])
def test_an_empty_choice_moves_nothing_and_equals_frozen(configuration):
    none, frozen = (
        image_block(coupling=configuration(3), **choice).eval()
        for choice in ({"evolve": ()}, {"evolution": Frozen})
    )
    assert torch.equal(none(images()), frozen(images()))


def test_a_field_that_changes_its_input_in_place_is_refused_in_inference_mode_too():
    block = CoupledODE(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1)))
    with torch.inference_mode(), pytest.raises(RuntimeError, match="'0' has inplace=True"):
        block(torch.randn(2, 4, 5, 5))


def test_inference_mode_computes_what_evaluation_computes():
    block = CoupledODE(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1))).eval()
    z0 = torch.randn(2, 4, 5, 5)
    with torch.inference_mode():
        inferred = block(z0.clone())
    assert torch.equal(inferred, block(z0))


def test_building_a_block_leaves_spectral_norms_power_iteration_where_it_is():
    convolution = nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 3, padding=1))
    before = {name: b.clone() for name, b in convolution.named_buffers()}
    CoupledODE(convolution)
    assert all(torch.equal(b, before[name]) for name, b in convolution.named_buffers())


def test_a_number_of_segments_that_is_no_integer_is_refused():
    with pytest.raises(TypeError, match="segments"):
        Checkpoint(2.5)


@pytest.mark.parametrize(
    ("settings", "example"),
    [
        ({"solver": Checkpoint}, r"solver must be an object of Solver, such as Euler\(\)"),
        ({"gradient": Checkpoint}, r"gradient must be an object of GradientStrategy"),
        ({"coupling": configuration_1}, r"such as configuration_1\(steps=5\)"),
    ],
)
def test_a_class_or_function_where_an_object_belongs_is_refused(settings, example, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(TypeError, match=example):
        CoupledODE(nn.Conv2d(4, 4, 3, padding=1), **settings)


def test_linear_weights_are_refused_with_what_the_evolution_moves():
    with pytest.raises(UsageError, match="moves convolution kernels"):
        CoupledODE(nn.Linear(4, 4))
