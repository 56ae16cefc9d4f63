"""What recomputation cannot do, and what no strategy may do: errors that say what to change."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from twins import RECOMPUTING, Failing, convolution, coupled, images, twin

from anodev2 import CoupledODE
from anodev2.gradient import Binomial, Checkpoint, GradientStrategy
from anodev2.solver import RK4
from cases import STRATEGIES

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


def second_derivative(block: CoupledODE) -> None:
    z0 = images(4).requires_grad_()
    torch.autograd.grad(block(z0).sum(), z0, create_graph=True)


def hessian(block: CoupledODE) -> None:
    torch.autograd.functional.hvp(lambda z: block(z).square().sum(), images(4), images(4))


def mapped(block: CoupledODE) -> None:
    torch.func.vmap(block)(images(4)[None])


def functional_gradient(block: CoupledODE) -> None:
    torch.func.grad(lambda z: block(z).sum())(images(4))


def functional_gradient_of_weights(block: CoupledODE) -> None:
    weights = {name: p.detach() for name, p in block.named_parameters()}
    torch.func.grad(lambda w: torch.func.functional_call(block, w, images(4)).sum())(weights)


def gradient_of_each_image(block: CoupledODE) -> None:
    torch.func.vmap(torch.func.grad(lambda z: block(z[None]).sum()))(images(4))


def forward_mode(block: CoupledODE) -> None:
    with forward_ad.dual_level():
        block(forward_ad.make_dual(images(4), images(4)))


def jacobian_vector_product(block: CoupledODE) -> None:
    torch.func.jvp(block, (images(4),), (images(4),))


def jacobian_by_forward_mode(block: CoupledODE) -> None:
    z0 = images(4)
    torch.func.jacfwd(lambda scale: block(scale * z0))(torch.ones(()))


UNSUPPORTED = [
    second_derivative,
    hessian,
    mapped,
    functional_gradient,
    functional_gradient_of_weights,
    gradient_of_each_image,
    forward_mode,
    jacobian_vector_product,
    jacobian_by_forward_mode,
]


@recomputing
@pytest.mark.parametrize("attempt", UNSUPPORTED, ids=lambda attempt: attempt.__name__)
def test_what_recomputation_cannot_do_raises_an_error_that_names_direct(
    strategy: GradientStrategy, attempt: Callable[[CoupledODE], None]
) -> None:
    block = coupled(nn.Sequential(convolution(), nn.Tanh()), gradient=strategy)
    with pytest.raises(RuntimeError, match=r"gradient=Direct\(\)"):
        attempt(block)


@recomputing
def test_a_refused_second_derivative_leaves_the_block_usable(strategy: GradientStrategy) -> None:
    block = coupled(nn.Sequential(convolution(), nn.Tanh()), gradient=strategy)
    before = block(images(4))
    with pytest.raises(RuntimeError, match="Direct"):
        second_derivative(block)
    assert torch.equal(block(images(4)), before)


class InPlace(nn.Module):
    """A field that adds to its input, and names no module that does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolution()

    def forward(self, z: Tensor) -> Tensor:
        return self.inner(z.view(-1, 4, 8, 8).add_(1))


@every_strategy
@pytest.mark.parametrize("training", [True, False])
def test_a_field_with_an_activation_that_changes_its_input_in_place_is_refused_by_its_name(
    strategy: GradientStrategy, training: bool
) -> None:
    block = coupled(nn.Sequential(nn.ReLU(inplace=True), convolution()), gradient=strategy)
    with torch.set_grad_enabled(training), pytest.raises(RuntimeError, match="in place") as error:
        block(images(4))
    assert "Sequential" in str(error.value)
    assert "'0'" in str(error.value)


@every_strategy
@pytest.mark.parametrize("solver", [None, RK4()], ids=str)
def test_a_field_that_changes_a_view_of_its_input_is_refused_by_name(
    strategy: GradientStrategy, solver: RK4 | None
) -> None:
    chosen = {} if solver is None else {"solver": solver}
    block = coupled(InPlace(), gradient=strategy, **chosen)
    with pytest.raises(RuntimeError, match="InPlace changes its input in place"):
        block(images(4))


@every_strategy
def test_a_field_that_changes_a_tensor_of_its_own_in_place_is_not_refused(
    strategy: GradientStrategy,
) -> None:
    torch.manual_seed(0)
    inplace = coupled(nn.Sequential(convolution(), nn.ReLU(inplace=True)), gradient=strategy)
    outofplace = twin(inplace, strategy)
    outofplace.field[1].inplace = False
    gradients = []
    for block in (inplace, outofplace):
        block(images(4)).sum().backward()
        gradients.append([p.grad for p in block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("kind", [Checkpoint, Binomial])
@pytest.mark.parametrize("count", [0, -1])
def test_less_than_one_segment_or_slot_is_refused_with_the_number_given(
    kind: type[GradientStrategy], count: int
) -> None:
    with pytest.raises(ValueError, match=f"at least 1, got {count}"):
        kind(count)


def surroundings(block: CoupledODE) -> tuple[object, ...]:
    """What a failed pass must hand back: weights, random and autocast state, grad mode."""
    return (
        [id(p) for p in block.parameters()],
        torch.get_rng_state().tolist(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
    )


@recomputing
def test_a_field_that_fails_when_recomputed_leaves_the_block_and_the_random_state_alone(
    strategy: GradientStrategy,
) -> None:
    block = coupled(Failing(at=8), gradient=strategy)
    with torch.autocast("cpu", torch.bfloat16):
        output = block(images(4)).sum()
    buffers = {name: b.clone() for name, b in block.named_buffers()}
    before = surroundings(block)
    with pytest.raises(ArithmeticError, match="the field failed"):
        output.backward()
    assert surroundings(block) == before
    assert all(torch.equal(b, buffers[name]) for name, b in block.named_buffers())


@every_strategy
def test_a_field_that_fails_leaves_the_parameters_in_their_places(
    strategy: GradientStrategy,
) -> None:
    block = coupled(Failing(at=3), gradient=strategy)
    before = surroundings(block)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ArithmeticError):
        block(images(4))
    after = surroundings(block)
    assert (after[0], *after[2:]) == (before[0], *before[2:])
