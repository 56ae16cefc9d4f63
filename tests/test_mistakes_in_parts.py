"""Parts that are wrong are named, and what a part draws or keeps leaves the rest alone."""

import re

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE
from anodev2.evolution import (
    BasisEvolution,
    CoordinateEvolution,
    Evolution,
    Frozen,
    LinearEvolution,
    NetworkEvolution,
    compress,
)
from anodev2.regularization import Regularization


class InPlace(Evolution):
    """Overwrites w."""

    def __init__(self, shape) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(()))

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        return w.mul_(1 + dt * self.a)


class Flattening(InPlace):
    """Returns another shape."""

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        return w.flatten()


def convolution() -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(2, 2, 3, padding=1)


def two() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 2, 3, padding=1))


@torch.no_grad()
def test_an_evolution_that_changes_w_in_place_is_named():
    with pytest.raises(RuntimeError, match="InPlace changes w in place"):
        CoupledODE(convolution(), evolution=InPlace)(torch.randn(1, 2, 4, 4))


@pytest.mark.parametrize("field", [convolution, two])
def test_an_evolution_that_returns_another_shape_is_named_with_both(field):
    expected = re.escape("Flattening maps (2, 2, 3, 3) to (36,)")
    with pytest.raises(ValueError, match=expected):
        CoupledODE(field(), evolution=Flattening)(torch.randn(1, 2, 4, 4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evolution": LinearEvolution((2, 2))}, "evolution must be called with a weight's shape"),
        ({"evolution": lambda shape: nn.Tanh()}, "must be an object of Evolution"),
    ],
)
def test_what_is_no_evolution_is_refused_with_an_example(settings, message):
    with pytest.raises(TypeError, match=message):
        CoupledODE(convolution(), **settings)


@pytest.mark.parametrize("evolution", [NetworkEvolution, CoordinateEvolution, BasisEvolution])
def test_what_an_evolution_draws_leaves_the_numbers_of_later_layers_as_they_are(evolution):
    def later(q) -> Tensor:
        block = CoupledODE(two(), evolution=q)
        assert block.evolved
        return torch.randn(5)

    assert torch.equal(later(evolution), later(Frozen))


def test_two_weights_of_a_shape_get_networks_of_their_own():
    operators = CoupledODE(two(), evolution=NetworkEvolution).evolution
    first, second = (operators.get_submodule(f"{i}.weight").network.layers[0] for i in (0, 2))
    assert not torch.equal(first.weight, second.weight)


def test_a_seed_gives_an_evolution_the_same_numbers_and_another_seed_others():
    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        block = CoupledODE(nn.Conv2d(2, 2, 3, padding=1), evolution=NetworkEvolution)
        return next(block.evolution.parameters())

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_evolved_names_of_a_block_are_taken_by_another():
    names = CoupledODE(two(), evolution=LinearEvolution).evolved
    assert CoupledODE(two(), evolution=LinearEvolution, evolve=names).evolved == names


def regular() -> CoupledODE:
    block = CoupledODE(two(), evolution=LinearEvolution, regularize=Regularization(w0=1, path=1))
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.fill_(0.1)
    return block


def test_r_is_that_of_the_parameters_as_they_are():
    block, z = regular(), torch.randn(1, 2, 4, 4)
    block(z)
    with torch.no_grad():
        for p in block.parameters():
            p.mul_(2)
    assert torch.equal(block.regularization(), block.regularization())


def test_r_may_be_taken_before_the_forward_pass_in_every_step():
    block, z = regular(), torch.randn(1, 2, 4, 4)
    for _ in range(2):
        r = block.regularization()
        (block(z).square().mean() + r).backward()
    found = [p.grad.clone() for p in block.parameters()]
    block.zero_grad()
    for _ in range(2):
        (block(z).square().mean() + block.regularization()).backward()
    for a, p in zip(found, block.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_compressed_state_is_materialized_as_plain_layers_and_left_as_it_is(tmp_path):
    block = CoupledODE(compress(two(), factor=2), evolution=LinearEvolution).eval()
    z = torch.randn(1, 2, 4, 4)
    expected = block(z)
    plain = block.materialize()
    assert {type(m) for m in plain.modules() if hasattr(m, "weight")} == {nn.Conv2d}
    assert not any("parametrizations" in name for name in plain.state_dict())
    assert torch.equal(plain(z), expected)
    assert torch.equal(block(z), expected)
    torch.save(plain, tmp_path / "plain.pt")
