"""The code in the documents and the examples runs and does what they say."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch import nn

from anodev2 import configuration_1
from anodev2.optimality import gradients
from anodev2.solver import Euler

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names() -> dict:
    """What the code of docs/extending.md defines, run as printed."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
    found: dict = {}
    for code in blocks:
        exec(compile(code, "docs/extending.md", "exec"), found)
    return found


def test_the_evolution_of_the_page_fades_weights_as_its_equation_says(names):
    operator = names["Decay"]((2, 3, 3), rate=0.5).double()
    w = torch.randn(2, 3, 3, dtype=torch.float64)
    expected = w * torch.exp(torch.tensor(-0.5).double() * 0.25)
    torch.testing.assert_close(operator(w, 0.0, 0.25), expected, rtol=1e-14, atol=0)


def test_the_evolution_of_the_page_obeys_the_optimality_system(names):
    torch.manual_seed(0)
    field = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh())
    block = names["CoupledODE"](
        field,
        coupling=configuration_1(3),
        evolution=lambda shape: names["Decay"](shape, rate=0.3),
        memory=names["Tent"](normalize=False),
    ).double()
    z, y = torch.randn(2, 2, 2, 5, 5, dtype=torch.float64)
    found = gradients(block, z, y)
    (block(z) * y).sum().backward()
    for name, p in block.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-10, atol=1e-12)


def test_the_evolution_of_the_page_has_thirty_lines():
    page = (ROOT / "docs/extending.md").read_text()
    (code,) = re.findall(r"(class Decay.*?)\n\n\nblock", page, re.DOTALL)
    assert len(code.splitlines()) <= 30


def test_the_solver_of_the_page_has_order_two(names):
    def end(steps: int) -> float:
        z = (torch.ones((), dtype=torch.float64),)
        for _ in range(steps):
            z = names["Heun"]().step(z, 1 / steps, lambda s, x: (-x[0],), residual=False)
        return abs(z[0].item() - torch.tensor(-1.0).double().exp().item())

    assert end(10) / end(20) == pytest.approx(4, rel=0.1)
    assert isinstance(names["block"].solver, names["Heun"]) and not isinstance(
        names["block"].solver, Euler
    )


def test_the_hypernetwork_of_the_examples_learns():
    spec = spec_from_file_location("hypernetwork", ROOT / "examples/hypernetwork.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    first, last = module.main(steps=200)
    assert last < 0.2 * first
