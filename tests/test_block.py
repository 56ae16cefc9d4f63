"""The coupled system: its special cases to the bit, and its gradients."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, Coupling, configuration_1, configuration_2
from anodev2.evolution import Frozen, ReactionDiffusionAdvection
from anodev2.gradient import ContinuousAdjoint, Direct
from anodev2.memory import Dirac
from anodev2.models.residual import Residual, link
from cases import EVOLUTIONS, MEMORY_KERNELS, SOLVERS, STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
LINEAR = partial(ReactionDiffusionAdvection, activation=None)
both_configurations = pytest.mark.parametrize(
    "configuration",
    [configuration_1, partial(configuration_2, w_steps=4)],
    ids=["configuration_1", "configuration_2"],
)


def image_field() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*link(4, order="pre"), *link(4, order="pre"))


def smooth_field() -> nn.Sequential:
    """A small smooth field in float64 without norms, channels 2."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Tanh()).double()


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(seed))


def signals() -> Tensor:
    return torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def stirred(block: CoupledODE) -> CoupledODE:
    """The block with random coefficients of the evolution and of the memory."""
    source = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in (block.evolution, block.memory):
            for p in part.parameters():
                p.add_(0.4 * torch.rand(p.shape, generator=source) - 0.2)
    return block


def gradients(module: nn.Module, z: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """z(1) and the gradients of z0 and of the parameters under `field`."""
    z = z.clone().requires_grad_()
    end = module(z)
    names, values = zip(*module.get_submodule("field").named_parameters(), strict=True)
    weights = torch.linspace(-1, 1, end.numel(), dtype=end.dtype).reshape(end.shape)
    found = torch.autograd.grad((end * weights).sum(), (z, *values))
    return end, dict(zip(("z0", *names), found, strict=True))


def assert_same_bits(found: tuple, expected: tuple):
    assert torch.equal(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        assert torch.equal(found[1][name], gradient), name


@every_strategy
def test_one_euler_step_of_frozen_weights_is_the_baseline_block_to_the_bit(strategy):
    field = image_field()
    block = CoupledODE(
        field, coupling=configuration_1(steps=1), evolution=Frozen, gradient=strategy
    )
    assert_same_bits(gradients(block, images()), gradients(Residual(field), images()))


class Loop(nn.Module):
    """Euler steps of a field, written by hand."""

    def __init__(self, field: nn.Module, steps: int) -> None:
        super().__init__()
        self.field = field
        self.steps = steps

    def forward(self, z: Tensor) -> Tensor:
        for _ in range(self.steps):
            z = torch.add(z, self.field(z), alpha=1 / self.steps)
        return z


@pytest.mark.parametrize("steps", [2, 5])
def test_frozen_weights_are_the_euler_loop_written_by_hand_to_the_bit(steps):
    field = image_field()
    block = CoupledODE(field, coupling=configuration_1(steps), evolution=Frozen, per_step=())
    assert_same_bits(gradients(block, images()), gradients(Loop(field, steps), images()))


def at_rest_and_frozen(field, coupling, solver) -> list[CoupledODE]:
    return [
        CoupledODE(field, coupling=coupling, evolution=evolution, solver=solver)
        for evolution in (LINEAR, Frozen)
    ]


@every_solver
@both_configurations
def test_an_evolution_at_rest_without_sigma_is_frozen_to_the_bit(configuration, solver):
    still, frozen = at_rest_and_frozen(image_field(), configuration(3), solver)
    assert torch.equal(still.eval()(images()), frozen.eval()(images()))


@every_solver
@both_configurations
def test_an_evolution_at_rest_has_the_gradients_of_frozen_to_rounding(configuration, solver):
    field = image_field().eval().double()
    still, frozen = at_rest_and_frozen(field, configuration(3), solver)
    found, expected = (gradients(block.double(), images().double()) for block in (still, frozen))
    torch.testing.assert_close(found[1], expected[1], rtol=1e-13, atol=1e-13)


def test_a_hypernetwork_is_one_step_that_reads_theta_1():
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    block = stirred(CoupledODE(field, coupling=Coupling(1, 1, read_times=(1.0,))))
    z, (conv, _) = images(), field
    theta = block.evolution.get_submodule("0.weight")(conv.weight, 0.0, 1.0)
    assert block.read_times == (1.0,)
    assert torch.equal(block(z), z + torch.conv2d(z, theta, conv.bias, padding=1).tanh())


@both_configurations
def test_each_step_uses_the_theta_of_its_own_read(configuration):
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    block = stirred(CoupledODE(field, coupling=configuration(3)))
    z = images()
    for theta in block.weight_trajectory()["field.0.weight"]:
        f = torch.conv2d(z, theta, field[0].bias, padding=1).tanh()
        z = torch.add(z, f, alpha=1 / 3)
    assert torch.equal(block(images()), z)


def check_gradients(block: CoupledODE, *, fast_mode: bool = False) -> bool:
    """Of z0, w0, p and all other parameters; gradcheck moves them where they are.

    In fast mode along one random direction of all of an input, instead of entry by entry.
    """
    z = signals().requires_grad_()
    inputs = (z, *block.parameters())
    return torch.autograd.gradcheck(
        lambda z, *_: block(z), inputs, rtol=1e-5, atol=1e-7, fast_mode=fast_mode
    )


@every_strategy
@both_configurations
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_gradients_of_z0_w0_and_p_are_those_of_finite_differences(steps, configuration, strategy):
    block = CoupledODE(smooth_field(), coupling=configuration(steps), gradient=strategy).double()
    assert check_gradients(stirred(block))


@every_solver
@every_strategy
def test_every_solver_has_the_gradients_of_finite_differences(strategy, solver):
    coupling = configuration_1(steps=2)
    block = CoupledODE(smooth_field(), coupling=coupling, gradient=strategy, solver=solver)
    assert check_gradients(stirred(block.double()))


@pytest.mark.parametrize("kernel", MEMORY_KERNELS)
@pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
def test_every_evolution_and_memory_has_the_gradients_of_finite_differences(evolution, kernel):
    block = CoupledODE(
        smooth_field(), coupling=configuration_1(steps=3), evolution=evolution, memory=kernel()
    )
    alone = kernel is Dirac or evolution is ReactionDiffusionAdvection
    assert check_gradients(stirred(block.double()), fast_mode=not alone)


@every_strategy
def test_a_residual_module_has_the_gradients_of_finite_differences(strategy):
    block = CoupledODE(smooth_field(), residual=True, gradient=strategy).double()
    assert check_gradients(stirred(block))


@both_configurations
def test_the_direct_gradient_is_differentiable_again(configuration):
    block = stirred(CoupledODE(smooth_field(), coupling=configuration(2)).double())
    z = signals().requires_grad_()
    inputs = (z, *block.parameters())
    assert torch.autograd.gradgradcheck(lambda z, *_: block(z), inputs, rtol=1e-5, atol=1e-7)


def test_direct_under_vmap_is_the_block_sample_by_sample():
    block = stirred(CoupledODE(smooth_field(), gradient=Direct()).double())
    z = torch.stack([signals() * scale for scale in (1, -2, 0.5)])
    together = torch.func.vmap(block)(z)
    torch.testing.assert_close(together, torch.stack([block(x) for x in z]), rtol=1e-14, atol=1e-15)


def test_direct_under_torch_func_grad_is_autograd():
    block = stirred(CoupledODE(smooth_field(), gradient=Direct()).double())
    parameters, z = dict(block.named_parameters()), signals()

    def loss(parameters):
        return torch.func.functional_call(block, parameters, (z,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    expected = torch.autograd.grad(block(z).square().sum(), list(parameters.values()))
    for name, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-13, atol=1e-15)


@every_strategy
@both_configurations
def test_a_forward_and_backward_pass_leaves_the_fields_own_parameters_as_they_were(
    configuration, strategy
):
    field = image_field()
    before = dict(field.named_parameters())
    values = {n: p.clone() for n, p in before.items()}
    block = stirred(CoupledODE(field, coupling=configuration(3), gradient=strategy))
    block(images()).sum().backward()
    after = dict(field.named_parameters())
    assert all(after[n] is before[n] and torch.equal(after[n], values[n]) for n in before)


@every_strategy
def test_p_that_no_step_reads_gets_zeros(strategy):
    block = CoupledODE(smooth_field(), coupling=configuration_1(steps=1), gradient=strategy)
    block.double()(signals()).sum().backward()
    for p in block.evolution.parameters():
        assert torch.equal(p.grad, torch.zeros_like(p))


@pytest.mark.parametrize("strategy", [*STRATEGIES, ContinuousAdjoint()], ids=repr)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_z0_made_in_inference_mode_has_the_gradients_of_its_copy(steps, strategy):
    block = stirred(CoupledODE(image_field(), coupling=configuration_1(steps), gradient=strategy))
    with torch.inference_mode():
        z0 = images()
    found = []
    for z in (z0, z0.clone()):
        end = block.train()(z)
        found.append((end, *torch.autograd.grad(end.square().sum(), list(block.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
