"""The patterns of the reaction-diffusion-advection example."""

from math import exp

import pytest
import torch
from torch.testing import assert_close

from anodev2.experiment.figures.advection import (
    DEVIATION,
    ROWS,
    SIDE,
    TIMES,
    advection_figure,
    gaussian,
    patterns,
)


def variance(pattern: torch.Tensor) -> float:
    """Along x, about the middle."""
    line = pattern.sum(0) / pattern.sum()
    away = torch.arange(SIDE, dtype=torch.float64) - SIDE // 2
    return float((line * away.square()).sum())


@pytest.mark.parametrize("row", ROWS)
def test_every_row_starts_with_the_gaussian(row: str) -> None:
    assert_close(patterns(ROWS[row])[0], gaussian())


def test_the_start_is_a_gaussian_in_the_middle() -> None:
    start = gaussian()
    assert start.argmax() == SIDE // 2 * SIDE + SIDE // 2
    assert start.max() == 1
    assert variance(start) == pytest.approx(DEVIATION**2, rel=1e-6)


def test_advection_rolls_the_start_by_v_times_t() -> None:
    found = patterns(ROWS["advection"])
    for t, pattern in zip(TIMES, found, strict=True):
        cells = [-round(speed * t) for speed in ROWS["advection"].v]
        assert_close(pattern, gaussian().roll(cells, (0, 1)), rtol=0, atol=1e-6)


def test_diffusion_keeps_the_sum_and_widens_the_gaussian_by_2_d_t() -> None:
    found = patterns(ROWS["diffusion"])
    assert_close(found.sum((1, 2)), gaussian().sum().expand(len(TIMES)))
    assert variance(found[1]) == pytest.approx(DEVIATION**2 + 2 * 8 * 0.25, rel=1e-3)


def test_reaction_multiplies_by_exp_rho_t() -> None:
    factors = torch.tensor([exp(0.7 * t) for t in TIMES], dtype=torch.float64)
    assert_close(patterns(ROWS["reaction"]), factors[:, None, None] * gaussian())


def test_all_three_are_one_after_another_as_they_commute() -> None:
    rolled = patterns(ROWS["diffusion"])[-1].roll((8, 12), (0, 1))
    assert_close(patterns(ROWS["all three"])[-1], exp(0.7) * rolled, rtol=0, atol=1e-6)


def test_the_pictures_are_the_patterns_with_their_coefficients_beside() -> None:
    axes = advection_figure().axes[: len(ROWS) * len(TIMES)]
    drawn = torch.stack([torch.tensor(a.images[0].get_array()) for a in axes])
    assert_close(drawn, torch.cat([patterns(row) for row in ROWS.values()]))
    labels = [a.get_ylabel() for a in axes[:: len(TIMES)]]
    assert labels[0] == "diffusion\nd = 8"
    assert labels[1] == "advection\nv = (−8, −12)"
    assert labels[3] == "all three\nd = 8\nv = (−8, −12)\nρ = 0.7"
    assert [a.get_title() for a in axes[: len(TIMES)]] == [f"t = {t:g}" for t in TIMES]
