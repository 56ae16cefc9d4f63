"""A report as one HTML page that stands alone: it asks nothing of any other place.

`page.html` is its template. Its tables sort where JavaScript runs and are complete without it.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from anodev2.experiment.reproduction.columns import NOTHING, number, numeric
from anodev2.experiment.reproduction.document import Claim, Document, Picture, Table

_CODE = re.compile(r"`([^`]+)`")


def as_page(document: Document, pictures: Mapping[str, str]) -> str:
    """Write a report as a page.

    Args:
        document: the report.
        pictures: SVG source of every picture that the report names, by its name. Each is an
            image of its own in the page, so their ids do not meet.

    Returns:
        The text of an HTML file.

    Raises:
        KeyError: a picture is missing.
    """
    page = _environment().get_template("page.html")
    return page.render(document=document, image=lambda name: _image(pictures[name]))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("anodev2.experiment", "reproduction"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind": _kind, "spans": _CODE.split, "number": number}
    environment.filters |= {"numeric": numeric, "says_nothing": _says_nothing}
    return environment


def _image(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _says_nothing(cell: str) -> bool:
    return cell.strip() in NOTHING


def _kind(
    part: str | Table | Picture | Sequence[Claim],
) -> Literal["paragraph", "table", "picture", "claims"]:
    match part:
        case str():
            return "paragraph"
        case Table():
            return "table"
        case Picture():
            return "picture"
        case _:
            return "claims"
