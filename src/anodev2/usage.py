"""What a user is told when something given is not valid: one line with what was given,
what was expected and the nearest valid choice."""

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """A mistake in what the user gave, not in the program; its text is one line."""


def check_count(what: str, given: int) -> None:
    """Raise unless `given` is an integer of at least one."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{what} must be an integer, got {given!r}")
    if given < 1:
        raise UsageError(f"{what} must be at least 1, got {given}")


def check_kind(what: str, given: object, kind: type, example: str) -> None:
    """Raise a TypeError unless `given` is an object of this kind."""
    if not isinstance(given, kind):
        raise TypeError(
            f"{what} must be an object of {kind.__name__}, such as {example}; got {given!r}"
        )


def check_choice(what: str, given: str, valid: Iterable[str]) -> None:
    """Raise a UsageError that names the nearest valid choice unless `given` is in `valid`."""
    choices = list(valid)
    if given in choices:
        return
    nearest = get_close_matches(given, choices, n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise UsageError(f"unknown {what} {given!r}: expected one of {', '.join(choices)}{hint}")


def first_line(error: BaseException) -> str:
    """The first line of what caused an error, so that the message stays one line."""
    cause = error.__cause__ or error
    return next(iter(str(cause).splitlines()), type(cause).__name__)
