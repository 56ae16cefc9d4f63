"""Blocks that differ in their gradient strategy alone, and all that a run of one leaves."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.gradient import GradientStrategy
from anodev2.gradient.recompute import Recomputing
from anodev2.models import build_model
from cases import STRATEGIES

STEPS = 5
RECOMPUTING = [s for s in STRATEGIES if isinstance(s, Recomputing) and s.schedule(STEPS)]
M = TypeVar("M", bound=nn.Module)


def resnet_field(*, order: str = "pre", dropout: float = 0.2, channels: int = 16) -> nn.Sequential:
    """The field of ResNet-4's block, with dropout between its links; narrower if asked."""
    if channels == 16:
        block = build_model("resnet4", method="anodev2-1", order=order)[3]
        return nn.Sequential(*block.field[:3], nn.Dropout(dropout), *block.field[3:])
    return nn.Sequential(
        *(nn.BatchNorm2d(channels), nn.ReLU(), convolution(channels), nn.Dropout(dropout)),
        *(nn.BatchNorm2d(channels), nn.ReLU(), convolution(channels)),
    )


class Failing(nn.Module):
    """The field of the small block, which fails at its evaluation of number `at` alone."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.inner = resnet_field(channels=4)
        self.left = at

    def forward(self, z: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            raise ArithmeticError("the field failed")
        return self.inner(z)


def convolution(channels: int = 4, *, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, padding=1, bias=bias)


def coupled(field: nn.Module | None = None, *, steps: int = STEPS, **settings: Any) -> CoupledODE:
    """A block by `Direct` whose weights move; that of ResNet-4 without a field."""
    settings.setdefault("coupling", configuration_1(steps))
    block = CoupledODE(resnet_field() if field is None else field, **settings)
    for p in block.evolution.parameters():
        nn.init.normal_(p, std=0.2)
    return block


def twin(model: M, gradient: GradientStrategy) -> M:
    """The same model with another gradient strategy in its blocks."""
    copy = deepcopy(model)
    for module in copy.modules():
        if isinstance(module, CoupledODE):
            module.gradient = gradient
    return copy


def images(channels: int = 16, *, size: int = 8, batch: int = 8, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, channels, size, size, generator=generator)


def cotangent(output: Tensor) -> Tensor:
    """A gradient of the output to start from, as random as the images."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(output.shape, generator=generator).to(output.dtype)


def run(
    model: nn.Module,
    z0: Tensor,
    *,
    needs_z0: bool = True,
    autocast: bool = False,
    backward_inside: bool = False,
) -> dict[str, Tensor | None]:
    """One forward and one backward pass from a fixed seed: all that it returns and leaves."""
    model.zero_grad()
    torch.manual_seed(3)
    z0 = z0.detach().clone().requires_grad_(needs_z0)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = model(z0)
        drawn = torch.get_rng_state()
        if backward_inside and output.requires_grad:
            output.backward(cotangent(output))
    if not backward_inside and output.requires_grad:
        output.backward(cotangent(output))
    return {
        "output": output.detach(),
        "random state after the forward pass": drawn,
        "random state after the backward pass": torch.get_rng_state(),
        "gradient of z0": z0.grad,
        **gradients(model),
        **{f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()},
    }


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {f"gradient of {name}": p.grad for name, p in model.named_parameters()}


def train(model: nn.Module, *, steps: int = 5, channels: int = 16) -> dict[str, Tensor]:
    """Steps of momentum SGD, each on other images: the state dictionary at the end."""
    torch.manual_seed(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(images(channels, seed=10 + step)).square().mean().backward()
        optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def mismatch(strategy: GradientStrategy, direct: nn.Module, z0: Tensor, **options: bool) -> str:
    """What `strategy` changes against `Direct` in a run from the same state; empty if nothing."""
    again = twin(direct, strategy)
    return differing(run(again, z0, **options), run(direct, z0, **options))


def differing(found: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None]) -> str:
    """Names of what is not equal to the bit, and by how much; empty if all is."""
    assert found.keys() == expected.keys()
    report = []
    for name, a in found.items():
        b = expected[name]
        if a is None or b is None:
            if a is not b:
                report.append(f"{name}: {_shape(a)} instead of {_shape(b)}")
        elif a.dtype != b.dtype or not torch.equal(a, b):
            gap = (a.double() - b.double()).abs().max().item()
            report.append(f"{name}: {a.dtype} and {b.dtype}, apart by {gap:.3g}")
    return "\n".join(report)


def _shape(tensor: Tensor | None) -> str:
    return "None" if tensor is None else str(tuple(tensor.shape))
