"""From figures to a verdict: what noise leaves open is not decided."""

from collections.abc import Sequence

from anodev2.experiment.reproduction.difference import Difference
from anodev2.experiment.reproduction.document import Claim, Verdict

FAR = 5.0
"""Points of accuracy that are far: what a difference of single runs is taken to be unsure by."""
SLIGHT = 0.5
"""Points of accuracy below which a gain is none worth the name."""

Check = tuple[bool | None, str]
"""Whether a claim holds for one network, None if noise hides it, and the figures that say so."""


def judged(
    text: str,
    checks: Sequence[Check],
    *,
    missing: str,
    lacking: Sequence[str] = (),
    note: str = "",
) -> Claim:
    """A claim that holds where it holds in every check, and fails where it fails in one.

    Args:
        text: the claim.
        checks: of the networks that have what it needs.
        missing: what it needs, where there is no check.
        lacking: networks that have a part of it; they leave open what holds for the others.
        note: on the paper's own figures.
    """
    if not checks:
        return Claim(text, "not measured", " ".join([missing, note]).strip())
    words = {True: "yes", False: "no", None: "undecided"}
    checks = [*checks, *((None, network) for network in lacking)]
    found = "; ".join(f"{words[holds]}, {figures}" for holds, figures in checks)
    evidence = f"{found[0].upper()}{found[1:]}." + (f" {note}" if note else "")
    verdicts: dict[bool | None, Verdict] = {
        True: "holds here",
        False: "does not hold here",
        None: "not measured",
    }
    return Claim(text, verdicts[all_of([holds for holds, _ in checks])], evidence)


def all_of(answers: Sequence[bool | None]) -> bool | None:
    """Whether all are so: False if one is not, else None if one is undecided."""
    return False if False in answers else None if None in answers else True


def unless_noise(holds: bool, found: Difference) -> bool | None:
    """None where the difference lies within its interval, or has none and is not far."""
    return None if abs(found.value) <= _noise(found) else holds


def below(found: Difference, bound: float) -> bool | None:
    """Whether all of a difference's interval is below a bound, None where the bound is in it.

    A difference without an interval has one of `FAR` to either side.
    """
    if found.value + _noise(found) < bound:
        return True
    return False if found.value - _noise(found) > bound else None


def _noise(found: Difference) -> float:
    return FAR if found.half_width is None else found.half_width
