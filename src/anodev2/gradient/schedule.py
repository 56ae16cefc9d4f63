"""What to keep and what to run again, as plain integers.

A schedule has a forward and a backward sweep, lists of actions on step numbers that move one
working state along: `Store(a, b)` keeps it as z_a, for steps a ... b - 1; `Load(a)` puts a kept
one back; `Advance(a, b)` runs those steps and forgets their tape; `Reverse(a, b)` runs them
with a tape and differentiates them; `Free(a)` lets a kept state go. Between two `Reverse` of a
backward sweep there is a `Load` before any other step runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import comb
from typing import NamedTuple


class Store(NamedTuple):
    """Keep z_start, and what steps `start` ... `stop` - 1 depend on besides it."""

    start: int
    stop: int


class Load(NamedTuple):
    """Go on from the kept z_start."""

    start: int


class Free(NamedTuple):
    """Let go of the kept z_start."""

    start: int


class Advance(NamedTuple):
    """Run steps `start` ... `stop` - 1 and forget their tape."""

    start: int
    stop: int


class Reverse(NamedTuple):
    """Run steps `start` ... `stop` - 1 with a tape, and differentiate them."""

    start: int
    stop: int


Action = Store | Load | Free | Advance | Reverse


@dataclass(frozen=True)
class Schedule:
    """The actions of the forward and of the backward sweep.

    z_0 is kept first, for all steps, and never freed.
    """

    forward: tuple[Store | Advance, ...]
    backward: tuple[Action, ...]


def segment_schedule(steps: int, segments: int) -> Schedule:
    """Store the start of each of `segments` runs of steps, as equal as can be.

    The states stay until the graph goes, so that a second backward pass finds them.
    """
    count = min(segments, steps)
    bounds = [k * steps // count for k in range(count + 1)]
    backward = [
        action for a, b in reversed(list(pairwise(bounds))) for action in (Load(a), Reverse(a, b))
    ]
    return Schedule(_forward(bounds), tuple(backward))


def binomial_schedule(steps: int, slots: int) -> Schedule:
    """Revolve: the fewest evaluations again with `slots` states kept besides z_0.

    The count is P(steps, slots + 1) of design section "Gradients and memory", with
    P(l, s) = min_j t(j, s) + P(l - j, s - 1) and t(l, s) = min_j j + t(j, s) + t(l - j, s - 1).
    Both minima are attained in closed form: t(., s) is convex, and with s states C(s + r, s)
    steps can be reversed at no more than r evaluations each.

    Source: Griewank and Walther, "Algorithm 799: revolve", 2000; with the forward sweep run
    before anything is reversed, so that nothing but states survives it.
    """
    bounds = [0, *accumulate(_segments(steps, slots + 1))]
    backward: list[Action] = []
    for states, (a, b) in reversed(list(enumerate(pairwise(bounds)))):
        backward += _reversal(a, b, slots + 1 - states)
    return Schedule(_forward(bounds), tuple(backward))


def _forward(bounds: list[int]) -> tuple[Store | Advance, ...]:
    """Run all steps, keeping the state at each bound but the last."""
    stores = [Store(a, b if a else bounds[-1]) for a, b in pairwise(bounds)]
    runs = [Advance(a, b) for a, b in pairwise(bounds)]
    return tuple(action for pair in zip(stores, runs, strict=True) for action in pair)


def _reach(states: int, repeats: int) -> int:
    """How many steps can be reversed with so many states at `repeats` evaluations each."""
    return comb(states + repeats, states) if repeats >= 0 else 0


def _segments(steps: int, states: int) -> list[int]:
    """Lengths of the segments of a forward sweep, of which the k-th from the end, when its
    turn comes, has k states to be reversed with."""
    repeats = 0
    while sum(_reach(k, repeats) for k in range(1, states + 1)) < steps:
        repeats += 1
    lengths = [_reach(k, repeats - 1) for k in range(states, 0, -1)]
    left = steps - sum(lengths)
    for place, k in enumerate(range(states, 0, -1)):
        more = min(left, _reach(k, repeats) - lengths[place])
        lengths[place] += more
        left -= more
    return [length for length in lengths if length]


def _split(steps: int, states: int) -> int:
    """How far to advance before the next state is stored: the j that attains t(steps, states)."""
    repeats = 1
    while _reach(states, repeats) < steps:
        repeats += 1
    return max(1, _reach(states, repeats - 2), steps - _reach(states - 1, repeats))


def _reversal(start: int, stop: int, states: int) -> Iterator[Action]:
    """Reverse steps start ... stop - 1 from the kept z_start, with `states` states, it included."""
    here = None
    waiting = [(start, stop, states)]
    while waiting:
        a, b, s = waiting.pop()
        if here != a:
            yield Load(a)
        j = a + (_split(b - a, s) if s > 1 and b - a > 1 else b - a - 1)
        if j > a:
            yield Advance(a, j)
            waiting.append((a, j, s))
        if b - j > 1:
            yield Store(j, b)
            here = j
            waiting.append((j, b, s - 1))
        else:
            yield Reverse(j, b)
            here = None
            if j == a and a:
                yield Free(a)
