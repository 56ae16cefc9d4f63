"""The difference of two means, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean


@dataclass(frozen=True)
class Difference:
    """The mean of some runs less that of others.

    Args:
        value: the difference.
        half_width: half of its 95 % interval; None where a side has a single run.
    """

    value: float
    half_width: float | None

    def __str__(self) -> str:
        known = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.value:+.2f}{known}"


def difference(of: Sequence[float], to: Sequence[float]) -> Difference:
    """mean(of) - mean(to) with its 95 % interval by Welch's t, which assumes normal errors and
    not equal variances.

    Args:
        of: at least one figure.
        to: at least one figure.
    """
    value = mean(of) - mean(to)
    if min(len(of), len(to)) < 2:
        return Difference(value, None)
    from scipy.stats import ttest_ind

    if len({*of}) == len({*to}) == 1:
        return Difference(value, 0.0)
    interval = ttest_ind(of, to, equal_var=False).confidence_interval(0.95)
    return Difference(value, float(interval.high - interval.low) / 2)
