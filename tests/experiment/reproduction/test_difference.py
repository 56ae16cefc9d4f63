"""Differences of means, against figures worked out by hand."""

import pytest

from anodev2.experiment.reproduction.difference import (
    difference,
    difference_to,
    median_interval,
)


def test_the_interval_of_equal_spreads_is_students() -> None:
    # Two sides of three with variance 1: standard error sqrt(2/3), four degrees of freedom.
    found = difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
    assert found.value == pytest.approx(1.0)
    assert found.half_width == pytest.approx(2.7764451 * (2 / 3) ** 0.5)


def test_the_interval_of_unequal_spreads_has_welchs_degrees_of_freedom() -> None:
    found = difference([10.0, 14.0], [1.0, 1.0, 1.0])  # one side alone: one degree of freedom
    assert found.half_width == pytest.approx(12.7062047 * 2.0)


def test_to_an_exact_figure_the_interval_is_that_of_the_runs_alone() -> None:
    found = difference_to([2.0, 3.0, 4.0], 2.5)  # standard error sqrt(1/3), two degrees of freedom
    assert found.value == pytest.approx(0.5)
    assert found.half_width == pytest.approx(4.3026527 / 3**0.5)
    assert str(difference_to([2.0], 2.5)) == "-0.50"


def test_a_single_run_on_a_side_has_no_interval() -> None:
    assert str(difference([71.5], [70.0, 71.0])) == "+1.00"


def test_runs_that_do_not_vary_have_no_interval_as_they_tell_nothing_of_noise() -> None:
    assert str(difference([71.0, 71.0], [70.0, 70.0])) == "+1.00"
    assert str(difference_to([71.0, 71.0], 70.0)) == "+1.00"


@pytest.mark.parametrize(
    ("of", "told"),
    [([71.0], ", no interval"), ([69.0, 72.0], ", within noise"), ([79.9, 80.0], "")],
)
def test_what_may_be_noise_is_said_to_be(of, told) -> None:
    assert difference(of, [70.0, 70.1]).noise == told


def test_a_difference_is_written_with_its_sign_and_two_digits() -> None:
    assert str(difference([1.0, 2.0], [3.0, 4.0])) == "-2.00 ± 3.04"


def test_the_interval_of_a_median_is_between_ranks_whatever_the_extremes() -> None:
    # Of nine, one at most falls on either side of it with probability 2 * 10 / 512, so 96 %.
    assert median_interval([5, 1e9, 3, 4, 6, 7, 2, 8, -1e9]) == (2, 8)
    assert median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)  # 2 / 64
    assert median_interval([1, 2, 3, 4, 5]) is None  # 2 / 32
