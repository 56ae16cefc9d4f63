"""Accuracy and loss over epochs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig
from anodev2.experiment.figures.picture import COLOURS, save
from anodev2.experiment.result import SHOWN
from anodev2.experiment.trained import configuration, epochs
from anodev2.models import METHODS
from anodev2.usage import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[str, Sequence[Sequence[float]]]
"""Per method, for each of its runs, a figure for each epoch."""

CLOSE = 6
"""Per cent below the best that the enlarged half of the accuracy picture shows."""
OWN_COLOUR = (*METHODS, "anode-5")
"""Methods that readers meet in several pictures, those whose curves a report has."""
INSIDE = 7
"""How many methods' names have room beside their curves."""
SPAN = 8
"""How many times the least loss the most is where a logarithmic scale begins to help."""
NEAR = 2
"""How many times the best last loss another is that still has room on the axis."""
TICKS = [digit * 10.0**power for power in range(-6, 4) for digit in (1, 2, 5)]
"""Of logarithmic scales."""


def accuracy_curves(accuracies: Curves, path: Path) -> None:
    """Draw test accuracy against epoch: a line for each method's mean, a band over its seeds.

    All of it on the left; on the right, enlarged, what comes close to the best.

    Args:
        accuracies: per method and run, test accuracy from 0 to 1 after each epoch.
        path: PNG file to write.
    """
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    whole, close = figure.subplots(1, 2)
    _draw_accuracies(whole, close, accuracies)
    save(figure, path)


def training_curves(curves: Mapping[str, Curves]) -> Figure:
    """Accuracy above as in `accuracy_curves`, training and test loss below.

    Losses that span more than a factor of `SPAN` have a logarithmic scale; the axis is that of the
    methods that end within a factor of `NEAR` of the best, and names the others.

    Args:
        curves: `test_accuracy` (0 to 1), `train_loss` and `test_loss`, as `curves_of_runs` gives.
    """
    figure = Figure(figsize=(11, 8), layout="constrained")
    (whole, close), below = figure.subplots(2, 2)
    _draw_accuracies(whole, close, curves["test_accuracy"])
    for axes, name in zip(below, ("train_loss", "test_loss"), strict=True):
        _draw_losses(axes, curves[name])
        axes.set_ylabel(f"{name.split('_')[0]} loss (cross entropy)")
    return figure


def _draw_losses(axes: "Axes", curves: Curves) -> None:
    _draw_curves(axes, curves)
    ends = {method: band(runs)[1][-1] for method, runs in curves.items()}
    far = [method for method, end in ends.items() if end > NEAR * min(ends.values())]
    near = [v for method, runs in curves.items() if method not in far for run in runs for v in run]
    least, most = min(near), max(near)
    if most > SPAN * least:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(TICKS))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if far:
        axes.set_ylim(0.95 * least, 1.05 * most)
        axes.set_title(f"beyond the axis: {', '.join(far)}", fontsize=10)


def band(runs: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Least, mean and most of several runs at each epoch.

    Args:
        runs: of equal length, one figure an epoch.
    """
    by_epoch = list(zip(*runs, strict=True))
    least, most = [min(values) for values in by_epoch], [max(values) for values in by_epoch]
    return least, [sum(values) / len(values) for values in by_epoch], most


def curves_of_runs(folders: Sequence[Path]) -> dict[str, Curves]:
    """What `training_curves` draws, from the folders of runs; runs that differ in the seed alone
    share a band, up to the epoch that all of them have reached.

    Args:
        folders: of runs, finished or not.

    Raises:
        ValueError: no run, one without epochs, or one run twice.
    """
    configs = {folder: configuration(folder) for folder in folders}
    seen: dict[RunConfig, Path] = {}
    for folder, config in configs.items():
        if config in seen:
            raise UsageError(f"'{seen[config]}' and '{folder}' hold the same run: expected one")
        seen[config] = folder
    members: dict[str, list[Path]] = {}
    for folder, label in zip(folders, _labels(list(configs.values())), strict=True):
        members.setdefault(label, []).append(folder)
    curves: dict[str, dict[str, list[list[float]]]] = {name: {} for name in SHOWN}
    for label, group in members.items():
        runs = [epochs(folder, SHOWN) for folder in group]
        reached = min(len(run[SHOWN[0]]) for run in runs)
        for name, found in curves.items():
            found[label] = [run[name][:reached] for run in runs]
    return {name: dict(found) for name, found in curves.items()}


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    """Each run's method, with what else differs among the runs, the seed aside."""
    others = ("model", "order", "data", "epochs", "precision")
    told = [key for key in others if len({asdict(config)[key] for config in configs}) > 1]

    def label(config: RunConfig) -> str:
        values = {**asdict(config), "epochs": counted(config.epochs, "epoch")}
        return " ".join([config.label, *(str(values[key]) for key in told)])

    return [label(config) for config in configs]


def line_styles(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Colour and line of each method; those of `OWN_COLOUR` have the same in every picture."""
    every = [(colour, line) for line in ("-", "--", ":") for colour in COLOURS]
    own = dict(zip(OWN_COLOUR, every, strict=False))
    others = cycle(every[len(own) :])
    return [own[method] if method in own else next(others) for method in methods]


def _draw_accuracies(whole: "Axes", close: "Axes", accuracies: Curves) -> None:
    percent = {
        method: [[100 * value for value in run] for run in runs]
        for method, runs in accuracies.items()
    }
    for axes, title in ((whole, "all"), (close, "close to the best")):
        _draw_curves(axes, percent)
        axes.set_title(title, fontsize=10)
    best = max(value for runs in percent.values() for run in runs for value in run)
    close.set_ylim(best - CLOSE, best + 0.5)
    whole.set_ylabel("test accuracy (%)")
    title = "method (after the last epoch)"
    if len(accuracies) <= INSIDE:
        close.legend(title=title, fontsize=8, title_fontsize=8)
        return
    figure = close.get_figure(root=True)
    assert figure is not None
    figure.set_figwidth(figure.get_figwidth() + 4)
    names = close.get_legend_handles_labels()
    figure.legend(*names, title=title, fontsize=8, title_fontsize=8, loc="outside right center")


def _draw_curves(axes: "Axes", curves: Curves) -> None:
    """A line for each method's mean and a band from its least to its most.

    Points of a single epoch, which has no lines, stand side by side.
    """
    longest = max(len(run) for runs in curves.values() for run in runs)
    styles = line_styles(curves)
    for place, (method, runs) in enumerate(curves.items()):
        colour, style = styles[place]
        least, middle, most = band(runs)
        beside = (place + 0.5) / len(curves) - 0.5 if longest == 1 else 0.0
        at = [epoch + beside for epoch in range(1, len(middle) + 1)]
        seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
        early = f", epoch {len(middle)}" if len(middle) < longest else ""
        label = f"{method} ({middle[-1]:.2f} %{seeds}{early})"
        axes.plot(
            at, middle, style, color=colour, label=label, linewidth=1.6, marker=".", markersize=4
        )
        if len(runs) > 1 and longest == 1:
            axes.vlines(at, least, most, color=colour, alpha=0.4, linewidth=4)
        elif len(runs) > 1:
            axes.fill_between(at, least, most, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(0.5, longest + 0.5)
    axes.grid(alpha=0.3)
