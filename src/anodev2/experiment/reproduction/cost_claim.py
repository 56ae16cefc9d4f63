"""The paper's claims about cost: in evaluations of f, and in time where steps were timed."""

from collections.abc import Mapping, Sequence
from statistics import median

from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.difference import median_interval
from anodev2.experiment.reproduction.document import Claim
from anodev2.experiment.reproduction.evidence import CONFIGURATIONS, Evidence
from anodev2.experiment.reproduction.judgement import Check, judged

NOTHING = 0.03
"""A share of a training step that is as good as nothing."""


def cost(e: Evidence, method: str, times: int) -> Claim:
    """An ODE block costs N_t times the residual block [eq. of configuration 1, appendix C]."""
    checks: list[Check] = []
    for model in e.runs.models:
        runs = e.runs.by_key.get((model, method), [])
        base = e.runs.by_key.get((model, "baseline"), [])
        if runs and base:
            count = runs[0].field_evaluations["forward"] / base[0].field_evaluations["forward"]
            blocks = {"resnet10": " (with the residual block that stays one)"}.get(model, "")
            expected = (2 * times + 1) / 3 if model == "resnet10" else times
            in_time, step = _no_slower(e.seconds.get(model), method, expected)
            told = f"{NAMES[model]} {count:.3g} times the evaluations{blocks}{step}"
            checks.append((in_time if count == expected else False, told))
    return judged(
        f"{CONFIGURATIONS[method].capitalize()} costs {times} times the baseline's block, counted "
        "in evaluations of f, and no more than that in time.",
        checks,
        missing=f"It needs runs of {method} and baseline.",
    )


def _no_slower(seconds: Mapping[str, Sequence[float]] | None, method: str, times: float) -> Check:
    """Whether a training step takes at most so many of the baseline's, where they were timed."""
    if seconds is None or not {method, "baseline"} <= seconds.keys():
        return True, ""
    ratios = [a / b for a, b in zip(seconds[method], seconds["baseline"], strict=True)]
    told = f", a training step of the whole network {median(ratios):.2f} times"
    interval = median_interval(ratios)
    if interval is None:
        return None, f"{told} ({len(ratios)} rounds, no interval)"
    low, high = interval
    told += f" ({low:.2f} to {high:.2f})"
    return (False if low > times else None if high > times else True), told


def evolution_costs_nothing(e: Evidence) -> Claim:
    """The overhead of evolving theta is negligible [Methodology]."""
    checks: list[Check] = []
    for model, times in e.seconds.items():
        for method in CONFIGURATIONS:
            if {method, f"{method} frozen"} <= times.keys():
                pairs = zip(times[method], times[f"{method} frozen"], strict=True)
                shares = [1 - frozen / moving for moving, frozen in pairs]
                holds, told = _at_most(shares, NOTHING)
                checks.append((holds, f"{NAMES[model]} {method} {told}"))
    return judged(
        f"The evolution itself costs nothing (at most {100 * NOTHING:g} % of a training step).",
        checks,
        missing="It needs timed steps with the weights moving and frozen.",
    )


def _at_most(shares: Sequence[float], most: float) -> Check:
    """Whether the interval of the median is at most so much: one of a step less part of it.

    None where it reaches below -most: a part takes no time off the whole, so such timing says
    nothing.
    """
    interval = median_interval(shares)
    told = f"{100 * median(shares):+.1f} %"
    if interval is None:
        return None, f"{told} ({len(shares)} rounds, no interval)"
    low, high = interval
    told += f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return (False if low > most else None if max(high, -low) > most else True), told
