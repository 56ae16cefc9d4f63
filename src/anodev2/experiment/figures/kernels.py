"""Convolution kernels evolving [qalexnet_kernel, resnet4_kernel, resnet10_kernel]."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from anodev2.block import CoupledODE
from anodev2.evolution import Evolution, ReactionDiffusionAdvection
from anodev2.experiment.figures.picture import save
from anodev2.experiment.trained import configuration, trained_network
from anodev2.experiment.training.motion import describe_motion
from anodev2.usage import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from matplotlib.image import AxesImage

KERNELS = 3
"""How many of a network's kernels are drawn."""
NETWORKS = 3
"""How many networks fit in a figure."""
INTERVALS = 5
"""Into which [0, 1] is divided: theta is drawn at 0, 1/5 ... 1."""
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


@dataclass(frozen=True)
class KernelPaths:
    """The first kernels of a network's first evolved convolution over time.

    Attributes:
        times: in [0, 1].
        theta: the kernels of the first output channels on the first input channel.
        coefficients: d, v and rho of these kernels, each (kernels, numbers), where they move by
            `ReactionDiffusionAdvection`; nothing for other evolutions.
    """

    times: tuple[float, ...]
    theta: Float[Tensor, "kernels times height width"]
    coefficients: Mapping[str, Float[Tensor, "kernels numbers"]] = field(default_factory=dict)


@torch.no_grad()
def kernel_paths(model: nn.Module, *, kernels: int = KERNELS) -> KernelPaths:
    """theta of a network's first kernels at 0, 1/5 ... 1, or the nearest points of its w-grid.

    Args:
        model: the network.
        kernels: how many, at most.

    Raises:
        ValueError: no weights of the network move, or no convolution with two kernel axes does.
    """
    if describe_motion(model) is None:
        raise UsageError("the weights of the network stay at rest: expected some that move")
    for block in (module for module in model.modules() if isinstance(module, CoupledODE)):
        times = _times(block)
        for name, theta in block.weight_trajectory(times).items():
            if theta.ndim == 5:
                count = min(kernels, theta.shape[1])
                q = block.evolution.get_submodule(name.removeprefix("field."))
                assert isinstance(q, Evolution)
                paths = theta[:, :count, 0].transpose(0, 1)
                return KernelPaths(times, paths, _coefficients(q, count))
    raise UsageError("no convolution with two kernel axes moves in the network: expected one")


def kernels_of_run(folder: Path, *, kernels: int = KERNELS) -> tuple[str, KernelPaths]:
    """The name and kernels of the network in a run's folder, from its last checkpoint.

    Args:
        folder: of the run.
        kernels: how many, at most.

    Raises:
        ValueError: no run, no checkpoint, or a network whose weights do not move.
    """
    config = configuration(folder)
    try:
        return f"{config.model}, {config.label}", kernel_paths(
            trained_network(folder), kernels=kernels
        )
    except UsageError as error:
        raise UsageError(f"no kernels to draw of the run '{folder}': {error}") from error


def kernels_of_runs(folders: Sequence[Path]) -> dict[str, KernelPaths]:
    """The kernels of up to three runs, by name, with the seed where names are equal.

    Args:
        folders: of the runs.

    Raises:
        ValueError: none or too many, or one of which there are no kernels.
    """
    if not 1 <= len(folders) <= NETWORKS:
        raise UsageError(f"{len(folders)} runs for a figure of kernels: expected 1 to {NETWORKS}")
    found = [kernels_of_run(folder) for folder in folders]
    names = [name for name, _ in found]
    return {
        name if names.count(name) == 1 else f"{name}, '{folder}'": paths
        for folder, (name, paths) in zip(folders, found, strict=True)
    }


def kernels_figure(networks: Mapping[str, KernelPaths]) -> Figure:
    """A group of rows for each network: its kernels in time, their change, their coefficients.

    A network's kernels share one scale of colours, and their changes another.

    Args:
        networks: kernels by the network's name.
    """
    columns = max(len(paths.times) for paths in networks.values())
    heights = [1.15 * len(paths.theta) + 1.1 for paths in networks.values()]
    figure = Figure(figsize=(1.15 * (columns + 1) + 2.4, sum(heights)), layout="constrained")
    groups = figure.subfigures(len(networks), 1, squeeze=False, height_ratios=heights)[:, 0]
    for group, (name, paths) in zip(groups, networks.items(), strict=True):
        _draw_group(group, name, paths, columns)
    return figure


def _draw_group(figure: "SubFigure", name: str, paths: KernelPaths, columns: int) -> None:
    figure.suptitle(name, fontsize=10)
    ratios = [1.0] * (columns + 1) + [1.5]
    grid = figure.subplots(len(paths.theta), columns + 2, squeeze=False, width_ratios=ratios)
    change = paths.theta[:, -1] - paths.theta[:, 0]
    largest, most = float(paths.theta.abs().max()), float(change.abs().max())
    for k, row in enumerate(grid):
        for axes in row[len(paths.times) : -2]:
            axes.set_visible(False)
        for axes, t, kernel in zip(row, paths.times, paths.theta[k], strict=False):
            image = _draw_colours(axes, kernel, largest, "RdBu_r")
            if k == 0:
                axes.set_title(f"t = {t:.3g}", fontsize=9)
        difference = _draw_colours(row[-2], change[k], most, "PuOr_r")
        row[0].set_ylabel(f"channel {k + 1}", fontsize=9)
        row[-1].axis("off")
        row[-1].text(0, 0.5, _written(paths.coefficients, k), va="center", fontsize=9)
    grid[0, -2].set_title("change", fontsize=9)
    if paths.coefficients:
        by_point = paths.coefficients["d"].shape[1] > 2
        learned = "learned, of all points" if by_point else "learned, along y, x"
        grid[0, -1].set_title(learned, fontsize=9, loc="left")
    for shown, part in ((image, grid[:, : len(paths.times)]), (difference, grid[:, -2:-1])):
        bar = figure.colorbar(shown, ax=part, location="bottom", aspect=40 * part.shape[1] / 6)
        bar.ax.tick_params(labelsize=7)
    bar.set_ticks([-most, most], labels=[f"{-most:.2g}".replace("-", "−"), f"{most:.2g}"])


def _times(block: CoupledODE) -> tuple[float, ...]:
    """The points of the block's w-grid nearest to 0, 1/5 ... 1, once each."""
    steps = block.coupling.reads(block.solver.tableau.c).w_steps
    points = [round(n * steps / INTERVALS) for n in range(INTERVALS + 1)]
    return tuple(point / steps for point in dict.fromkeys(points))


def _coefficients(q: Evolution, kernels: int) -> dict[str, Tensor]:
    """Those of the first output channels' kernels on the first input channel."""
    if not isinstance(q, ReactionDiffusionAdvection):
        return {}

    def own(values: Tensor) -> Tensor:
        if q.coefficients in ("layer", "point"):  # all kernels share them
            return values.flatten().expand(kernels, -1)
        rows = values[:kernels, 0] if q.coefficients == "filter" else values[:kernels]
        return rows.reshape(kernels, -1)

    return {"d": own(q.d), "v": own(q.v), "ρ": own(q.rho)}


def _written(coefficients: Mapping[str, Tensor], kernel: int) -> str:
    """Each coefficient of a kernel, along y and x; of those given by point the range."""
    lines = []
    for name, values in coefficients.items():
        numbers = values[kernel].tolist()
        if len(numbers) > 2:
            lines.append(f"{name}  {min(numbers):+.3g} to {max(numbers):+.3g}")
        else:
            lines.append(f"{name}  " + ",  ".join(f"{number:+.3g}" for number in numbers))
    return "\n".join(lines).replace("-", "−")


def _draw_kernel(axes: "Axes", kernel: Tensor, largest: float, colours: str, number: str) -> None:
    """One kernel with its values written in; `largest` is the end of the colour scale."""
    scale = largest or 1.0
    _draw_colours(axes, kernel, largest, colours)
    for y, line in enumerate(kernel.tolist()):
        for x, value in enumerate(line):
            ink = "white" if abs(value) > 0.6 * scale else "black"
            text = format(value, number)
            axes.text(x, y, text, ha="center", va="center", fontsize=6, color=ink)


def _draw_colours(axes: "Axes", kernel: Tensor, largest: float, colours: str) -> "AxesImage":
    scale = largest or 1.0
    axes.set(xticks=[], yticks=[])
    return axes.imshow(kernel.tolist(), cmap=colours, vmin=-scale, vmax=scale)
