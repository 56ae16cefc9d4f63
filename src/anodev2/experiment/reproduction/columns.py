"""What a table's columns hold: text, or numbers that are aligned and sorted as such."""

import re
from collections.abc import Sequence

from anodev2.experiment.reproduction.document import Table

_NUMBER = re.compile(
    r"(?<![\w.])[<>≤≥~≈]?\s?(?P<value>[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?:\s?(?P<unit>[%×]|[^\W\d_]+))?"
)
_CLOCK = re.compile(r"(\d+):([0-5]\d):([0-5]\d)")
_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9, "ms": 1e-3, "min": 60.0, "h": 3600.0}
_BETWEEN = frozenset(" /±+,;()[]")
NOTHING = frozenset({"", "-", "−", "–", "—"})


def number(cell: str) -> float | None:
    """The number that a cell is sorted by: its first, in its unit.

    A cell is a number where it holds numbers and their units only, such as `88.59 / 88.96`,
    `1,756.68 K`, `−0.2 ± 0.5`, `12 %` or `0:03:20`; K, M and G multiply, times count in seconds.

    Args:
        cell: its text.

    Returns:
        None where it is text.
    """
    cell = cell.strip()
    if clock := _CLOCK.fullmatch(cell):
        hours, minutes, seconds = map(float, clock.groups())
        return 3600 * hours + 60 * minutes + seconds
    first = _NUMBER.match(cell)
    if first is None or not _BETWEEN.issuperset(_NUMBER.sub("", cell)):
        return None
    value = float(first["value"].replace(",", "").replace("−", "-"))
    return value * _SCALES.get(first["unit"], 1.0)


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
