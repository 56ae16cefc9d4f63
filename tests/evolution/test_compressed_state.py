"""Weights held as their lowest cosine modes: the transform, and blocks that train the modes."""

from functools import partial
from itertools import product
from math import ceil, cos, pi, prod, sqrt

import pytest
import torch
from operators import assert_near, weight
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import CompressedState, LinearEvolution, ShapeError, compress
from anodev2.usage import UsageError
from cases import EVOLUTIONS, SHAPES

every_shape = pytest.mark.parametrize("shape", [*SHAPES, (4, 3), (1, 5), (1, 1, 2, 2)], ids=str)
every_factor = pytest.mark.parametrize("factor", [1, 1.3, 2, 4.0, 1000])
every_evolution = pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
ORIGINAL = "parametrizations.weight.original"


def frequency(mode, shape) -> float:
    return sum((k / n) ** 2 for k, n in zip(mode, shape, strict=True))


def all_modes(shape) -> list[tuple[int, ...]]:
    return list(product(*(range(n) for n in shape)))


def wave(mode, shape) -> Tensor:
    """The orthonormal cosine of one mode, written from the definition of DCT-II."""
    along = torch.ones((), dtype=torch.float64)
    for k, n in zip(mode, shape, strict=True):
        scale = sqrt((2 if k else 1) / n)
        line = [scale * cos(pi * k * (x + 0.5) / n) for x in range(n)]
        along = along[..., None] * torch.tensor(line, dtype=torch.float64)
    return along


def number_of_modes(shape, factor: float) -> int:
    return ceil(prod(shape) / factor)


@every_shape
@every_factor
def test_the_modes_are_n_over_the_factor_rounded_up(factor, shape):
    state = CompressedState(shape, factor=factor)
    assert state.right_inverse(weight(shape)).shape == (number_of_modes(shape, factor),)


@every_shape
def test_with_a_factor_of_one_a_weight_comes_back_to_rounding(shape):
    w, state = weight(shape), CompressedState(shape, factor=1)
    assert_near(state(state.right_inverse(w)), w, within=1e-14)


@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
def test_weights_of_less_than_two_axes_are_refused(shape):
    with pytest.raises(ShapeError, match="two axes or more"):
        CompressedState(shape, factor=2)


@every_shape
@every_factor
def test_modes_come_back_from_the_weight_that_they_make(factor, shape):
    state = CompressedState(shape, factor=factor)
    modes = weight((number_of_modes(shape, factor),))
    assert_near(state.right_inverse(state(modes)), modes, within=1e-14)


@every_shape
@every_factor
def test_modes_and_the_weight_that_they_make_have_the_same_norm(factor, shape):
    modes = weight((number_of_modes(shape, factor),))
    assert_near(CompressedState(shape, factor=factor)(modes).norm(), modes.norm(), within=1e-14)


@every_shape
@every_factor
def test_a_mode_is_a_cosine_of_the_lowest_frequencies_in_order(factor, shape):
    count = number_of_modes(shape, factor)
    state = CompressedState(shape, factor=factor)
    waves = torch.stack([wave(mode, shape).flatten() for mode in all_modes(shape)])
    made = torch.stack([state(unit).flatten() for unit in torch.eye(count).double()])
    products = waves @ made.T
    found = [all_modes(shape)[i] for i in products.argmax(0)]
    assert_near(made, waves[products.argmax(0)], within=1e-14)
    lowest = sorted(frequency(mode, shape) for mode in all_modes(shape))[:count]
    assert [frequency(mode, shape) for mode in found] == pytest.approx(lowest, rel=1e-14)


@every_factor
def test_a_smooth_weight_is_kept_exactly_and_an_alternating_one_is_lost(factor):
    shape = (5, 6)
    state = CompressedState(shape, factor=factor)
    smooth, alternating = wave((0, 0), shape), wave((4, 5), shape)
    assert_near(state(state.right_inverse(smooth)), smooth, within=1e-14)
    kept = torch.zeros_like(alternating) if factor > 1 else alternating
    assert_near(state(state.right_inverse(alternating)), kept, alternating, within=1e-14)


@every_shape
@every_factor
def test_right_inverse_is_the_transpose(factor, shape):
    state, w = CompressedState(shape, factor=factor), weight(shape)
    modes = weight((number_of_modes(shape, factor),)).requires_grad_()
    (pulled,) = torch.autograd.grad((state(modes) * w).sum(), modes)
    assert_near(pulled, state.right_inverse(w), within=1e-14)


@every_shape
def test_a_whole_weight_is_returned_itself(shape):
    w = weight(shape)
    assert CompressedState(shape, factor=2)(w) is w


@pytest.mark.parametrize("factor", [0.99, 0, -2, float("nan")])
def test_a_factor_below_one_is_refused(factor):
    with pytest.raises(UsageError, match="factor must be a number of at least 1"):
        CompressedState((4, 3), factor=factor)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_a_cast_to_half_precision_and_to_float64_loses_nothing_of_the_cosines(half):
    w, state = weight((4, 3)), CompressedState((4, 3), factor=1).to(half).to(torch.float64)
    assert_near(state(state.right_inverse(w)), w, within=1e-14)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_modes_make_the_weight_of_float32_rounded_once(half):
    state, modes = CompressedState((4, 3), factor=2), weight((6,)).to(half)
    assert torch.equal(state(modes), state(modes.float()).to(half))


def convolutions() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.LayerNorm(5)
    )


def test_compress_holds_convolution_and_linear_weights_as_modes_and_leaves_the_rest():
    module = convolutions()
    before = {name: p.shape for name, p in module.named_parameters()}
    assert compress(module, factor=4) is module
    after = {name: p.shape for name, p in module.named_parameters()}
    for name, count in (("0", 27), ("3", 20)):
        assert after.pop(f"{name}.{ORIGINAL}") == (count,)
        del before[f"{name}.weight"]
    assert after == before


@torch.no_grad()
def test_compress_with_a_factor_of_one_keeps_every_weight_to_rounding():
    module, plain = convolutions().double(), convolutions().double()
    compress(module, factor=1)
    for i in (0, 3):
        assert_near(module[i].weight, plain[i].weight, within=1e-14)


@torch.no_grad()
def test_compress_keeps_the_variance_of_random_weights():
    """To five standard deviations of the mean of so many squares."""
    layer = nn.Conv2d(32, 64, 3).double()
    layer.weight.copy_(weight(layer.weight.shape))
    compress(layer, factor=4)
    count = 64 * 32 * 9 / 4
    assert layer.weight.square().mean().item() == pytest.approx(1, abs=5 * sqrt(2 / count))


@torch.no_grad()
def test_compress_scales_the_modes_of_a_weight_by_the_root_of_the_factor():
    layer = nn.Linear(6, 4).double()
    state = CompressedState((4, 6), factor=3)
    expected = sqrt(3) * state(state.right_inverse(layer.weight))
    assert_near(compress(layer, factor=3).weight, expected, within=1e-14)


def test_compress_leaves_a_frozen_weight_frozen():
    layer = nn.Linear(6, 4).requires_grad_(False)
    assert not any(p.requires_grad for p in compress(layer, factor=3).parameters())


def test_compress_refuses_tied_weights_and_changes_nothing():
    first, second, third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    third.weight = second.weight
    with pytest.raises(ValueError, match="the weight of '1' is tied to another"):
        compress(nn.Sequential(first, second, third), factor=2)
    assert type(first) is nn.Linear
    assert second.weight is third.weight


def test_compress_refuses_a_weight_under_two_names_of_one_module():
    layer = nn.Linear(4, 4)
    layer.again = layer.weight
    with pytest.raises(ValueError, match="the weight of 'Linear' is tied to another"):
        compress(layer, factor=2)
    assert layer.again is layer.weight


def test_compress_refuses_weights_that_are_parametrized_already():
    layer = compress(nn.Linear(4, 4), factor=2)
    with pytest.raises(ValueError, match="is parametrized already"):
        compress(layer, factor=2)


@torch.no_grad()
def test_a_state_dict_holds_the_modes_alone_and_brings_the_weights_back_to_the_bit():
    source, target = (compress(nn.Linear(6, 4), factor=3) for _ in range(2))
    state = source.state_dict()
    assert state.keys() == {"bias", ORIGINAL}
    target.load_state_dict(state)
    assert torch.equal(target.weight, source.weight)


def field() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Tanh()).double()


def signals() -> Tensor:
    return weight((3, 2, 4), seed=1)


def compressed_and_whole(evolution, factor: float = 2.5) -> tuple[CoupledODE, CoupledODE]:
    """A block of five modes, and one whose weight and p have the same values."""
    narrow, full = compress(field(), factor=factor), field()
    build = partial(CoupledODE, coupling=configuration_1(steps=3), evolution=evolution)
    with torch.no_grad():
        full[0].weight.copy_(narrow[0].weight)
        blocks = build(narrow).double(), build(full).double()
        for p, same in zip(*(block.evolution.parameters() for block in blocks), strict=True):
            p.add_(0.2 * weight(p.shape, seed=2))
            same.copy_(p)
    return blocks


@every_evolution
def test_a_block_has_as_many_fewer_parameters_as_there_are_fewer_modes(evolution):
    narrow, full = (
        sum(p.numel() for p in block.parameters()) for block in compressed_and_whole(evolution)
    )
    assert full - narrow == 12 - 5


@torch.no_grad()
@every_evolution
def test_a_block_is_that_of_the_whole_weight_to_the_bit(evolution):
    narrow, full = compressed_and_whole(evolution)
    assert torch.equal(narrow(signals()), full(signals()))


@every_evolution
def test_the_gradient_of_the_modes_is_that_of_the_whole_weight_pulled_back(evolution):
    narrow, full = compressed_and_whole(evolution)
    for block in (narrow, full):
        (block(signals()) * signals()).sum().backward()
    modes = narrow.get_parameter(f"field.0.{ORIGINAL}")
    state = CompressedState((2, 2, 3), factor=2.5)
    whole = full.field[0].weight.grad
    assert_near(modes.grad, state.right_inverse(whole), whole, within=1e-14)


@torch.no_grad()
@every_evolution
def test_the_weight_trajectory_is_of_whole_weights_from_w0_on(evolution):
    narrow, _ = compressed_and_whole(evolution)
    theta = narrow.weight_trajectory()[f"field.0.{ORIGINAL}"]
    assert theta.shape == (3, 2, 2, 3)
    assert torch.equal(theta[0], narrow.field[0].weight)


@torch.no_grad()
@every_evolution
def test_a_materialized_block_computes_its_bits(evolution):
    narrow, _ = compressed_and_whole(evolution)
    assert torch.equal(narrow.materialize()(signals()), narrow(signals()))


@torch.no_grad()
@every_evolution
def test_modes_that_are_all_there_are_give_the_plain_block_to_rounding(evolution):
    narrow, full = compressed_and_whole(evolution, factor=1)
    full.field[0].weight.copy_(field()[0].weight)
    assert_near(narrow(signals()), full(signals()), within=1e-14)


@torch.no_grad()
def test_autocast_changes_no_bit_of_the_weights_of_a_block():
    block = CoupledODE(compress(field().float(), factor=2), evolution=LinearEvolution)
    (outside,) = block.weight_trajectory().values()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (inside,) = block.weight_trajectory().values()
    assert torch.equal(inside, outside)
