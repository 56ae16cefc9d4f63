"""Norms of which each step owns a copy, and weights under two names or parametrized."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import Frozen
from anodev2.models.residual import link
from cases import EVOLUTIONS, SOLVERS, STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
STEPS = 3


def images() -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(0))


def frozen_block(field: nn.Module, **settings) -> CoupledODE:
    return CoupledODE(field, coupling=configuration_1(STEPS), evolution=Frozen, **settings)


def euler_loop(fields: list[nn.Module], z: Tensor) -> Tensor:
    for field in fields:
        z = torch.add(z, field(z), alpha=1 / len(fields))
    return z


def fields_by_hand(block: CoupledODE) -> list[nn.Module]:
    """The field of each step, with norm, ReLU, convolution of `link` put together anew."""
    norm, relu, convolution = block.field
    norms = [norm, *(copy.get_submodule("0") for copy in block.norms)]
    return [nn.Sequential(n, relu, convolution) for n in norms]


def stirred(block: CoupledODE) -> CoupledODE:
    """The block with other weights and statistics in each of its norms."""
    source = torch.Generator().manual_seed(1)
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                tensor.data.copy_(torch.rand(4, generator=source) + 0.5)
    return block


def block_with_norms(strategy, **settings) -> CoupledODE:
    torch.manual_seed(2)
    field = nn.Sequential(*link(4, order="pre"))
    return stirred(frozen_block(field, gradient=strategy, **settings))


@every_strategy
def test_step_i_uses_the_fields_own_norm_first_and_then_copy_i_minus_1(strategy):
    block = block_with_norms(strategy).eval()
    assert torch.equal(block(images()), euler_loop(fields_by_hand(block), images()))


@every_strategy
def test_step_i_updates_the_statistics_of_its_own_norm_alone_and_once(strategy):
    block = block_with_norms(strategy)
    by_hand = deepcopy(block)
    euler_loop(fields_by_hand(by_hand), images())
    block(images().requires_grad_()).sum().backward()
    expected = dict(by_hand.named_buffers())
    assert len(expected) == 3 * STEPS
    for name, buffer in block.named_buffers():
        assert torch.equal(buffer, expected[name]), name


@every_strategy
def test_each_steps_norm_gets_its_own_gradient(strategy):
    block, z = block_with_norms(strategy).double(), images().double()
    by_hand = deepcopy(block)
    block(z).square().sum().backward()
    euler_loop(fields_by_hand(by_hand), z).square().sum().backward()
    expected = dict(by_hand.named_parameters())
    for name, parameter in block.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-12, atol=1e-12)


@every_solver
def test_all_stages_of_a_step_use_and_update_that_steps_norm(solver):
    field = nn.Sequential(*link(4, order="pre"))
    block = frozen_block(field, solver=solver)
    block(images())
    counts = [b.item() for n, b in block.named_buffers() if n.endswith("num_batches_tracked")]
    assert counts == [len(solver.tableau.c)] * STEPS


@every_strategy
def test_without_per_step_types_all_steps_share_the_fields_own_norm(strategy):
    block = block_with_norms(strategy, per_step=())
    fields = [block.field] * STEPS
    assert len(block.norms) == 0
    assert torch.equal(block.eval()(images()), euler_loop(fields, images()))
    block.train()(images())
    assert block.field[0].num_batches_tracked == STEPS


def test_a_field_without_norms_has_no_copies():
    assert list(frozen_block(nn.Conv2d(4, 4, 3, padding=1)).norms.parameters()) == []


def test_copies_start_as_the_fields_own_norm():
    field = nn.Sequential(*link(4, order="pre"))
    nn.init.uniform_(field[0].weight)
    block = frozen_block(field)
    for copy in block.norms:
        assert torch.equal(copy.get_parameter("0.weight"), field[0].weight)
        assert copy.get_parameter("0.weight") is not field[0].weight


@pytest.mark.parametrize("kind", [nn.GroupNorm, nn.Conv2d])
def test_any_module_type_can_be_copied_for_each_step(kind):
    field = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1))
    block = frozen_block(field, per_step=(kind,), evolve=())
    place = [isinstance(m, kind) for m in field].index(True)
    names = {n for n, _ in block.norms.named_parameters()}
    assert names == {f"{i}.{place}.{n}" for i in range(STEPS - 1) for n in ("weight", "bias")}


class Centred(nn.Module):
    """Subtracts a running mean that it replaces by a new tensor instead of writing to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, z: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * z.detach().mean()
        return z - self.mean


@every_strategy
def test_a_buffer_that_a_step_replaces_is_kept_in_that_steps_copy(strategy):
    field = nn.Sequential(Centred(), nn.Conv2d(4, 4, 1))
    block = frozen_block(field, per_step=(Centred,), gradient=strategy)
    modules = [nn.Sequential(Centred(), field[1]) for _ in range(STEPS)]
    end = euler_loop(modules, images())
    assert torch.equal(block(images()), end)
    kept = [block.field[0].mean, *(copy.get_buffer("0.mean") for copy in block.norms)]
    assert [b.item() for b in kept] == [m[0].mean.item() for m in modules]


@every_strategy
def test_a_norm_under_two_names_is_replaced_by_a_steps_copy_under_both(strategy):
    norm, convolution = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
    field = nn.Sequential(norm, convolution, norm)
    block = stirred(frozen_block(field, gradient=strategy)).eval()
    norms = [norm, *(copy.get_submodule("0") for copy in block.norms)]
    fields = [nn.Sequential(n, convolution, n) for n in norms]
    assert torch.equal(block(images()), euler_loop(fields, images()))


def test_norms_that_share_a_weight_share_it_in_each_steps_copy_too():
    norms = [nn.BatchNorm2d(4), nn.BatchNorm2d(4)]
    norms[1].weight = norms[0].weight
    block = frozen_block(nn.Sequential(norms[0], nn.Conv2d(4, 4, 1), norms[1]))
    names = [name for name, _ in block.norms.named_parameters()]
    assert names == [f"{i}.{n}" for i in range(STEPS - 1) for n in ("0.weight", "0.bias", "2.bias")]


@every_strategy
def test_a_module_used_twice_is_run_as_in_the_loop_by_hand_and_keeps_its_parameters(strategy):
    convolution = nn.Conv2d(4, 4, 3, padding=1)
    field = nn.Sequential(convolution, nn.Tanh(), convolution)
    block = CoupledODE(field, coupling=configuration_1(STEPS), gradient=strategy)
    before = dict(block.named_parameters())
    z = images()
    for theta in block.weight_trajectory()["field.0.weight"]:
        hidden = torch.conv2d(z, theta, convolution.bias, padding=1).tanh()
        z = torch.add(z, torch.conv2d(hidden, theta, convolution.bias, padding=1), alpha=1 / STEPS)
    assert torch.equal(block(images()), z)
    after = dict(block.named_parameters())
    assert list(after) == list(before)
    assert all(after[n] is p for n, p in before.items())


def tied_field() -> nn.Sequential:
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))
    field[2].weight = field[0].weight
    return field.double()


@every_strategy
def test_a_weight_under_two_names_evolves_once_and_is_read_under_both(strategy):
    field = tied_field()
    block = CoupledODE(field, coupling=configuration_1(STEPS), gradient=strategy).double()
    z = images().double()
    assert block.evolved == ("field.0.weight",)
    for theta in block.weight_trajectory()["field.0.weight"]:
        hidden = torch.conv2d(z, theta, field[0].bias, padding=1).tanh()
        z = torch.add(z, torch.conv2d(hidden, theta, field[2].bias, padding=1), alpha=1 / STEPS)
    assert torch.equal(block(images().double()), z)


@every_strategy
def test_the_gradient_of_a_weight_under_two_names_is_the_sum_over_both(strategy):
    z = images().double()
    block = frozen_block(tied_field(), gradient=strategy)
    weight = block.field[0].weight
    (found,) = torch.autograd.grad(block(z).square().sum(), weight)
    (expected,) = torch.autograd.grad(euler_loop([block.field] * STEPS, z).square().sum(), weight)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@every_strategy
@pytest.mark.parametrize("parametrization", [weight_norm, spectral_norm])
def test_parametrized_weights_run_as_in_the_loop_by_hand_and_keep_their_buffers(
    parametrization, strategy
):
    blocks = []
    for _ in range(2):
        torch.manual_seed(3)
        convolution = parametrization(nn.Conv2d(4, 4, 3, padding=1).double())
        blocks.append(frozen_block(nn.Sequential(convolution, nn.Tanh()), gradient=strategy))
    (block, by_hand), z = blocks, images().double()
    found, expected = block(z), euler_loop([by_hand.field] * STEPS, z)
    assert torch.equal(found, expected)
    (first, second) = (
        torch.autograd.grad(end.square().sum(), list(b.field.parameters()))
        for end, b in ((found, block), (expected, by_hand))
    )
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)
    for a, b in zip(block.buffers(), by_hand.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("parametrization", "original"), [(weight_norm, "original1"), (spectral_norm, "original")]
)
@pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
def test_what_evolves_of_a_parametrized_weight_is_the_tensor_of_its_shape(
    evolution, parametrization, original
):
    field = parametrization(nn.Conv2d(4, 4, 3, padding=1))
    block = CoupledODE(field, evolution=evolution)
    assert block.evolved == (f"field.parametrizations.weight.{original}",)


@every_strategy
def test_a_parametrization_acts_on_theta_at_each_read(strategy):
    field = weight_norm(nn.Conv2d(4, 4, 3, padding=1, bias=False))
    block = CoupledODE(field, coupling=configuration_1(STEPS), gradient=strategy)
    scale = field.parametrizations.weight.original0
    z = images()
    for theta in block.weight_trajectory()["field.parametrizations.weight.original1"]:
        weight = torch._weight_norm(theta, scale, 0)
        z = torch.add(z, torch.conv2d(z, weight, padding=1), alpha=1 / STEPS)
    assert torch.equal(block(images()), z)
