"""torch.func transforms and second derivatives of a block by `Direct`."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, stack_module_state, vjp, vmap

from anodev2 import CoupledODE, configuration_1


class Field(nn.Module):
    def __init__(self, norm: nn.Module, *, channels: int = 4) -> None:
        super().__init__()
        self.norm = norm
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        return self.convolution(self.norm(z)).tanh()


NORMS = {
    "in evaluation": lambda: nn.BatchNorm2d(4).eval(),
    "without running statistics": lambda: nn.BatchNorm2d(4, track_running_stats=False),
}
every_norm = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


def block(norm: nn.Module, *, seed: int = 0) -> CoupledODE:
    torch.manual_seed(seed)
    return CoupledODE(Field(norm), coupling=configuration_1(3))


@every_norm
def test_a_block_mapped_over_inputs_is_the_loop_over_them(norm):
    subject = block(norm())
    z0 = torch.randn(3, 2, 4, 5, 5)
    expected = torch.stack([subject(z) for z in z0])
    torch.testing.assert_close(vmap(subject)(z0), expected, rtol=1e-5, atol=1e-6)


@every_norm
def test_an_ensemble_of_weights_is_the_loop_over_its_members(norm):
    members = [block(norm(), seed=seed) for seed in range(3)]
    z0 = torch.randn(2, 4, 5, 5)
    parameters, buffers = stack_module_state(members)
    found = vmap(lambda p, b: functional_call(members[0], (p, b), (z0,)))(parameters, buffers)
    expected = torch.stack([member(z0) for member in members])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@every_norm
def test_gradients_of_an_ensemble_are_those_of_its_members(norm):
    members = [block(norm(), seed=seed) for seed in range(3)]
    z0 = torch.randn(2, 4, 5, 5)
    parameters, buffers = stack_module_state(members)

    def loss(parameters, buffers):
        return functional_call(members[0], (parameters, buffers), (z0,)).square().sum()

    found = vmap(grad(loss))(parameters, buffers)
    for i, member in enumerate(members):
        member(z0).square().sum().backward()
        for name, p in member.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad, rtol=1e-5, atol=1e-5)


def smooth() -> tuple[CoupledODE, Tensor]:
    """A small block in float64 whose weights move, and a state for it."""
    torch.manual_seed(0)
    subject = CoupledODE(Field(nn.Identity(), channels=2), coupling=configuration_1(2))
    for p in subject.evolution.parameters():
        nn.init.normal_(p, std=0.1)
    return subject.double(), torch.randn(1, 2, 3, 3, dtype=torch.float64)


def of_everything(subject: CoupledODE):
    """The block as a function of z0 and of all its parameters, and their names."""
    names = [name for name, _ in subject.named_parameters()]

    def function(z0: Tensor, *values: Tensor) -> Tensor:
        return functional_call(subject, dict(zip(names, values, strict=True)), (z0,))

    return function, tuple(p.detach() for p in subject.parameters())


def test_second_derivatives_of_z0_w0_and_p_are_those_of_finite_differences():
    subject, z0 = smooth()
    function, values = of_everything(subject)
    inputs = [x.clone().requires_grad_() for x in (z0, *values)]
    assert torch.autograd.gradgradcheck(function, inputs)


def tangents(values) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in values)


def test_a_product_with_the_jacobian_forward_agrees_with_the_one_backward():
    subject, z0 = smooth()
    function, values = of_everything(subject)
    point = (z0, *values)
    direction = tangents(point)
    end, forward = jvp(function, point, direction)
    (cotangent,) = tangents((end,))
    backward = vjp(function, *point)[1](cotangent)
    expected = sum((g * t).sum() for g, t in zip(backward, direction, strict=True))
    torch.testing.assert_close((forward * cotangent).sum(), expected, rtol=1e-12, atol=1e-12)


def test_a_product_with_the_hessian_forward_over_backward_is_the_one_backward_over_backward():
    subject, z0 = smooth()
    function, values = of_everything(subject)
    point = (z0, *values)
    direction = tangents(point)

    def loss(*point: Tensor) -> Tensor:
        return function(*point).square().sum()

    every = tuple(range(len(point)))
    _, found = jvp(grad(loss, argnums=every), point, direction)
    expected = torch.autograd.functional.hvp(loss, point, direction)[1]
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_gradients_sample_by_sample_are_the_loop_over_samples():
    subject, _ = smooth()
    z0 = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    parameters = dict(subject.named_parameters())

    def loss(parameters, z: Tensor) -> Tensor:
        return functional_call(subject, parameters, (z[None],)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, z0)
    for i, z in enumerate(z0):
        expected = torch.autograd.grad(loss(parameters, z), list(parameters.values()))
        for name, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[name][i], gradient, rtol=1e-12, atol=1e-13)
