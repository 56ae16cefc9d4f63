"""Accuracy over epochs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anodev2.experiment.figures.picture import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[str, Sequence[Sequence[float]]]
"""Per method, for each of its runs, a figure for each epoch."""


CLOSE = 6
"""Per cent below the best that the enlarged half of the accuracy picture shows."""


def accuracy_curves(accuracies: Curves, path: Path) -> None:
    """Draw test accuracy against epoch: a line for each method's mean, a band over its seeds.

    All of it on the left; on the right, enlarged, what comes close to the best.

    Args:
        accuracies: per method and run, test accuracy from 0 to 1 after each epoch.
        path: PNG file to write.
    """
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    whole, close = figure.subplots(1, 2)
    best = 0.0
    for method, runs in accuracies.items():
        by_epoch = [[100 * value for value in epoch] for epoch in zip(*runs, strict=True)]
        best = max(best, *(max(values) for values in by_epoch))
        for axes in (whole, close):
            _draw_curve(axes, method, by_epoch)
    close.set_ylim(best - CLOSE, best + 0.5)
    close.set_title("close to the best", fontsize=10)
    whole.set_title("all", fontsize=10)
    whole.set_ylabel("test accuracy (%)")
    for axes in (whole, close):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    close.legend(title="method (after the last epoch)", fontsize=8, title_fontsize=8)
    save(figure, path)


def _draw_curve(axes: "Axes", method: str, by_epoch: Sequence[Sequence[float]]) -> None:
    epochs = range(1, len(by_epoch) + 1)
    middle = [sum(values) / len(values) for values in by_epoch]
    label = f"{method} ({middle[-1]:.2f} %)"
    (line,) = axes.plot(epochs, middle, label=label, linewidth=1.6, marker=".", markersize=4)
    if len(by_epoch[0]) > 1:
        least, most = [min(values) for values in by_epoch], [max(values) for values in by_epoch]
        axes.fill_between(epochs, least, most, color=line.get_color(), alpha=0.15, linewidth=0)
