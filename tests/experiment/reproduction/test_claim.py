"""Each claim of the paper against runs for which it holds, does not hold, or is not measured."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from anodev2.experiment.reproduction import claim, cost_claim
from anodev2.experiment.reproduction.claim import CLAIMS
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.document import Claim
from anodev2.experiment.reproduction.evidence import Evidence
from anodev2.experiment.reproduction.step_times import Times
from anodev2.experiment.result import Result
from results import result, runs_of, timed

HOLDS, FAILS, MISSING = "holds here", "does not hold here", "not measured"


def judged(which: Callable[..., Claim], runs: Collection, *given: object, **more: object) -> Claim:
    return which(Evidence(runs, []), *given, **more)


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (runs_of(baseline=[70, 70.1], anodev2_1=[73, 73.1]), HOLDS),
        (runs_of(baseline=[70, 70.1], anodev2_1=[67, 67.1]), FAILS),
        (runs_of(baseline=[70] * 20, anodev2_1=[69.9] + [71] * 19), FAILS),  # the minimum
        (runs_of(baseline=[70] * 19 + [71], anodev2_1=[70.9] * 20), FAILS),  # the maximum
        (runs_of(baseline=[70, 71], anodev2_1=[70.5, 71.5]), MISSING),  # within noise
        (runs_of(baseline=[70.00], anodev2_1=[70.01]), MISSING),  # one run cannot tell
        (runs_of(baseline=[70], anodev2_1=[76]), HOLDS),  # unless it is far
        (runs_of(baseline=[70, 71]), MISSING),
    ],
)
def test_above_the_baseline_takes_minimum_maximum_and_average(runs, verdict) -> None:
    assert judged(claim.above_baseline, runs, "anodev2-1").verdict == verdict


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (runs_of(baseline=[70, 71, 69], anodev2_2=[71.1, 72, 73]), HOLDS),
        (runs_of(baseline=[70, 71], anodev2_2=[71.1, 72]), MISSING),  # 1 in 6 by chance
        (runs_of(baseline=[70, 71], anodev2_2=[70.9, 75]), FAILS),
        (runs_of(baseline=[70, 71], anodev2_2=[75]), MISSING),  # one run has no worst
    ],
)
def test_the_worst_is_compared_with_the_baselines_best(runs, verdict) -> None:
    found = judged(claim.worst_above_best, runs, "anodev2-2")
    assert found.verdict == verdict
    assert "contradicts it for ResNet-4: 77.23 against 77.35" in found.evidence


def test_what_chance_would_put_the_worst_above_the_best_is_told() -> None:
    found = judged(claim.worst_above_best, runs_of(baseline=[1, 2], anodev2_1=[3, 4]), "anodev2-1")
    assert found.evidence.startswith(
        "Undecided, ResNet-4 3.00 against 2.00 (2 and 2 runs, 1 in 6 by chance)."
    )


def of(model: str, **accuracies: list[float]) -> tuple[Result, ...]:
    """Another network's runs."""
    return tuple(
        replace(run, config=run.config | {"model": model}) for run in runs_of(**accuracies).results
    )


@pytest.mark.parametrize("other", [{"anodev2_2": [75]}, {"baseline": [70], "anodev2_2": [75]}])
def test_a_network_with_too_few_runs_leaves_open_what_holds_for_the_others(other) -> None:
    first = runs_of(baseline=[70, 71, 69], anodev2_2=[71.1, 72, 73]).results
    runs = Collection((*first, *of("alexnet", **other)))
    found = judged(claim.worst_above_best, runs, "anodev2-2")
    assert found.verdict == MISSING
    assert f"undecided, AlexNet 1 run of anodev2-2, {len(other) - 1} of baseline." in found.evidence


def test_a_network_without_the_other_method_leaves_open_what_holds_for_the_others() -> None:
    first = runs_of(baseline=[70, 70], neural_ode=[10, 10], anode_5=[60], anodev2_1=[80]).results
    runs = Collection((*first, *of("alexnet", neural_ode=[10, 10], anodev2_1=[80])))
    for found, told in (
        (judged(claim.above_rest, runs, "anodev2-1"), "1 run of anodev2-1, 0 of anode-5"),
        (judged(claim.above_baseline, runs, "anodev2-1"), "1 run of anodev2-1, 0 of baseline"),
        (judged(claim.neural_ode_far_below, runs), "2 runs of neural-ode, 0 of baseline"),
    ):
        assert found.verdict == MISSING
        assert found.evidence.startswith("Yes, ResNet-4 ")
        assert found.evidence.endswith(f"undecided, AlexNet {told}.")
    left = Collection((*first, *of("alexnet", baseline=[70])))  # it did not run the methods
    assert judged(claim.above_rest, left, "anodev2-1").verdict == HOLDS


@pytest.mark.parametrize(
    ("method", "runs", "verdict"),
    [
        ("anodev2-1", runs_of(anode_5=[70, 70.01], anodev2_1=[71, 71]), HOLDS),
        ("anodev2-1", runs_of(anode_5=[70], anodev2_1=[71, 71]), MISSING),  # one run cannot tell
        ("anodev2-1", runs_of(anode_5=[60], anodev2_1=[71]), HOLDS),  # unless it is far
        ("anodev2-1", runs_of(anode=[70], anodev2_1=[71]), MISSING),  # other steps
        ("anodev2-2", runs_of(anode=[71, 71.01], anodev2_2=[70.8, 70.8]), FAILS),
    ],
)
def test_the_motion_is_judged_against_anode_at_equal_steps(method, runs, verdict) -> None:
    assert judged(claim.above_rest, runs, method).verdict == verdict


def test_a_difference_within_its_interval_is_undecided() -> None:
    found = judged(claim.above_rest, runs_of(anode_5=[70, 71], anodev2_1=[70.2, 71]), "anodev2-1")
    assert found.verdict == MISSING
    assert found.evidence.startswith("Undecided, ResNet-4 +0.10 ± ")
    sure = judged(claim.above_rest, runs_of(anode_5=[70, 70.1], anodev2_1=[73, 73.1]), "anodev2-1")
    assert sure.verdict == HOLDS


@pytest.mark.parametrize(
    ("baseline", "neural_ode", "verdict"),
    [
        ([70, 70], [64.9, 64.91], HOLDS),
        ([70, 70], [65.1, 65.11], FAILS),
        ([70, 71], [60, 66], MISSING),  # five points are within the interval
        ([13, 14], [13, 13], MISSING),
        ([70, 70], [63, 63], MISSING),  # runs that do not vary have no interval
        ([70, 71], [10, 59.9], HOLDS),  # so wide an interval that each run tells more
        ([70], [59.9], HOLDS),  # one run has five points of noise
        ([70], [60.1], MISSING),
        ([70], [70.1], FAILS),
    ],
)
def test_far_below_is_five_points_outside_the_interval_or_the_best_is_ten_below_the_worst(
    baseline, neural_ode, verdict
) -> None:
    runs = runs_of(baseline=baseline, neural_ode=neural_ode)
    assert judged(claim.neural_ode_far_below, runs).verdict == verdict


def test_more_steps_need_runs_at_two_numbers_of_steps() -> None:
    runs = runs_of(anodev2_1_1=[70], anodev2_1=[76], neural_ode_1=[70])
    assert judged(claim.more_steps, runs, "anodev2-1", help_=True).verdict == HOLDS
    assert judged(claim.more_steps, runs, "neural-ode", help_=False).verdict == MISSING
    worse = runs_of(neural_ode_1=[70], neural_ode_10=[60])
    assert judged(claim.more_steps, worse, "neural-ode", help_=False).verdict == HOLDS
    assert judged(claim.more_steps, worse, "neural-ode", help_=True).verdict == FAILS


def test_more_steps_help_where_accuracy_rises_and_falls_nowhere_between() -> None:
    steady = runs_of(anode_1=[60, 60.1], anode=[65, 65.1], anode_5=[64.9, 65.1], anode_10=[70, 71])
    assert judged(claim.more_steps, steady, "anode", help_=True).verdict == HOLDS
    falling = runs_of(anode_1=[70, 70.1], anode=[60, 60.1], anode_5=[60, 60.2], anode_10=[80, 81])
    found = judged(claim.more_steps, falling, "anode", help_=True)
    assert found.verdict == FAILS
    assert "from 1 to 10 (2 and 2 runs), but -10.00 ± 0.30 from 1 to 2 (2" in found.evidence
    lower = runs_of(anode_1=[70], anode=[60], anode_10=[50])
    found = judged(claim.more_steps, lower, "anode", help_=True)
    assert found.evidence.endswith("50.00 at 10: -20.00 from 1 to 10 (one run each, no interval).")


def test_more_steps_do_not_help_where_no_number_of_them_is_better_than_the_fewest() -> None:
    between = runs_of(neural_ode_1=[40, 40.1], neural_ode=[60, 60.1], neural_ode_10=[30, 30.2])
    found = judged(claim.more_steps, between, "neural-ode", help_=False)
    assert found.verdict == FAILS
    assert "+20.00 ± 0.30 from 1 to 2 (" in found.evidence
    wild = runs_of(neural_ode_1=[40, 40.1], neural_ode=[42, 42.1], neural_ode_10=[38, 50])
    found = judged(claim.more_steps, wild, "neural-ode", help_=False)
    assert found.verdict == FAILS
    assert "+2.00 ± 0.30 from 1 to 2 (" in found.evidence  # not the most, but what decides
    unsure = runs_of(neural_ode_1=[40, 40.1], neural_ode=[38, 45], neural_ode_10=[30, 30.2])
    assert judged(claim.more_steps, unsure, "neural-ode", help_=False).verdict == MISSING


@pytest.mark.parametrize(
    ("one", "ten", "verdict"),
    [
        ([10, 10], [10, 10], MISSING),  # at chance whatever it does
        ([47.0, 47.3, 47.1], [47.2, 47.0, 47.2], HOLDS),
        ([47.0, 47.1], [48.0, 48.1], FAILS),
        ([47.0, 47.0], [47.4, 47.401], HOLDS),  # by half a point or more
        ([47, 49], [47, 49], MISSING),  # the interval has room for a gain
        ([10], [10], MISSING),  # one run cannot tell
    ],
)
def test_more_steps_do_not_help_where_the_interval_leaves_no_gain(one, ten, verdict) -> None:
    runs = runs_of(neural_ode_1=one, neural_ode_10=ten)
    assert judged(claim.more_steps, runs, "neural-ode", help_=False).verdict == verdict


STEP, BASE, WITHOUT = [6.0] * 6, [2.0] * 6, [1.0] * 6
"""Of a training step with a block, with the baseline's, which is a fifth of it, and without."""


def block_steps(moving: list[float], count: int = 6) -> Times:
    rounds = {"anodev2-1": moving, "baseline": BASE, "without-block": WITHOUT}
    return timed({kind: seconds[:count] for kind, seconds in rounds.items()})


def cost_of(forward: int, *seconds: Times) -> Claim:
    runs = Collection((result(), result(method="anodev2-1", forward=forward)))
    return cost_claim.cost(Evidence(runs, seconds), "anodev2-1", 5)


@pytest.mark.parametrize(("forward", "verdict"), [(5, HOLDS), (6, FAILS)])
def test_cost_is_counted_in_evaluations_of_f(forward, verdict) -> None:
    assert cost_of(forward, block_steps(STEP)).verdict == verdict


def test_cost_in_resnet10_counts_the_block_that_stays_a_residual_block() -> None:
    base, moving = (
        result("resnet10", method, forward=n) for method, n in (("baseline", 3), ("anodev2-1", 11))
    )
    seconds = replace(
        block_steps(STEP), conditions=replace(block_steps(STEP).conditions, model="resnet10")
    )
    evidence = Evidence(Collection((base, moving)), [seconds])
    assert cost_claim.cost(evidence, "anodev2-1", 5).verdict == HOLDS


@pytest.mark.parametrize(
    ("moving", "verdict"),
    [
        ([5.9, 6.0, 5.8, 7.0, 5.95, 6.1], HOLDS),
        ([7.3, 7.4, 7.5, 7.5, 7.6, 9.0], FAILS),  # 6.3 times the block, 3.7 times the whole step
        ([4.7, 4.6, 4.5, 4.6, 4.2, 4.7], FAILS),
        ([7.2, 7.3, 7.2, 7.3, 7.2, 7.3], MISSING),  # a quarter more is within the interval
    ],
)
def test_what_is_five_times_in_evaluations_takes_about_five_times_the_blocks_time(
    moving, verdict
) -> None:
    assert cost_of(5, block_steps(moving)).verdict == verdict


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        ([], "not timed"),
        ([timed({"anodev2-1": STEP, "baseline": BASE})], "not timed"),
        ([block_steps(STEP, count=5)], "block's time lost in the noise of 5 rounds"),
        (
            [timed({"anodev2-1": STEP, "baseline": BASE, "without-block": [1.0, 3.0] * 3})],
            "block's time lost in the noise of 6 rounds",
        ),
        ([timed(block_steps(STEP).rounds, batch_size=64)], "not timed"),  # other steps
        ([timed(block_steps(STEP).rounds, order="post")], "not timed"),
        ([timed(block_steps(STEP).rounds, precision="float32")], "not timed"),
    ],
)
def test_cost_in_time_is_open_where_it_was_not_timed_well(seconds, told) -> None:
    found = cost_of(5, *seconds)
    assert found.verdict == MISSING
    assert told in found.evidence


def test_a_round_in_which_something_else_ran_does_not_leave_the_cost_open() -> None:
    rounds = {"anodev2-1": [6.0] * 25, "baseline": [2.0] * 25, "without-block": [1.0] * 24 + [3.0]}
    assert cost_of(5, timed(rounds)).verdict == HOLDS


def test_a_network_that_lacks_a_part_leaves_open_what_holds_for_the_others() -> None:
    two = (result(), result(method="anodev2-1", forward=5, reversal=0.5))
    steps = timed(block_steps(STEP).rounds | {"anodev2-1 frozen": STEP})
    resting = result(method="anode", reversal=0.5)
    runs = Collection((*two, resting, result("alexnet", "anodev2-1"), result("alexnet", "anode")))
    evidence = Evidence(runs, [steps])
    for found, told in (
        (cost_claim.cost(evidence, "anodev2-1", 5), "AlexNet no run of baseline"),
        (cost_claim.evolution_costs_nothing(evidence), "AlexNet anodev2-1 not timed"),
        (claim.reverse_solve_fails(evidence), "AlexNet anode not measured"),
    ):
        assert found.verdict == MISSING
        assert found.evidence.startswith("Yes, ResNet-4 ")
        assert found.evidence.endswith(f"undecided, {told}.")
    steps_of = runs_of(anode_1=[60], anode_10=[70]).results
    found = judged(claim.more_steps, Collection((*steps_of, result("alexnet", "anode"))), "anode",
                   help_=True)  # fmt: skip
    assert found.verdict == MISSING
    assert found.evidence.endswith("undecided, AlexNet at 2 steps alone.")


QUIET = [1.02, 1.021, 1.019, 1.02, 1.03, 1.02, 1.018, 1.02, 1.9]


@pytest.mark.parametrize(
    ("moving", "frozen", "verdict"),
    [
        (QUIET, [1.0] * 8 + [1.88], HOLDS),  # a pair that was slow together
        ([2 * step for step in QUIET], [1.0] * 9, FAILS),
        ([1.0, 1.1] * 4 + [1.0], [1.0] * 9, MISSING),  # three per cent are within the interval
        ([1.0] * 9, [1.1] * 9, MISSING),  # frozen weights are not slower: it is noise
        ([1.0] * 9, [1.1] * 3 + [0.99] * 6, MISSING),
        (QUIET[:5], [1.0] * 5, MISSING),  # too few for an interval
        (QUIET, None, MISSING),
    ],
)
def test_the_evolution_costs_nothing_where_its_interval_is_within_three_per_cent(
    moving, frozen, verdict
) -> None:
    seconds = timed({"anodev2-1": moving} | ({"anodev2-1 frozen": frozen} if frozen else {}))
    evidence = Evidence(runs_of(anodev2_1=[70]), [seconds])
    assert cost_claim.evolution_costs_nothing(evidence).verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(0.5, HOLDS), (1e-6, FAILS), (None, MISSING)])
def test_the_reverse_solve_fails_where_it_is_off_by_more_than_one_per_cent(error, verdict) -> None:
    runs = Collection((result(method="anode", reversal=error),))
    assert judged(claim.reverse_solve_fails, runs).verdict == verdict


def test_model_sizes_are_within_the_papers() -> None:
    assert judged(claim.model_size, Collection(())).verdict == HOLDS


def test_alexnet_does_not_grow_by_half_a_per_cent_here_or_in_the_papers_table() -> None:
    found = judged(claim.growth, Collection(()))
    assert found.verdict == FAILS
    assert "AlexNet 0.047 %" in found.evidence
    assert "contradicts it for AlexNet: 0.047 %" in found.evidence


def test_without_runs_only_what_is_counted_is_measured() -> None:
    verdicts = [judged(which, Collection(())).verdict for which in CLAIMS]
    assert verdicts.count(MISSING) == len(CLAIMS) - 2


def test_a_claim_holds_only_where_it_holds_for_every_network_that_ran() -> None:
    better = (result(accuracy=70), result(method="anodev2-1", accuracy=76))
    worse = (result("resnet10", accuracy=80), result("resnet10", "anodev2-1", accuracy=70))
    found = judged(claim.above_baseline, Collection(better + worse), "anodev2-1")
    assert found.verdict == FAILS
    assert "Yes, ResNet-4 76.00" in found.evidence
    assert "no, ResNet-10 70.00" in found.evidence


def test_an_evolution_that_was_not_timed_frozen_is_named_and_leaves_the_cost_open() -> None:
    both = (result(method="anodev2-1"), result(method="anodev2-2"))
    steps = timed({"anodev2-1": STEP, "anodev2-1 frozen": STEP, "anodev2-2": STEP})
    found = cost_claim.evolution_costs_nothing(Evidence(Collection(both), [steps]))
    assert found.verdict == MISSING
    assert found.evidence.endswith("undecided, ResNet-4 anodev2-2 not timed.")
