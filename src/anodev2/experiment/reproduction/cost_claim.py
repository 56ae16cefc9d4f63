"""The paper's claims about cost: in evaluations of f, and in time where steps were timed."""

from collections.abc import Mapping, Sequence
from math import inf
from statistics import median

from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.difference import median_interval
from anodev2.experiment.reproduction.document import Claim
from anodev2.experiment.reproduction.evidence import CONFIGURATIONS, Evidence
from anodev2.experiment.reproduction.judgement import Check, judged

NOTHING = 0.03
"""A share of a training step that is as good as nothing."""
ABOUT = 0.25
"""How far a ratio may be from about so many times, relative to it."""


def cost(e: Evidence, method: str, times: int) -> Claim:
    """An ODE block costs N_t times the residual block [eq. of configuration 1, appendix C]."""
    checks: list[Check] = []
    alone: list[str] = []
    for model in e.runs.models:
        runs = e.runs.by_key.get((model, method), [])
        base = e.runs.by_key.get((model, "baseline"), [])
        if runs and base:
            count = runs[0].field_evaluations["forward"] / base[0].field_evaluations["forward"]
            stays = {"resnet10": " (with the residual block that stays one)"}.get(model, "")
            expected = (2 * times + 1) / 3 if model == "resnet10" else times
            in_time, told = _about(e.times(model, method), method, times)
            evaluations = f"{NAMES[model]} {count:.3g} times the evaluations{stays}"
            checks.append((in_time if count == expected else False, f"{evaluations}, {told}"))
        elif runs:
            alone.append(f"{NAMES[model]} no run of baseline")
    return judged(
        f"{CONFIGURATIONS[method].capitalize()} costs {times} times the baseline's block: exactly "
        f"in evaluations of f, to {100 * ABOUT:g} % in time.",
        checks,
        missing=f"It needs runs of {method} and baseline.",
        lacking=alone,
    )


def _about(seconds: Mapping[str, Sequence[float]] | None, method: str, times: int) -> Check:
    """Whether a block takes about so many times the baseline's.

    A block's time is that of a training step less that of one of the network without the block;
    a round in which the baseline's was not above zero has a ratio beyond all others.
    """
    kinds = (method, "baseline", "without-block")
    if seconds is None or not {*kinds} <= seconds.keys():
        return None, "not timed"
    rounds = [*zip(*(seconds[kind] for kind in kinds), strict=True)]
    whole = f"a training step of the whole network {median(a / b for a, b, _ in rounds):.2f} times"
    ratios = [(a - rest) / (b - rest) if b > rest else inf for a, b, rest in rounds]
    interval = median_interval(ratios)
    if interval is None:
        return None, f"{whole}, its block's time lost in the noise of {len(rounds)} rounds"
    told = f"{median(ratios):.2f} times the block's time"
    low, high = interval
    least, most = (1 - ABOUT) * times, (1 + ABOUT) * times
    holds = False if low > most or high < least else True if least <= low and high <= most else None
    return holds, f"{told} ({low:.2f} to {high:.2f}), {whole}"


def evolution_costs_nothing(e: Evidence) -> Claim:
    """The overhead of evolving theta is negligible [Methodology]."""
    checks: list[Check] = []
    untimed: list[str] = []
    for model in e.runs.models:
        for method in CONFIGURATIONS:
            times: Mapping[str, Sequence[float]] = e.times(model, method) or {}
            if {method, f"{method} frozen"} <= times.keys():
                pairs = zip(times[method], times[f"{method} frozen"], strict=True)
                shares = [1 - frozen / moving for moving, frozen in pairs]
                holds, told = _at_most(shares, NOTHING)
                checks.append((holds, f"{NAMES[model]} {method} {told}"))
            elif (model, method) in e.runs.by_key:
                untimed.append(f"{NAMES[model]} {method} not timed")
    return judged(
        f"The evolution itself costs nothing (at most {100 * NOTHING:g} % of a training step).",
        checks,
        missing="It needs runs of either configuration, and steps timed moving and frozen.",
        lacking=untimed,
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
