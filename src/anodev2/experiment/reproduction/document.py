"""A report as data: what a page says, apart from the format it is written in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds here", "does not hold here", "not measured"]


@dataclass(frozen=True)
class Table:
    """Rows under columns; cells are plain text, the first of a row its name.

    Args:
        columns: headings.
        rows: one cell for each column.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self


@dataclass(frozen=True)
class Picture:
    """A picture that lies beside the report as `figures/NAME.png` and `figures/NAME.svg`.

    Args:
        name: the file's name without its suffix.
        caption: what it shows.
    """

    name: str
    caption: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what was found about it.

    Args:
        text: the claim.
        verdict: whether it holds in the runs that the report is about.
        evidence: the figures that say so, or what is missing.
    """

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, tables, pictures and claims, in order."""

    title: str
    parts: Sequence[str | Table | Picture | Sequence[Claim]]


@dataclass(frozen=True)
class Document:
    """A report.

    Args:
        title: its heading.
        summary: a paragraph under the heading.
        sections: the rest.
    """

    title: str
    summary: str
    sections: Sequence[Section]

    def without_pictures(self) -> "Document":
        """What can be read on a terminal."""
        sections = [
            Section(
                section.title, [part for part in section.parts if not isinstance(part, Picture)]
            )
            for section in self.sections
        ]
        return Document(self.title, self.summary, [s for s in sections if s.parts])
