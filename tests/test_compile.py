"""torch.compile of a whole model by `Direct`, and of a field under every strategy.

Whole models are compiled by this file run as a script: the type checks that the tests install
cannot be traced. `python tests/test_compile.py MODE` trains once, plain or compiled, and prints
its losses, graphs and peak memory. `python tests/test_compile.py "in place"` prints what a
compiled block makes of a field that changes its input in place.
"""

import json
import shutil
import sys
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE
from anodev2.gradient import GradientStrategy
from anodev2.gradient.recompute import Recomputing
from anodev2.models import build_model
from cases import STRATEGIES
from fresh_process import forget_peak, measured, resident

MODES = {"plain": None, "traced": "aot_eager", "compiled": "inductor"}
"""Whether and by which backend the model is compiled."""
RECOMPUTING = [s for s in STRATEGIES if isinstance(s, Recomputing)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        return self.convolution(self.norm(z)).tanh()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("before", [True, False], ids=["before it is built", "afterwards"])
def test_a_compiled_field_has_the_gradients_of_the_plain_one_without_graph_breaks(
    before: bool, strategy: GradientStrategy
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    field = Field()
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


@pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
def test_what_a_replay_does_is_not_compiled_along_with_a_field(strategy: GradientStrategy) -> None:
    """torch traces what runs inside a Sequential that it was asked to compile, not itself."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    field = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    block = CoupledODE(field, gradient=strategy)
    block.field.compile(backend="eager")
    block(torch.randn(2, 4, 5, 5)).square().sum().backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


@pytest.mark.slow
def test_a_compiled_block_is_right_though_its_field_changes_its_input_in_place() -> None:
    found = measured(__file__, "in place")
    assert found == {"z0 as it was": True, "z1 as out of place": True, "gradients": True}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return measured(__file__, "plain")


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return measured(__file__, "compiled")


@pytest.mark.slow
def test_a_traced_model_is_one_graph_without_breaks(plain):
    found = measured(__file__, "traced")
    assert (found["graph breaks"], found["graphs"]) == (0, 1)


@pytest.mark.slow
@compiler
def test_a_compiled_model_is_one_graph_without_breaks(compiled):
    assert (compiled["graph breaks"], compiled["graphs"]) == (0, 1)


@pytest.mark.slow
@compiler
def test_a_compiled_model_has_the_losses_of_the_plain_one_within_bfloat16_rounding(plain, compiled):
    losses = [torch.tensor(found["losses"]) for found in (compiled, plain)]
    torch.testing.assert_close(*losses, rtol=2**-8, atol=0)


@pytest.mark.slow
@linux
@compiler
def test_a_compiled_model_takes_no_more_memory_than_the_plain_one(plain, compiled):
    assert compiled["peak"] < 1.05 * plain["peak"]


def train(model: nn.Module, *, steps: int, batch: int = 16) -> list[float]:
    """Steps of SGD on one batch, under autocast."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(batch, 3, 32, 32, generator=generator)
    labels = torch.arange(batch) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def in_place() -> dict[str, bool]:
    """Whether z0, z(1) and gradients of a compiled block are those of a field out of place."""
    torch.manual_seed(0)
    block = CoupledODE(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1)))
    plain = deepcopy(block)
    plain.field[0].inplace = False
    block.compile(backend="eager")
    z0 = torch.randn(2, 4, 5, 5)
    given = z0.clone()
    found, expected = block(given), plain(z0)
    both = [
        torch.autograd.grad(z1.square().sum(), list(subject.parameters()))
        for subject, z1 in ((block, found), (plain, expected))
    ]
    return {
        "z0 as it was": torch.equal(given, z0),
        "z1 as out of place": torch.equal(found, expected),
        "gradients": all(torch.equal(a, b) for a, b in zip(*both, strict=True)),
    }


def peak_of(run) -> tuple[Any, int]:
    """What a call returns, and the most by which it makes this process grow."""
    before = resident("VmRSS")
    forget_peak()
    result = run()
    return result, resident("VmHWM") - before


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "in place":
        print(json.dumps(in_place()))
        sys.exit()
    torch.manual_seed(0)
    model = build_model("resnet4", method="anodev2-1")
    backend = MODES[sys.argv[1]]
    if backend is not None:
        model.compile(backend=backend)
    losses = train(model, steps=10)
    _, peak = peak_of(lambda: train(model, steps=3))
    counters = torch._dynamo.utils.counters
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    print(json.dumps({"losses": losses, "graph breaks": breaks, "graphs": graphs, "peak": peak}))
