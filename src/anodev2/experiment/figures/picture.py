"""Pictures as files, written whole: PNG for pages, SVG for papers."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from anodev2.experiment.whole_file import whole_file

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of lines, in order: of Okabe and Ito's, which the colour-blind tell apart, those dark enough."""


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's suffix, with the same bytes each time.

    Args:
        figure: what to draw.
        path: a `.png` or `.svg` file.
    """
    FigureCanvasAgg(figure)
    undated = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": path.stem}), whole_file(path) as file:
        figure.savefig(file, dpi=150, metadata=undated)


def files_of(folder: Path, name: str) -> list[Path]:
    """Where a picture lies: `NAME.png` for pages and `NAME.svg` for papers."""
    return [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
