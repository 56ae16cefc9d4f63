"""A report as files: report.html, report.md, figures/."""

from pathlib import Path

from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.illustration import illustrate
from anodev2.experiment.reproduction.markdown import as_markdown
from anodev2.experiment.reproduction.page import as_page
from anodev2.experiment.reproduction.report import report_of
from anodev2.experiment.reproduction.timing import Seconds
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


def publish(out: Path, runs: Collection, seconds: Seconds) -> Path:
    """Draw the pictures and write the report, from finished runs alone.

    Args:
        out: folder of the report.
        runs: what it is about.
        seconds: of training steps.

    Returns:
        The page.

    Raises:
        ValueError: the folder is that of a comparison.
    """
    check_folder(out)
    pictures = illustrate(out / "figures", runs)
    document = report_of(runs, seconds, pictures)
    sources = {p.name: (out / "figures" / f"{p.name}.svg").read_text() for p in pictures}
    pages = {"report.md": as_markdown(document), "report.html": as_page(document, sources)}
    for name, text in pages.items():
        with whole_file(out / name) as file:
            file.write_text(text)
    return out / "report.html"
