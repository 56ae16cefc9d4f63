"""A convolution kernel evolving."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from anodev2.experiment.figures.picture import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    save(figure, path)


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
