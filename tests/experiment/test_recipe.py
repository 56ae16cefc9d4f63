"""The recipe's learning rate and its scaling."""

from dataclasses import replace

import pytest
import torch

from anodev2.experiment.recipe import PAPER_RECIPES, recipe_for
from anodev2.experiment.training.initialization import initialize
from anodev2.models import Moving, build_model
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


def test_the_papers_plain_reading_neither_warms_up_nor_clips() -> None:
    paper = recipe_for("resnet4", 350, "paper")
    assert (paper.warmup, paper.clip, paper.rate_factor(0, 196)) == (0, None, 1.0)
    assert replace(paper, warmup=1.0, clip=1.0, p_rate=3.0) == PAPER_RECIPES["resnet4"]


def test_options_change_one_number_each() -> None:
    given = recipe_for(
        "resnet4", 350, "default:warmup=2.5:p_rate=10:p_decay=0:learning_rate=1e-1:clip=none"
    )
    assert given == replace(PAPER_RECIPES["resnet4"], warmup=2.5, p_rate=10, p_decay=0, clip=None)


@pytest.mark.parametrize(
    ("spelled", "told"),
    [
        ("papr", "did you mean 'paper'"),
        ("default:warmup=-1", "warmup must be at least 0, got -1"),
        ("default:learning_rate=0", "learning_rate must be positive, got 0"),
        ("default:p_decay=much", "p_decay=much, expected a value like 1.0"),
        ("default:epochs=3", "unknown option of recipe 'epochs'"),
        ("default:initialization=xavier", "expected one of torch, he"),
        ("default:warmup", "no OPTION=VALUE"),
    ],
)
def test_a_recipe_that_is_not_valid_is_refused_by_name(spelled: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        recipe_for("resnet4", 350, spelled)


@pytest.mark.parametrize("compression", [1, 4])
def test_he_kernels_have_variance_2_by_fan_out_and_depend_on_the_seed_alone(compression) -> None:
    moving = Moving(compression=compression)
    networks = [build_model("resnet4", method="anodev2-1", moving=moving) for _ in range(2)]
    for network in networks:
        initialize(network, "he", 3)
    first, second = (network[3].field[2].weight for network in networks)
    assert torch.equal(first, second)
    expected = 2 / (16 * 9) / compression  # modes left out take their share of the variance
    assert first.var().item() == pytest.approx(expected, rel=0.15)
