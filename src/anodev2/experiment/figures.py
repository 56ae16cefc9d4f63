"""Pictures of a comparison: accuracy over epochs, and a kernel evolving."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from anodev2.experiment.whole_file import whole_file

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
    _save(figure, path)


def _draw_curve(axes: "Axes", method: str, by_epoch: Sequence[Sequence[float]]) -> None:
    epochs = range(1, len(by_epoch) + 1)
    middle = [sum(values) / len(values) for values in by_epoch]
    label = f"{method} ({middle[-1]:.2f} %)"
    (line,) = axes.plot(epochs, middle, label=label, linewidth=1.6, marker=".", markersize=4)
    if len(by_epoch[0]) > 1:
        least, most = [min(values) for values in by_epoch], [max(values) for values in by_epoch]
        axes.fill_between(epochs, least, most, color=line.get_color(), alpha=0.15, linewidth=0)


Kernels = Mapping[str, tuple[Sequence[float], Float[Tensor, "reads height width"]]]
"""Per network the times at which a kernel is read, and the kernel then."""


def kernel_evolution(kernels: Kernels, path: Path) -> None:
    """Draw a kernel at each time it is read, a row for each network, and its whole change.

    The kernels share one scale of colours; each change has its own, as it is much smaller.

    Args:
        kernels: per network the read times and theta there, (reads, height, width).
        path: PNG file to write.
    """
    columns = max(len(times) for times, _ in kernels.values()) + 1
    figure = Figure(figsize=(1.55 * columns + 0.3, 1.95 * len(kernels)), layout="constrained")
    grid = figure.subplots(len(kernels), columns, squeeze=False)
    largest = max(float(theta.abs().max()) for _, theta in kernels.values())
    for row, (name, (times, theta)) in zip(grid, kernels.items(), strict=True):
        for axes, t, kernel in zip(row, times, theta, strict=False):
            _draw_kernel(axes, kernel, largest, "RdBu_r", "+.2f")
            axes.set_title(f"t = {t:g}", fontsize=9)
        for axes in row[len(times) : -1]:
            axes.set_visible(False)
        change = theta[-1] - theta[0]
        _draw_kernel(row[-1], change, float(change.abs().max()), "PuOr_r", "+.3f")
        row[-1].set_title(f"t = {times[-1]:g} minus t = {times[0]:g}", fontsize=8)
        row[0].set_ylabel(name, fontsize=9)
    _save(figure, path)


def _draw_kernel(axes: "Axes", kernel: Tensor, largest: float, colours: str, number: str) -> None:
    """One kernel with its values written in; `largest` is the end of the colour scale."""
    scale = largest or 1.0
    axes.imshow(kernel.tolist(), cmap=colours, vmin=-scale, vmax=scale)
    axes.set(xticks=[], yticks=[])
    for y, line in enumerate(kernel.tolist()):
        for x, value in enumerate(line):
            ink = "white" if abs(value) > 0.6 * scale else "black"
            text = format(value, number)
            axes.text(x, y, text, ha="center", va="center", fontsize=6, color=ink)


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    with whole_file(path) as file:
        figure.savefig(file, dpi=150)
