"""A report as GitHub's Markdown."""

import re
from collections.abc import Sequence
from itertools import cycle

from anodev2.experiment.reproduction.columns import numeric
from anodev2.experiment.reproduction.document import Claim, Document, Picture, Section, Table

_CODE = re.compile(r"(`[^`]+`)")
# What Markdown would read as more than a character. Underscores inside words and brackets
# without a target are left as they are: names and intervals stay easy to read.
_SPECIAL = re.compile(
    r"[\\`*|~$#]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|!(?=\[)|\](?=[\[(:])"
)
_BRACKET = re.compile(rf"[\[\]]|{_SPECIAL.pattern}")
_FIRST = re.compile(r"^(\d+(?=[.)]))?([-+.)](?=\s|$)|[>=]|:(?=-)|-(?=[-:]))")


def as_markdown(document: Document) -> str:
    """Write a report as Markdown; pictures are links to `figures/NAME.png`.

    Args:
        document: the report.

    Returns:
        The text of a Markdown file.
    """
    parts = [f"# {_plain(document.title)}", _paragraph(document.summary)]
    for section in document.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    return [f"## {_plain(section.title)}", *(_part(part) for part in section.parts)]


def _part(part: str | Table | Picture | Sequence[Claim]) -> str:
    match part:
        case str():
            return _paragraph(part)
        case Table():
            return _table(part)
        case Picture():
            return f"![{_plain(part.caption, _BRACKET)}](figures/{part.name}.png)"
        case _:
            return "\n".join(map(_claim, part))


def _table(table: Table) -> str:
    rule = ["---:" if is_numeric else "---" for is_numeric in numeric(table)]
    lines = [map(_plain, table.columns), rule, *(map(_plain, row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _claim(claim: Claim) -> str:
    """An item of two lines, the second what the verdict rests on."""
    return f"- **{claim.verdict}**: {_spans(claim.text)}\\\n  {_paragraph(claim.evidence)}"


def _paragraph(text: str) -> str:
    return _FIRST.sub(r"\1\\\2", _spans(text))


def _spans(text: str) -> str:
    """Text in which backticks make code."""
    pieces = _CODE.split(" ".join(text.split()))
    return "".join(
        piece if is_code else _escaped(piece, _SPECIAL)
        for piece, is_code in zip(pieces, cycle((False, True)), strict=False)
    )


def _plain(text: str, special: re.Pattern[str] = _SPECIAL) -> str:
    return _escaped(" ".join(text.split()), special)


def _escaped(text: str, special: re.Pattern[str]) -> str:
    return special.sub(r"\\\g<0>", text)
