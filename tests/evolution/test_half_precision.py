"""Precision of reaction, diffusion and advection: half-precision weights, autocast, casts."""

import pytest
import torch
from torch import Tensor

from anodev2.evolution import ReactionDiffusionAdvection

SHAPE = (4, 3, 5, 4)
halves = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)


def moving_operator(shape=SHAPE, dtype=torch.float32) -> ReactionDiffusionAdvection:
    """Coefficients that every dtype represents: multiples of 1/16 below 1/4."""
    operator = ReactionDiffusionAdvection(shape, activation=None)
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in operator.parameters():
            p.copy_(torch.randint(-3, 4, p.shape, generator=source) / 16)
    return operator.to(dtype)


def weight(shape=SHAPE) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(6))


@halves
@torch.no_grad()
def test_a_half_precision_weight_gets_the_float32_result_cast(half):
    operator, w = moving_operator(), weight().to(half)
    assert torch.equal(operator(w, 0.0, 0.3), operator(w.float(), 0.0, 0.3).to(half))


@halves
@torch.no_grad()
def test_half_precision_coefficients_make_float32_propagators(half):
    (whole,), (narrow,) = (
        moving_operator(dtype=dtype).propagators(0.3) for dtype in (torch.float32, half)
    )
    assert narrow.dtype == torch.float32
    assert torch.equal(narrow, whole)


@halves
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_autocast_changes_no_bit_of_a_step(half, dtype):
    operator, w = moving_operator(), weight().to(dtype)
    outside = operator(w, 0.0, 0.3)
    with torch.autocast("cpu", dtype=half):
        inside = operator(w, 0.0, 0.3)
    assert inside.dtype == dtype
    assert torch.equal(inside, outside)


@halves
@torch.no_grad()
@pytest.mark.parametrize("shape", [SHAPE, (2, 2, 9, 9)])
def test_a_cast_to_half_precision_and_back_loses_nothing_of_the_grid(half, shape):
    before, after = moving_operator(shape), moving_operator(shape).to(half).float()
    for a, b in zip(before.propagators(0.3), after.propagators(0.3), strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
def test_rows_of_a_float64_propagator_sum_to_expm1_of_rho_dt_in_the_precision_of_float64():
    operator = moving_operator(dtype=torch.float64)
    (matrix,) = operator.propagators(0.3)
    expected = (0.3 * operator.rho).expm1()[:, None].expand(-1, 20)
    torch.testing.assert_close(matrix.sum(-1), expected, rtol=0, atol=1e-14)


@torch.no_grad()
def test_float64_weights_of_a_float32_operator_stay_float64():
    operator, w = moving_operator(), weight().double()
    assert operator(w, 0.0, 0.3).dtype == torch.float64
