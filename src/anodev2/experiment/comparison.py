"""The report of a comparison: `report.md` with its pictures."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from anodev2.block import CoupledODE
from anodev2.experiment.cells import JPEG_COPIES, counted, is_jpeg_copy, motion_cells
from anodev2.experiment.config import RunConfig
from anodev2.experiment.figures.curves import accuracy_curves
from anodev2.experiment.figures.kernels import Kernels, kernel_evolution
from anodev2.experiment.paper import PAPER
from anodev2.experiment.recipe import PAPER_RECIPES
from anodev2.experiment.result import Result
from anodev2.experiment.trained import trained_network
from anodev2.experiment.whole_file import whole_file
from anodev2.models import find_method
from anodev2.usage import UsageError


def write_report(out: Path, results: Sequence[Result], failures: Mapping[str, str]) -> Path:
    """Write `out/report.md` with `accuracy.png` and, where weights move, `kernels.png`.

    Args:
        out: the comparison's folder, in which the runs' folders are.
        results: finished runs of one model, recipe and data set.
        failures: what ended the other runs, by run.

    Returns:
        The report's path.
    """
    by_method: dict[str, list[Result]] = {}
    for result in results:
        by_method.setdefault(RunConfig(**result.config).label, []).append(result)
    if not results:
        return _write(out, ["# No run finished", *_notes(None, failures)])
    curves = {
        method: [run.curve("test_accuracy") for run in runs] for method, runs in by_method.items()
    }
    accuracy_curves(curves, out / "accuracy.png")
    kernels = _kernels(out, by_method)
    if kernels:
        kernel_evolution(kernels, out / "kernels.png")
    parts = [
        _heading(results[0]),
        _table(by_method),
        *_notes(results[0], failures),
        "![Test accuracy after each epoch](accuracy.png)",
    ]
    if any(runs[0].motion for runs in by_method.values()) and (out / "kernels.png").exists():
        parts += [
            "First kernel of the first evolved convolution at each time it is read:",
            "![A convolution kernel evolving](kernels.png)",
        ]
    parts.append(_environment(results))
    return _write(out, parts)


def _write(out: Path, parts: Sequence[str]) -> Path:
    with whole_file(out / "report.md") as file:
        file.write_text("\n\n".join(parts) + "\n")
    return out / "report.md"


def _heading(result: Result) -> str:
    config, data = result.config, result.data
    full = PAPER_RECIPES[config["model"]].epochs
    return (
        f"# {config['model']} on {data['name']}\n\n"
        f"{data['train_images']:,} training and {data['test_images']:,} test images, "
        f"{counted(config['epochs'], 'epoch')} (the paper trains {full} on CIFAR-10), order "
        f"{config['order']}. Accuracies are on the test images after the "
        "last epoch, in per cent."
    )


def _table(by_method: Mapping[str, Sequence[Result]]) -> str:
    first = next(iter(by_method.values()))[0]
    paper = PAPER[first.config["model"]] if first.data["is_cifar10"] else {}
    columns = ["method", "z-steps", "parameters", "s / step", "f evaluations"]
    columns += ["p", "moved", "train loss", "runs", "min / max", "average"]
    columns += ["paper: parameters", "min / max", "average"] if paper else []
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    for method, runs in by_method.items():
        cells = _cells(method, runs)
        if row := paper.get(method):
            cells += [f"{row.parameters:.2f} K", f"{row.least:.2f} / {row.most:.2f}"]
            cells += [f"{row.average:.2f}"]
        lines.append(cells + [""] * (len(columns) - len(cells)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(method: str, runs: Sequence[Result]) -> list[str]:
    accuracies = [100 * run.accuracy for run in runs]
    timed = [run.seconds_per_step for run in runs if run.seconds_per_step is not None]
    count = runs[0].field_evaluations
    return [
        method,
        str(find_method(runs[0].config["method"]).steps),
        f"{runs[0].parameters:,}",
        f"{mean(timed):.3f}" if timed else "",
        f"{count['forward']} + {count['backward']}",
        *motion_cells(runs),
        f"{mean(run.curve('train_loss')[-1] for run in runs):.4f}",
        str(len(runs)),
        f"{min(accuracies):.2f} / {max(accuracies):.2f}",
        f"{mean(accuracies):.2f}",
    ]


def _notes(result: Result | None, failures: Mapping[str, str]) -> list[str]:
    notes = (
        []
        if result is None
        else [
            "`f evaluations` counts the fields of all blocks in a forward pass, and again in "
            "the backward pass where they are recomputed. `anode-N` is ANODE, whose weights do "
            "not move, at N steps: the difference to it is what the motion of the weights "
            "earns, the rest is what the steps earn. `p` counts the numbers that move the weights, "
            "`moved` is the distance of theta(1) from theta(0) relative to theta(0); `train loss` "
            "is the cross entropy over the last epoch."
        ]
    )
    if result and is_jpeg_copy(result):
        notes.append(JPEG_COPIES)
    if failures:
        listed = "\n".join(f"- {name}: {reason}" for name, reason in failures.items())
        notes.append(f"Runs that did not finish:\n\n{listed}")
    return notes


def _environment(results: Sequence[Result]) -> str:
    """Versions, threads and revisions of the runs, each with all values that it had."""
    names = results[0].environment
    known = {n: sorted({v for r in results for v in r.trained_with(n)}) for n in names}
    listed = ", ".join(f"{name.replace('_', ' ')} {' and '.join(v)}" for name, v in known.items())
    precisions = " and ".join(sorted({result.precision for result in results}))
    return f"Made by `anodev2 compare` in {precisions}, with {listed}."


def _kernels(out: Path, by_method: Mapping[str, Sequence[Result]]) -> Kernels:
    """Per method that moves: read times and kernels of its first run's first evolved weight."""
    kernels: dict[str, tuple[Sequence[float], Tensor]] = {}
    for method, runs in by_method.items():
        config = RunConfig(**runs[0].config)
        if not find_method(config.method).moves:
            continue
        folder = out / "runs" / config.name
        if not (folder / "checkpoints" / "last.ckpt").exists():
            return {}  # results travel without checkpoints; the picture then stays
        try:
            model = trained_network(folder)
        except UsageError as error:  # damaged: it costs the picture alone
            print(f"anodev2: {error}", file=sys.stderr)
            return {}
        block = next(module for module in model.modules() if isinstance(module, CoupledODE))
        with torch.no_grad():
            theta = next(iter(block.weight_trajectory().values()))
        kernels[method] = (block.read_times, theta[:, 0, 0])
    return kernels
