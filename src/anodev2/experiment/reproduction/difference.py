"""The difference of two means, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import mean, variance


@dataclass(frozen=True)
class Difference:
    """The mean of some runs less that of others.

    Args:
        value: the difference.
        half_width: half of its 95 % interval; None where a side has a single run or no figure
            varies, which tells nothing of how much they would.
    """

    value: float
    half_width: float | None

    @property
    def noise(self) -> str:
        """What speaks against taking it for a difference."""
        if self.half_width is None:
            return ", no interval"
        return ", within noise" if abs(self.value) <= self.half_width else ""

    def __str__(self) -> str:
        return self.written(2)

    def written(self, digits: int) -> str:
        """With its sign and its interval, as in +0.30 ± 0.12."""
        known = "" if self.half_width is None else f" ± {self.half_width:.{digits}f}"
        return f"{self.value:+.{digits}f}{known}"


def difference(of: Sequence[float], to: Sequence[float]) -> Difference:
    """mean(of) - mean(to) with its 95 % interval by Welch's t, for normal errors and any variances.

    Args:
        of: at least one figure.
        to: at least one figure.
    """
    value = mean(of) - mean(to)
    if min(len(of), len(to)) < 2:
        return Difference(value, None)
    from scipy.stats import t

    parts = [variance(side) / len(side) for side in (of, to)]
    total = sum(parts)
    if total == 0:
        return Difference(value, None)
    sides = zip(parts, (of, to), strict=True)
    freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in sides)
    return Difference(value, float(t.ppf(0.975, freedom)) * sqrt(total))


def difference_to(of: Sequence[float], value: float) -> Difference:
    """mean(of) - value with the 95 % interval of the mean by Student's t, for normal errors.

    Args:
        of: at least one figure.
        value: taken for exact.
    """
    if len(of) < 2 or variance(of) == 0:
        return Difference(mean(of) - value, None)
    from scipy.stats import t

    half = float(t.ppf(0.975, len(of) - 1)) * sqrt(variance(of) / len(of))
    return Difference(mean(of) - value, half)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median of independent figures of any distribution, by their ranks.

    Args:
        values: at least one figure.

    Returns:
        None where they are too few, up to five.
    """
    from scipy.stats import quantile_test

    low, high = quantile_test(values, p=0.5).confidence_interval(0.95)
    return (float(low), float(high)) if isfinite(low) and isfinite(high) else None
