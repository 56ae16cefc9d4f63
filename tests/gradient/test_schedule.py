"""Schedules: which steps run when, as integers alone."""

import subprocess
import sys
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anodev2.gradient import Binomial
from anodev2.gradient.schedule import (
    Advance,
    Free,
    Load,
    Reverse,
    Schedule,
    Store,
    binomial_schedule,
    segment_schedule,
)

STEPS = st.integers(1, 200)
SEGMENTS = st.integers(1, 50)
SLOTS = range(1, 9)


def advanced(actions: tuple[object, ...]) -> list[int]:
    return [i for action in actions if isinstance(action, Advance) for i in range(*action)]


def reversals(schedule: Schedule) -> list[Reverse]:
    return [action for action in schedule.backward if isinstance(action, Reverse)]


@given(STEPS, SEGMENTS)
def test_every_step_is_advanced_once_and_in_order(steps: int, segments: int) -> None:
    assert advanced(segment_schedule(steps, segments).forward) == list(range(steps))


@given(STEPS, SEGMENTS)
def test_segments_advance_nothing_in_the_backward_sweep(steps: int, segments: int) -> None:
    assert advanced(segment_schedule(steps, segments).backward) == []


@given(STEPS, SEGMENTS)
def test_every_step_is_reversed_once_and_from_the_last_to_the_first(
    steps: int, segments: int
) -> None:
    order = [i for r in reversals(segment_schedule(steps, segments)) for i in reversed(range(*r))]
    assert order == list(reversed(range(steps)))


@given(STEPS, SEGMENTS)
def test_lengths_of_segments_differ_by_one_at_most(steps: int, segments: int) -> None:
    lengths = {stop - start for start, stop in reversals(segment_schedule(steps, segments))}
    assert max(lengths) - min(lengths) <= 1


@given(STEPS, SEGMENTS)
def test_there_are_as_many_segments_as_asked_but_no_more_than_steps(
    steps: int, segments: int
) -> None:
    assert len(reversals(segment_schedule(steps, segments))) == min(segments, steps)


@given(STEPS, st.integers(0, 50))
def test_more_segments_than_steps_mean_one_step_each(steps: int, more: int) -> None:
    assert segment_schedule(steps, steps + more) == segment_schedule(steps, steps)
    assert all(b - a == 1 for a, b in reversals(segment_schedule(steps, steps + more)))


@given(STEPS, SEGMENTS)
def test_each_segment_is_reversed_from_the_state_stored_before_it_was_advanced(
    steps: int, segments: int
) -> None:
    schedule = segment_schedule(steps, segments)
    pairs = list(zip(schedule.forward[::2], schedule.forward[1::2], strict=True))
    assert all(isinstance(store, Store) for store, _ in pairs)
    assert [store.start for store, _ in pairs] == [advance.start for _, advance in pairs]
    expected = [(Load(a), Reverse(a, b)) for _, (a, b) in reversed(pairs)]
    assert list(zip(schedule.backward[::2], schedule.backward[1::2], strict=True)) == expected


def test_five_steps_in_two_segments() -> None:
    schedule = segment_schedule(5, 2)
    assert schedule.forward == (Store(0, 5), Advance(0, 2), Store(2, 5), Advance(2, 5))
    assert schedule.backward == (Load(2), Reverse(2, 5), Load(0), Reverse(0, 2))


@cache
def t(steps: int, states: int) -> int:
    """Fewest evaluations without a tape that reverse `steps` from one of `states` states."""
    if steps == 1:
        return 0
    if states == 1:
        return steps * (steps - 1) // 2
    return min(j + t(j, states) + t(steps - j, states - 1) for j in range(1, steps))


@cache
def p(steps: int, states: int) -> int:
    """The same after a forward sweep that has left states where they are best."""
    if steps == 1:
        return 0
    if states == 1:
        return steps * (steps - 1) // 2
    return min(t(j, states) + p(steps - j, states - 1) for j in range(1, steps))


def evaluations_again(steps: int, slots: int) -> int:
    return len(advanced(binomial_schedule(steps, slots).backward))


@pytest.mark.parametrize("slots", SLOTS)
def test_no_schedule_evaluates_less_again_than_the_binomial_one(slots: int) -> None:
    """The optimum by brute force over every place of every state."""
    found = {steps: evaluations_again(steps, slots) for steps in range(1, 41)}
    assert found == {steps: p(steps, slots + 1) for steps in found}


@pytest.mark.parametrize(
    ("steps", "slots", "count"), [(12, 1, 20), (12, 3, 8), (20, 4, 15), (40, 4, 55), (80, 4, 160)]
)
def test_evaluations_again_are_those_of_the_table_in_the_design(
    steps: int, slots: int, count: int
) -> None:
    assert evaluations_again(steps, slots) == count


class Machine:
    """Carries out a schedule with integers for states, and refuses what cannot be done."""

    def __init__(self, schedule: Schedule) -> None:
        self.kept: set[int] = set()
        self.most = 0
        self.reversed: list[int] = []
        self.at: int | None = 0
        for action in (*schedule.forward, *schedule.backward):
            self.carry_out(action)

    def carry_out(self, action: object) -> None:
        match action:
            case Load(start):
                assert start in self.kept
                self.at = start
            case Store(start, _):
                assert self.at == start
                assert start not in self.kept
                self.kept.add(start)
                self.most = max(self.most, len(self.kept - {0}))
            case Free(start):
                self.kept.remove(start)
            case Advance(start, stop):
                assert self.at == start < stop
                self.at = stop
            case Reverse(start, stop):
                assert self.at == start < stop
                self.reversed += reversed(range(start, stop))
                self.at = None


LENGTHS = st.integers(1, 300)
FEW_SLOTS = st.integers(1, 40)


@given(LENGTHS, FEW_SLOTS)
def test_every_binomial_action_starts_at_the_working_state_and_loads_a_kept_one(
    steps: int, slots: int
) -> None:
    assert Machine(binomial_schedule(steps, slots)).reversed


@given(LENGTHS, FEW_SLOTS)
def test_binomial_never_keeps_more_states_than_slots_besides_z0(steps: int, slots: int) -> None:
    assert Machine(binomial_schedule(steps, slots)).most == min(slots, steps - 1)


@given(LENGTHS, FEW_SLOTS)
def test_binomial_reverses_every_step_once_from_the_last_to_the_first(
    steps: int, slots: int
) -> None:
    assert Machine(binomial_schedule(steps, slots)).reversed == list(reversed(range(steps)))


@given(LENGTHS, FEW_SLOTS)
def test_binomial_reverses_one_step_at_a_time(steps: int, slots: int) -> None:
    assert all(b - a == 1 for a, b in reversals(binomial_schedule(steps, slots)))


@given(LENGTHS, FEW_SLOTS)
def test_binomial_keeps_nothing_at_the_end_but_z0(steps: int, slots: int) -> None:
    assert Machine(binomial_schedule(steps, slots)).kept == {0}


@given(LENGTHS, FEW_SLOTS)
def test_the_binomial_forward_sweep_runs_every_step_once_and_in_order(
    steps: int, slots: int
) -> None:
    assert advanced(binomial_schedule(steps, slots).forward) == list(range(steps))


@given(LENGTHS, FEW_SLOTS)
def test_each_state_is_stored_for_all_steps_that_run_from_it(steps: int, slots: int) -> None:
    """What those steps depend on besides it is copied for them."""
    schedule = binomial_schedule(steps, slots)
    stops: dict[int, int] = {}
    source = 0
    for action in (*schedule.forward, *schedule.backward):
        match action:
            case Store(start, stop):
                stops[start] = stop
                source = start
            case Load(start):
                source = start
            case Advance(_, stop) | Reverse(_, stop):
                assert stop <= stops[source]


@given(st.integers(1, 50), st.integers(0, 50))
def test_as_many_slots_as_steps_need_no_schedule(steps: int, more: int) -> None:
    assert Binomial(slots=steps + more).schedule(steps) is None


@given(st.integers(2, 50))
def test_one_slot_less_than_steps_needs_no_evaluation_without_a_tape(steps: int) -> None:
    schedule = Binomial(slots=steps - 1).schedule(steps)
    assert schedule is not None
    assert advanced(schedule.backward) == []


@pytest.mark.parametrize("slots", [1, 4, 8, 1999])
def test_two_thousand_steps_are_scheduled_within_a_second_and_a_shallow_stack(slots: int) -> None:
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    started = time.perf_counter()
    sys.setrecursionlimit(depth + 50)
    try:
        schedule = binomial_schedule(2000, slots)
    finally:
        sys.setrecursionlimit(limit)
    assert len(reversals(schedule)) == 2000
    assert time.perf_counter() - started < 1.0


def test_the_module_imports_no_torch() -> None:
    import anodev2.gradient.schedule as schedule

    program = "import runpy, sys; runpy.run_path(sys.argv[1]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program, schedule.__file__], check=True)
