"""The two time grids: which point of the w-grid each stage of each z-step reads."""

from fractions import Fraction

import jaxtyping
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anodev2 import Coupling, configuration_1, configuration_2
from anodev2.coupling import Reads
from anodev2.solver import RK4, Euler, Midpoint, Solver
from anodev2.usage import UsageError
from cases import SOLVERS

counts = st.integers(1, 200)
solvers = st.sampled_from([solver for solver, _ in SOLVERS])


def reads_of(coupling: Coupling, solver: Solver) -> Reads:
    return coupling.reads(solver.tableau.c)


def times_of(reads: Reads) -> list[list[Fraction]]:
    return [[Fraction(point, reads.w_steps) for point in step] for step in reads.index]


def test_configuration_1_reads_theta_at_i_over_n():
    reads = reads_of(configuration_1(steps=5), Euler())
    assert reads == Reads(5, ((0,), (1,), (2,), (3,), (4,)))


def test_configuration_1_has_five_steps_by_default():
    assert configuration_1() == Coupling(z_steps=5, w_steps=5)


def test_configuration_2_reads_theta_0_and_theta_1_on_a_grid_of_exactly_ten_steps():
    assert reads_of(configuration_2(), Euler()) == Reads(10, ((0,), (10,)))


def test_configuration_2_spreads_its_reads_evenly_over_the_whole_interval():
    reads = reads_of(configuration_2(z_steps=4, w_steps=6), Euler())
    assert reads.index == ((0,), (2,), (4,), (6,))


def test_one_z_step_of_configuration_2_reads_theta_1():
    assert reads_of(configuration_2(z_steps=1), Euler()).index == ((10,),)


def test_a_hypernetwork_reads_theta_1_after_one_step():
    assert reads_of(Coupling(1, 1, read_times=(1.0,)), Euler()) == Reads(1, ((1,),))


def test_midpoint_refines_the_grid_twice_and_reads_at_both_its_nodes():
    reads = reads_of(configuration_1(steps=3), Midpoint())
    assert reads == Reads(6, ((0, 1), (2, 3), (4, 5)))


def test_rk4_refines_the_grid_twice_and_reads_at_each_stages_own_time():
    reads = reads_of(configuration_1(steps=2), RK4())
    assert reads == Reads(4, ((0, 1, 1, 2), (2, 3, 3, 4)))


def test_a_w_grid_that_already_holds_the_stages_is_not_refined():
    assert reads_of(Coupling(z_steps=2, w_steps=12), RK4()).w_steps == 12


def test_grids_of_unlike_counts_are_refined_to_their_common_multiple():
    assert reads_of(Coupling(z_steps=2, w_steps=3), Euler()) == Reads(6, ((0,), (3,)))


@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=repr)
def test_given_read_times_hold_for_all_stages_and_refine_nothing(solver):
    reads = reads_of(Coupling(2, 4, read_times=(0.25, 1.0)), solver)
    stages = len(solver.tableau.c)
    assert reads == Reads(4, ((1,) * stages, (4,) * stages))


def test_distinct_reads_are_ascending_and_named_once():
    reads = reads_of(Coupling(4, 4, read_times=(1.0, 0.5, 1.0, 0.0)), Euler())
    assert reads.distinct == (0, 2, 4)


@given(steps=counts, solver=solvers)
def test_configuration_1_times_are_the_exact_fractions_of_step_and_node(steps, solver):
    exact = [[(i + node) / steps for node in solver.tableau.c] for i in range(steps)]
    assert times_of(reads_of(configuration_1(steps), solver)) == exact


@given(steps=counts)
def test_the_last_euler_step_of_configuration_1_reads_at_exactly_n_minus_1_over_n(steps):
    assert times_of(reads_of(configuration_1(steps), Euler()))[-1] == [Fraction(steps - 1, steps)]


@given(steps=st.integers(2, 200), finer=st.integers(1, 20))
def test_configuration_2_times_survive_the_way_through_floats_exactly(steps, finer):
    reads = reads_of(configuration_2(steps, finer * (steps - 1)), Euler())
    assert reads.index == tuple((finer * i,) for i in range(steps))


@given(w_steps=counts, data=st.data())
def test_every_point_of_the_w_grid_can_be_read(w_steps, data):
    point = data.draw(st.integers(0, w_steps))
    assert reads_of(Coupling(1, w_steps, (point / w_steps,)), Euler()).index == ((point,),)


@pytest.mark.parametrize(
    ("z_steps", "w_steps", "times", "smallest"),
    [(2, 10, (0, 1 / 3), 3), (2, 10, (0.5, 1 / 3), 6), (1, 4, (0.1,), 10), (3, 1, (0, 0.5, 1), 2)],
)
def test_a_read_time_off_the_grid_is_refused_with_the_smallest_grid_that_holds_all(
    z_steps, w_steps, times, smallest
):
    with pytest.raises(UsageError, match=f"contains every read time is {smallest}$"):
        Coupling(z_steps, w_steps, times)


def test_the_grid_named_in_that_error_is_accepted():
    assert reads_of(Coupling(2, 3, (0, 1 / 3)), Euler()).index == ((0,), (1,))


def test_configuration_2_refuses_a_w_grid_that_misses_its_reads():
    with pytest.raises(UsageError, match=r"is 2$"):
        configuration_2(z_steps=3, w_steps=5)


@pytest.mark.parametrize("time", [-0.1, 1.1, float("nan"), 1 / 2**0.5])
def test_a_read_time_that_is_no_fraction_of_the_interval_is_refused_by_value(time):
    with pytest.raises(UsageError, match=repr(time)):
        Coupling(1, 10, (time,))


@pytest.mark.parametrize("times", [(), (0.0,), (0.0, 0.5, 1.0)])
def test_a_wrong_number_of_read_times_is_refused_with_both_counts(times):
    with pytest.raises(UsageError, match=f"{len(times)} read times for 2 z-steps"):
        Coupling(2, 2, times)


@pytest.mark.parametrize("count", [2.0, "2", True, None])
@pytest.mark.parametrize("which", ["z_steps", "w_steps"])
def test_a_count_that_is_no_integer_is_refused_by_name(which, count, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would be first to refuse
    with pytest.raises(TypeError, match=f"{which} must be an integer, got {count!r}"):
        Coupling(**{"z_steps": 1, "w_steps": 1, which: count})


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("which", ["z_steps", "w_steps"])
def test_a_count_below_one_is_refused_by_name(which, count):
    with pytest.raises(UsageError, match=f"{which} must be at least 1, got {count}"):
        Coupling(**{"z_steps": 1, "w_steps": 1, which: count})


@pytest.mark.parametrize("steps", [0, -3])
@pytest.mark.parametrize("configuration", [configuration_1, configuration_2])
def test_both_configurations_refuse_fewer_than_one_step(configuration, steps):
    with pytest.raises(UsageError, match="z_steps must be at least 1"):
        configuration(steps)
