"""The paper's claims, each a function of finished runs.

Sections "Introduction", "Results", "Ablation Study" and "Conclusions" of the paper. A claim holds
where it holds for every network that ran its method; one that lacks the rest leaves it open.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import comb
from statistics import mean

from anodev2.experiment.cells import counted, per_cent
from anodev2.experiment.paper import NAMES, PAPER
from anodev2.experiment.reproduction.cost_claim import cost, evolution_costs_nothing
from anodev2.experiment.reproduction.difference import difference
from anodev2.experiment.reproduction.document import Claim
from anodev2.experiment.reproduction.evidence import CONFIGURATIONS, Evidence
from anodev2.experiment.reproduction.judgement import (
    FAR,
    SLIGHT,
    Check,
    all_of,
    below,
    judged,
    unless_noise,
)
from anodev2.experiment.reproduction.table import DEPTHS
from anodev2.models import build_model, find_method, spell_method

LUCK = 20
"""In how many orders of runs alike one puts all of a side first: fewer are luck, above 5 %."""
FOUND = 0.01
"""Relative distance within which a state counts as found again."""


def _pairs(
    e: Evidence, method: str, other: str, *, least: int = 1
) -> list[tuple[str, list[float], list[float]]]:
    """Networks with at least so many runs of both methods, and their accuracies."""
    found = [(m, e.runs.accuracies(m, method), e.runs.accuracies(m, other)) for m in e.runs.models]
    return [(m, a, b) for m, a, b in found if min(len(a), len(b)) >= least]


def _too_few(e: Evidence, method: str, other: str, *, least: int = 1) -> list[str]:
    """Networks that ran a method, but do not have so many runs of it and of the other."""
    paired = [model for model, *_ in _pairs(e, method, other, least=least)]
    left = [m for m in e.runs.models if m not in paired and e.runs.accuracies(m, method)]
    counts = [tuple(len(e.runs.accuracies(m, k)) for k in (method, other)) for m in left]
    return [
        f"{NAMES[m]} {counted(a, 'run')} of {method}, {b} of {other}"
        for m, (a, b) in zip(left, counts, strict=True)
    ]


def _seeds(a: Sequence[float], b: Sequence[float]) -> str:
    return "one run each" if len(a) == len(b) == 1 else f"{len(a)} and {len(b)} runs"


def _span(values: Sequence[float]) -> str:
    return " to ".join(f"{value:.2f}" for value in sorted({min(values), max(values)}))


def above_baseline(e: Evidence, method: str) -> Claim:
    """Min, max and average above the baseline's [Nt_5_results, Nt_10_theta_results]."""
    checks: list[Check] = []
    for model, a, b in _pairs(e, method, "baseline"):
        found = difference(a, b)
        above = min(a) > min(b) and max(a) > max(b) and found.value > 0
        told = (
            f"{NAMES[model]} {min(a):.2f} / {max(a):.2f} / {mean(a):.2f} against "
            f"{min(b):.2f} / {max(b):.2f} / {mean(b):.2f} ({_seeds(a, b)}{found.noise})"
        )
        checks.append((unless_noise(above, found), told))
    name = CONFIGURATIONS[method]
    return judged(
        f"{name.capitalize()} is above the baseline in minimum, maximum and average accuracy.",
        checks,
        missing=f"It needs runs of {method} and baseline.",
        lacking=_too_few(e, method, "baseline"),
    )


def worst_above_best(e: Evidence, method: str) -> Claim:
    """ "The worst accuracy was better than the best of the baseline" [Conclusions]."""
    checks: list[Check] = []
    for model, a, b in _pairs(e, method, "baseline", least=2):
        above = min(a) > max(b)
        orders = comb(len(a) + len(b), len(a))
        luck = f", 1 in {orders} by chance" if above else ""
        told = f"{NAMES[model]} {min(a):.2f} against {max(b):.2f} ({_seeds(a, b)}{luck})"
        checks.append((None if above and orders < LUCK else above, told))
    paper = PAPER["resnet4"]
    return judged(
        f"The worst run of {CONFIGURATIONS[method]} is above the best of the baseline.",
        checks,
        missing=f"It needs two runs or more of {method} and baseline.",
        lacking=_too_few(e, method, "baseline", least=2),
        note="The paper's own table contradicts it for ResNet-4: "
        f"{paper[method].least:.2f} against {paper['baseline'].most:.2f}.",
    )


def above_rest(e: Evidence, method: str) -> Claim:
    """What the motion earns at equal steps; the paper compares configuration 2 [ablation_study]."""
    at_rest = find_method(method).at_rest
    assert at_rest is not None
    checks: list[Check] = []
    for model, a, b in _pairs(e, method, at_rest):
        found = difference(a, b)
        told = f"{NAMES[model]} {found} ({_seeds(a, b)}{found.noise})"
        checks.append((unless_noise(found.value > 0, found), told))
    own = "" if method == "anodev2-2" else " (The paper does not compare this.)"
    return judged(
        f"{CONFIGURATIONS[method].capitalize()} is above ANODE at the same number of steps.{own}",
        checks,
        missing=f"It needs runs of {method} and {at_rest}.",
        lacking=_too_few(e, method, at_rest),
    )


def neural_ode_far_below(e: Evidence) -> Claim:
    """ "Significantly worse" [ablation_study]."""
    checks: list[Check] = []
    for model, a, b in _pairs(e, "neural-ode", "baseline"):
        found = difference(a, b)
        told = f"{NAMES[model]} {_span(a)} against {_span(b)}, {found} ({_seeds(a, b)})"
        # One run each is enough where they are as far apart as this, so more that all are do not
        # undo it: runs that fail, each in its own way, have an interval of any width.
        apart = max(a) - min(b) < -2 * FAR
        checks.append((apart or below(found, -FAR), told))
    return judged(
        f"The Neural ODE is far below the baseline (by more than {FAR:g} points).",
        checks,
        missing="It needs runs of neural-ode and baseline.",
        lacking=_too_few(e, "neural-ode", "baseline"),
    )


def more_steps(e: Evidence, kind: str, *, help_: bool) -> Claim:
    """More steps do not help a Neural ODE but the coupled one [Introduction]."""
    checks: list[Check] = []
    single: list[str] = []
    for model in e.runs.models:
        found = {n: e.runs.accuracies(model, spell_method(kind, n)) for n in DEPTHS}
        by = {n: values for n, values in found.items() if values}
        if len(by) > 1:
            listed = ", ".join(f"{mean(values):.2f} at {n}" for n, values in by.items())
            holds, told = (_rising if help_ else _not_above_the_first)(by)
            checks.append((holds, f"{NAMES[model]} {listed}: {told}"))
        elif by:
            single.append(f"{NAMES[model]} at {counted(min(by), 'step')} alone")
    name = {"neural-ode": "a Neural ODE", "anode": "ANODE"}.get(kind, "the coupled system")
    depth = "" if kind != "anode" else " too, so that depth alone earns it"
    by_half = "" if help_ else f" (by {SLIGHT:g} points or more)"
    return judged(
        f"More steps {'help' if help_ else 'do not help'} {name}{depth}{by_half}.",
        checks,
        missing=f"It needs runs of {kind} at two numbers of steps or more (table steps).",
        lacking=single,
    )


def _rising(by: Mapping[int, Sequence[float]]) -> Check:
    """Whether accuracies by steps rise from the fewest to the most, and fall nowhere between."""
    fewest, most = min(by), max(by)
    gain = difference(by[most], by[fewest])
    pairs = {(a, b): difference(by[b], by[a]) for a, b in pairwise(by)}
    falls = [pair for pair, change in pairs.items() if below(change, 0.0)]
    holds = all_of([unless_noise(gain.value > 0, gain), *(False for _ in falls)])
    told = [_gained(by, fewest, most)]
    if falls and gain.value > 0:
        told.append(" and ".join(_gained(by, *pair) for pair in falls))
    return holds, ", but ".join(told)


def _not_above_the_first(by: Mapping[int, Sequence[float]]) -> Check:
    """Whether no number of steps is better than the fewest by `SLIGHT`."""
    fewest, *more = by
    answers = {n: below(difference(by[n], by[fewest]), SLIGHT) for n in more}
    holds = all_of([*answers.values()])
    decisive = [n for n, answer in answers.items() if answer == holds]
    return holds, _gained(by, fewest, max(decisive, key=lambda n: mean(by[n])))


def _gained(by: Mapping[int, Sequence[float]], fewer: int, more: int) -> str:
    gain = difference(by[more], by[fewer])
    return f"{gain} from {fewer} to {more} ({_seeds(by[more], by[fewer])}{gain.noise})"


def reverse_solve_fails(e: Evidence) -> Claim:
    """Solving z backward does not find z(0) again [Related work, ANODE]."""
    checks: list[Check] = []
    unmeasured: list[str] = []
    for (model, label), runs in e.runs.by_key.items():
        if label not in ("neural-ode", "anode", "anode-5"):
            continue
        errors = [run.reversal for run in runs if run.reversal is not None]
        if errors:
            least, most = min(errors), max(errors)
            span = " to ".join(per_cent(error) for error in sorted({least, most}))
            checks.append((least > FOUND, f"{NAMES[model]} {label} {span}"))
        else:
            unmeasured.append(f"{NAMES[model]} {label} not measured")
    return judged(
        "The reverse solve does not find z(0) again: it is off by more than "
        f"{100 * FOUND:g} % in every trained network.",
        checks,
        missing="It needs runs of anode or neural-ode.",
        lacking=unmeasured,
    )


def model_size(e: Evidence) -> Claim:
    """[parameter_size]"""
    checks: list[Check] = []
    for model in e.runs.models or PAPER:
        over = [
            method
            for method, row in PAPER[model].items()
            if parameters(model, method) / 1000 > row.parameters + 0.005
        ]
        checks.append((not over, f"{NAMES[model]} {', '.join(over) or 'in all five methods'}"))
    return judged("Networks have at most as many parameters as the paper's.", checks, missing="")


def growth(e: Evidence) -> Claim:
    """ "By only 0.5 % to 6.7 %" [Ablation Study]."""
    grown = {
        model: 100 * (parameters(model, "anodev2-1") / parameters(model, "baseline") - 1)
        for model in e.runs.models or PAPER
    }
    paper = PAPER["alexnet"]
    least = 100 * (paper["anodev2-1"].parameters / paper["baseline"].parameters - 1)
    return judged(
        "Configuration 1 grows the networks by 0.5 % to 6.7 %.",
        [(0.5 <= v <= 6.7, f"{NAMES[model]} {v:.2g} %") for model, v in grown.items()],
        missing="",
        note=f"The paper's own table contradicts it for AlexNet: {least:.2g} %.",
    )


def parameters(model: str, method: str) -> int:
    """Trainable numbers of a network."""
    return sum(p.numel() for p in build_model(model, method=method).parameters())


CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
    lambda e: above_baseline(e, "anodev2-1"),
    lambda e: worst_above_best(e, "anodev2-1"),
    lambda e: above_baseline(e, "anodev2-2"),
    lambda e: worst_above_best(e, "anodev2-2"),
    lambda e: above_rest(e, "anodev2-1"),
    lambda e: above_rest(e, "anodev2-2"),
    neural_ode_far_below,
    lambda e: more_steps(e, "neural-ode", help_=False),
    lambda e: more_steps(e, "anodev2-1", help_=True),
    lambda e: more_steps(e, "anode", help_=True),
    lambda e: cost(e, "anodev2-1", 5),
    lambda e: cost(e, "anodev2-2", 2),
    evolution_costs_nothing,
    reverse_solve_fails,
    model_size,
    growth,
)
