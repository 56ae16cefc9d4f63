"""Words and numbers that reports share."""

import pytest

from anodev2.experiment.cells import per_cent


@pytest.mark.parametrize(
    ("share", "written"),
    [(0.0025, "0.25 %"), (0.2523, "25.2 %"), (4.18, "418 %"), (17.4, "1,740 %"), (354, "35,400 %")],
)
def test_a_share_has_three_digits_and_no_exponent(share: float, written: str) -> None:
    assert per_cent(share) == written
