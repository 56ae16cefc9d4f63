"""Schedules: which steps run when, as integers alone."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from anodev2.gradient.schedule import Advance, Reverse, Store, segment_schedule

STEPS = st.integers(1, 200)
SEGMENTS = st.integers(1, 50)


@given(STEPS, SEGMENTS)
def test_every_step_is_advanced_once_and_in_order(steps: int, segments: int) -> None:
    forward = segment_schedule(steps, segments).forward
    advanced = [i for action in forward if isinstance(action, Advance) for i in range(*action)]
    assert advanced == list(range(steps))


@given(STEPS, SEGMENTS)
def test_every_step_is_reversed_once_and_from_the_last_to_the_first(
    steps: int, segments: int
) -> None:
    backward = segment_schedule(steps, segments).backward
    reversed_steps = [i for action in backward for i in reversed(range(*action))]
    assert reversed_steps == list(reversed(range(steps)))


@given(STEPS, SEGMENTS)
def test_lengths_of_segments_differ_by_one_at_most(steps: int, segments: int) -> None:
    lengths = {stop - start for start, stop in segment_schedule(steps, segments).backward}
    assert max(lengths) - min(lengths) <= 1


@given(STEPS, SEGMENTS)
def test_there_are_as_many_segments_as_asked_but_no_more_than_steps(
    steps: int, segments: int
) -> None:
    assert len(segment_schedule(steps, segments).backward) == min(segments, steps)


@given(STEPS, st.integers(0, 50))
def test_more_segments_than_steps_mean_one_step_each(steps: int, more: int) -> None:
    assert segment_schedule(steps, steps + more) == segment_schedule(steps, steps)
    assert all(b - a == 1 for a, b in segment_schedule(steps, steps + more).backward)


@given(STEPS, SEGMENTS)
def test_the_state_that_a_segment_is_reversed_from_is_stored_before_it_is_advanced(
    steps: int, segments: int
) -> None:
    schedule = segment_schedule(steps, segments)
    pairs = list(zip(schedule.forward[::2], schedule.forward[1::2], strict=True))
    assert [Store(*advance) for _, advance in pairs] == [store for store, _ in pairs]
    assert [Reverse(*store) for store, _ in reversed(pairs)] == list(schedule.backward)


def test_five_steps_in_two_segments() -> None:
    schedule = segment_schedule(5, 2)
    assert schedule.forward == (Store(0, 2), Advance(0, 2), Store(2, 5), Advance(2, 5))
    assert schedule.backward == (Reverse(2, 5), Reverse(0, 2))


def test_the_module_imports_no_torch() -> None:
    import anodev2.gradient.schedule as schedule

    program = "import runpy, sys; runpy.run_path(sys.argv[1]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program, schedule.__file__], check=True)
