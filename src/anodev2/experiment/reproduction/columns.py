"""What a table's columns hold: text, or numbers that are aligned and sorted as such."""

import re
from collections.abc import Sequence

from anodev2.experiment.reproduction.document import Table

_NUMBER = re.compile(
    r"(?<![\w.])[<>≤≥~≈]?\s?(?P<value>[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?:\s?(?P<unit>[%×]|[^\W\d_]+))?"
)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BETWEEN = frozenset(" /±+,;()[]")
NOTHING = frozenset({"", "-", "−", "–", "—"})


def number(cell: str) -> float | None:
    """The number that a cell is sorted by: its first, or its time in seconds.

    A cell is a number where it holds numbers and their units only, such as `88.59 / 88.96`,
    `1,756`, `−0.2 ± 0.5`, `12 %` or `5 h 20 min`.

    Args:
        cell: its text.

    Returns:
        None where it is text.
    """
    cell = cell.strip()
    first = _NUMBER.match(cell)
    if first is None or not _BETWEEN.issuperset(_NUMBER.sub("", cell)):
        return None
    parts = [(_value(part), part["unit"]) for part in _NUMBER.finditer(cell)]
    if all(unit in _SECONDS for _, unit in parts):
        return sum(value * _SECONDS[unit] for value, unit in parts)
    return _value(first)


def _value(part: re.Match[str]) -> float:
    return float(part["value"].replace(",", "").replace("−", "-"))


def numeric(table: Table) -> list[bool]:
    """Whether a column holds numbers, for each: most of its cells that say something do.

    The first column names the rows and is text.
    """
    return [
        position > 0 and _mostly_numbers([row[position] for row in table.rows])
        for position in range(len(table.columns))
    ]


def _mostly_numbers(cells: Sequence[str]) -> bool:
    said = [cell for cell in cells if cell.strip() not in NOTHING]
    return 2 * sum(number(cell) is not None for cell in said) > len(said)
