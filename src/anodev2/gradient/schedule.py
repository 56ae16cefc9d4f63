"""What to keep and what to run again, as plain integers.

A schedule has a forward sweep, run without a tape, and a backward sweep. Both are lists of
actions on step numbers: `Store(a, b)` keeps z_a for steps a ... b - 1, `Advance(a, b)` runs
those steps without a tape, `Reverse(a, b)` runs them from the stored z_a with a tape and
differentiates them.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Store(NamedTuple):
    """Keep z_start, and what steps `start` ... `stop` - 1 depend on besides it."""

    start: int
    stop: int


class Advance(NamedTuple):
    """Run steps `start` ... `stop` - 1 without a tape."""

    start: int
    stop: int


class Reverse(NamedTuple):
    """Run steps `start` ... `stop` - 1 again with a tape, and differentiate them."""

    start: int
    stop: int


@dataclass(frozen=True)
class Schedule:
    """The actions of the forward and of the backward sweep."""

    forward: tuple[Store | Advance, ...]
    backward: tuple[Reverse, ...]


def segment_schedule(steps: int, segments: int) -> Schedule:
    """Store the start of each of `segments` runs of steps, as equal as can be."""
    count = min(segments, steps)
    bounds = [k * steps // count for k in range(count + 1)]
    runs = list(pairwise(bounds))
    forward = [action for a, b in runs for action in (Store(a, b), Advance(a, b))]
    return Schedule(tuple(forward), tuple(Reverse(a, b) for a, b in reversed(runs)))
