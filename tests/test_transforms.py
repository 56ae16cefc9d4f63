"""torch.func, second derivatives and torch.compile with `Direct`, and compiled fields with all."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from anodev2 import CoupledODE, configuration_1
from anodev2.gradient import GradientStrategy
from cases import STRATEGIES


class Field(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)

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


def test_second_derivatives_are_those_of_finite_differences():
    subject = block(nn.Identity()).double()
    z0 = torch.randn(1, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(subject, (z0,))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("before", [True, False], ids=["before it is built", "afterwards"])
def test_a_compiled_field_has_the_gradients_of_the_plain_one_without_graph_breaks(
    before: bool, strategy: GradientStrategy
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    field = Field(nn.BatchNorm2d(4))
    plain = CoupledODE(deepcopy(field), gradient=strategy)
    chosen = torch.compile(field, backend="aot_eager") if before else field
    compiled = CoupledODE(chosen, gradient=strategy)
    if not before:
        compiled.field.compile(backend="aot_eager")
    z0 = torch.randn(2, 4, 5, 5)
    for subject in (plain, compiled):
        subject(z0).square().sum().backward()
    pairs = zip(compiled.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
    counters = torch._dynamo.utils.counters
    assert (sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]) == (0, 2)


@pytest.mark.slow
def test_a_compiled_model_is_one_graph_and_has_eager_losses_within_bfloat16_rounding():
    script = Path(__file__).with_name("compiled_model.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["graph breaks"], found["graphs"]) == (0, 1)
    torch.testing.assert_close(*map(torch.tensor, found["losses"]), rtol=2**-7, atol=0)
