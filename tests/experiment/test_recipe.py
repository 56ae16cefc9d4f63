"""The recipe's learning rate and its scaling."""

import pytest

from anodev2.experiment.recipe import PAPER_RECIPES, recipe_for
from anodev2.usage import UsageError


def test_the_paper_trains_resnets_for_350_epochs_with_drops_at_150_and_300() -> None:
    assert (PAPER_RECIPES["resnet4"].epochs, PAPER_RECIPES["resnet4"].drops) == (350, (150, 300))
    assert PAPER_RECIPES["resnet10"] == PAPER_RECIPES["resnet4"]


def test_the_paper_trains_alexnet_for_120_epochs_with_drops_at_40_80_and_100() -> None:
    assert (PAPER_RECIPES["alexnet"].epochs, PAPER_RECIPES["alexnet"].drops) == (120, (40, 80, 100))


def test_other_numbers_of_epochs_scale_the_drops() -> None:
    assert recipe_for("resnet4", 70).drops == (30, 60)
    assert recipe_for("alexnet", 12).drops == (4, 8, 10)


def test_the_rate_rises_linearly_over_the_first_epoch() -> None:
    recipe = recipe_for("resnet4", 350)
    factors = [recipe.rate_factor(step, 10) for step in range(12)]
    assert factors == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0])


def test_the_rate_falls_by_ten_exactly_at_each_drop() -> None:
    recipe = recipe_for("resnet4", 35)
    before, after = (recipe.rate_factor(15 * 196 + shift, 196) for shift in (-1, 0))
    assert (before, after) == pytest.approx((1.0, 0.1))
    assert recipe.rate_factor(30 * 196, 196) == pytest.approx(0.01)


def test_fewer_than_one_epoch_is_refused() -> None:
    with pytest.raises(UsageError, match="epochs must be at least 1, got 0"):
        recipe_for("resnet4", 0)
