"""A report as files: report.html, report.md, figures/."""

import sys
from collections.abc import Sequence
from pathlib import Path

from anodev2.experiment.folder import unwritable
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.illustration import illustrate
from anodev2.experiment.reproduction.markdown import as_markdown
from anodev2.experiment.reproduction.page import as_page
from anodev2.experiment.reproduction.report import report_of
from anodev2.experiment.reproduction.step_times import Times
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError


def check_folder(out: Path) -> None:
    """Refuse the folder of a comparison, whose own report.md this one would replace.

    Raises:
        ValueError: it is one.
    """
    if (out / "comparison.yaml").exists():
        raise UsageError(
            f"'{out}' is the folder of `anodev2 compare`, which has a report.md of its own: choose "
            "another --out"
        )


def make_folder(out: Path) -> None:
    """Make the folder of a report, if it is not there.

    Raises:
        ValueError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from error


def publish(out: Path, runs: Collection, seconds: Sequence[Times]) -> None:
    """Draw the pictures, write the report and print it, from finished runs alone.

    Args:
        out: folder of the report.
        runs: what it is about.
        seconds: of training steps, the latest last.

    Raises:
        ValueError: the folder is that of a comparison.
    """
    check_folder(out)
    make_folder(out)
    print("drawing pictures", file=sys.stderr, flush=True)
    pictures = illustrate(out / "figures", runs)
    document = report_of(runs, seconds, pictures)
    sources = {p.name: (out / "figures" / f"{p.name}.svg").read_text() for p in pictures}
    pages = {"report.md": as_markdown(document), "report.html": as_page(document, sources)}
    for name, text in pages.items():
        with whole_file(out / name) as file:
            file.write_text(text)
    print(f"{as_markdown(document.without_pictures())}\nreport: {out / 'report.html'}")
