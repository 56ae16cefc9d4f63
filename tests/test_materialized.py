"""A materialized block: the same bits without an evolution, and nothing held twice."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import Evolution, Frozen, ReactionDiffusionAdvection, compress
from anodev2.models.residual import link
from cases import EVOLUTIONS, SOLVERS, STRATEGIES

every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
both_configurations = pytest.mark.parametrize(
    "configuration",
    [configuration_1, partial(configuration_2, w_steps=4)],
    ids=["configuration_1", "configuration_2"],
)


def images() -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(0))


def image_field() -> nn.Sequential:
    return nn.Sequential(*link(4, order="pre"), *link(4, order="pre"))


def trained(field: nn.Module, **settings) -> CoupledODE:
    """A block in eval mode whose coefficients, norms and statistics have moved."""
    block = CoupledODE(field, **settings)
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.uniform_(-0.2, 0.2)
        for copy in (field, *block.norms):
            for p in copy.parameters():
                p.add_(0.1 * torch.randn_like(p))
        for scale in (1, 2):
            block(images() * scale)
    return block.eval()


@torch.no_grad()
@every_solver
@both_configurations
@pytest.mark.parametrize("residual", [False, True])
def test_it_computes_the_bits_of_the_block(residual, configuration, solver):
    block = trained(image_field(), coupling=configuration(3), solver=solver, residual=residual)
    assert torch.equal(block.materialize()(images()), block(images()))


@torch.no_grad()
@pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_it_computes_the_bits_of_every_evolution_and_strategy(strategy, evolution):
    block = trained(image_field(), evolution=evolution, gradient=strategy)
    assert torch.equal(block.materialize()(images()), block(images()))


@torch.no_grad()
def test_it_computes_the_bits_of_a_block_without_norms_of_its_own():
    block = trained(image_field(), per_step=())
    assert torch.equal(block.materialize()(images()), block(images()))


@torch.no_grad()
@pytest.mark.parametrize("parametrization", [weight_norm, spectral_norm])
def test_it_computes_the_bits_of_parametrized_weights(parametrization):
    field = nn.Sequential(parametrization(nn.Conv2d(4, 4, 3, padding=1)), nn.Tanh())
    block = trained(field)
    assert torch.equal(block.materialize()(images()), block(images()))


@torch.no_grad()
def test_it_computes_the_bits_of_a_weight_under_two_names():
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))
    field[2].weight = field[0].weight
    block = trained(field)
    assert torch.equal(block.materialize()(images()), block(images()))


class TwoNames(nn.Module):
    """A convolution whose weight has two names, the second of which is used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(0.3 * torch.randn(4, 4, 3, 3))
        self.second = self.first

    def forward(self, z: Tensor) -> Tensor:
        return torch.conv2d(z, self.second, padding=1).tanh()


@torch.no_grad()
def test_it_computes_the_bits_of_a_weight_under_two_names_of_one_module_and_holds_it_once():
    block = trained(TwoNames(), coupling=configuration_1(3), evolve=["first"])
    plain = block.materialize()
    assert torch.equal(plain(images()), block(images()))
    assert sum(p.numel() for p in plain.parameters()) == 3 * 4 * 4 * 9


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_field_that_changes_its_input_in_place_is_refused_as_by_the_block(context):
    field = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
    plain = CoupledODE(field).materialize()
    with context(), pytest.raises(RuntimeError, match="Sequential changes its input in place"):
        plain(images())


def test_a_z0_made_in_inference_mode_has_the_gradients_of_its_copy():
    plain = trained(image_field()).materialize()
    with torch.inference_mode():
        z0 = images()
    found, expected = (
        torch.autograd.grad(plain(z).square().sum(), list(plain.parameters()))
        for z in (z0, z0.clone())
    )
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@torch.no_grad()
@pytest.mark.parametrize(
    "export",
    [lambda plain, z: torch.export.export(plain, (z,)).module(), torch.jit.trace],
    ids=["export", "trace"],
)
@pytest.mark.filterwarnings("ignore")
def test_it_computes_its_bits_when_exported_or_traced(export):
    plain = trained(image_field()).materialize()
    assert torch.equal(export(plain, images())(images()), plain(images()))


def test_it_has_neither_an_evolution_nor_parameters_of_one():
    plain = trained(image_field()).materialize()
    assert not any(isinstance(m, (Evolution, CoupledODE)) for m in plain.modules())
    assert {n.rsplit(".", 1)[-1] for n, _ in plain.named_parameters()} == {"weight", "bias"}


@pytest.mark.parametrize("evolution", [Frozen, ReactionDiffusionAdvection])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_parameter_stays_frozen_and_theta_of_a_frozen_w0_too(frozen, evolution):
    field = nn.Sequential(*link(4, order="pre"), nn.Conv2d(4, 4, 3, padding=1))
    field[2].weight.requires_grad_(not frozen)
    field[3].bias.requires_grad_(False)
    block = trained(field, coupling=configuration_1(3), evolution=evolution)
    block.norms[1].requires_grad_(False)
    steps = block.materialize().steps
    flags = [{n: p.requires_grad for n, p in step[0].named_parameters()} for step in steps]
    moving = {"2.weight": not frozen, "3.weight": True, "3.bias": False}
    norms = [{"0.weight": own, "0.bias": own} for own in (True, True, False)]
    assert flags == [norm | moving for norm in norms]


class Indexed(nn.Module):
    """Orders channels by a parameter of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.order = nn.Parameter(torch.tensor([1, 3, 0, 2]), requires_grad=False)
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        return self.convolution(z[:, self.order])


@torch.no_grad()
def test_it_computes_the_bits_of_a_field_with_a_parameter_of_integers():
    block = CoupledODE(Indexed())
    assert torch.equal(block.materialize()(images()), block(images()))


def test_the_modes_of_a_frozen_compressed_state_are_written_out_frozen():
    field = compress(nn.Conv2d(4, 4, 3, padding=1), factor=2)
    field.parametrizations.weight.requires_grad_(False)
    plain = CoupledODE(field).materialize()
    flags = {(n.rpartition(".")[2], p.requires_grad) for n, p in plain.named_parameters()}
    assert flags == {("weight", False), ("bias", True)}


def test_it_stands_alone_when_the_block_changes():
    block = trained(image_field())
    plain = block.materialize()
    expected = plain(images())
    with torch.no_grad():
        for tensor in (*block.parameters(), *block.buffers()):
            tensor.zero_()
    assert torch.equal(plain(images()), expected)


def test_it_leaves_the_block_as_it_was():
    block = trained(image_field())
    before = deepcopy(block.state_dict())
    expected = block(images())
    block.materialize()
    assert list(block.state_dict()) == list(before)
    assert all(torch.equal(v, before[n]) for n, v in block.state_dict().items())
    assert torch.equal(block(images()), expected)


@both_configurations
def test_steps_share_what_does_not_differ_between_them(configuration):
    field = nn.Sequential(nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))
    plain = trained(field, coupling=configuration(3)).materialize()
    bias, kernels, norms = 4, 3 * 4 * 4 * 9, 3 * 2 * 4
    assert sum(p.numel() for p in plain.parameters()) == bias + kernels + norms


@every_solver
def test_stages_that_read_one_theta_share_it(solver):
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Tanh())
    block = trained(field, coupling=configuration_1(2), solver=solver)
    plain = block.materialize()
    assert sum(p.numel() for p in plain.parameters()) == len(block.read_times) * 4 * 4 * 9


@both_configurations
def test_weights_that_do_not_move_are_held_once(configuration):
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Tanh())
    plain = trained(field, coupling=configuration(3), evolution=Frozen).materialize()
    assert sum(p.numel() for p in plain.parameters()) == 4 * 4 * 9


def test_its_state_round_trips_through_a_copy():
    plain = trained(image_field()).materialize()
    other = trained(image_field()).materialize()
    other.load_state_dict(plain.state_dict())
    assert torch.equal(other(images()), plain(images()))


def test_a_materialized_block_is_in_the_mode_of_its_block():
    block = CoupledODE(nn.Conv2d(4, 4, 3, padding=1))
    assert {m.training for m in block.materialize().modules()} == {True}
    assert {m.training for m in block.eval().materialize().modules()} == {False}
