"""The report of a folder of runs: the paper's tables beside ours, its claims, and the pictures."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean, median

from anodev2.experiment.cells import (
    JPEG_COPIES,
    counted,
    is_jpeg_copy,
    motion_cells,
    per_cent,
)
from anodev2.experiment.config import RunConfig
from anodev2.experiment.paper import NAMES, PAPER
from anodev2.experiment.recipe import PAPER_RECIPES
from anodev2.experiment.reproduction.claim import CLAIMS, parameters
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.difference import Difference, difference, difference_to
from anodev2.experiment.reproduction.document import Document, Picture, Section, Table
from anodev2.experiment.reproduction.evidence import Evidence
from anodev2.experiment.reproduction.run_section import run_section
from anodev2.experiment.reproduction.step_times import Times, timed_on
from anodev2.experiment.reproduction.table import TABLES, PaperTable, Row
from anodev2.models import find_method


def report_of(runs: Collection, seconds: Sequence[Times], pictures: Sequence[Picture]) -> Document:
    """The report, a pure function of what is given.

    Args:
        runs: finished ones.
        seconds: of training steps, the latest last.
        pictures: those that lie beside it.
    """
    evidence = Evidence(runs, seconds)
    tables = {name: accuracy_table(TABLES[name], runs) for name in _with_runs(runs)}
    others = _others(runs)
    sections = [
        Section("Claims of the paper", [[claim(evidence) for claim in CLAIMS]]),
        *(Section(TABLES[n].title, _explained(n, t, runs)) for n, t in tables.items()),
        Section(TABLES["parameters"].title, [parameter_table()]),
        *([Section("Losses", [LOSSES, loss_table(runs)])] if runs.results else []),
        *([Section("Cost", _cost(evidence))] if runs.results else []),
        *([Section("Other runs", [others])] if others.rows else []),
        *([Section("Pictures", pictures)] if pictures else []),
        *([Section("Runs", run_section(runs))] if runs.results else []),
    ]
    return Document("The paper's tables, reproduced", _summary(runs), sections)


OURS = (
    "network",
    "method",
    "runs",
    "min / max",
    "average",
    "to baseline",
    "to ANODE at equal steps",
)
"""Columns of what was measured here."""
PAPERS = ("paper: min / max", "average", "to baseline", "ours to it")
"""Columns beside them, where there are runs on CIFAR-10."""
LISTED = 8
"""How many rows without runs are named, not counted."""
LOSSES = (
    "The mean cross entropy over the last epoch's training images, as they were augmented, and "
    "over the test images after it. Losses vary less from run to run than accuracies do."
)
COST = (
    "`s / step` is the time of a training step of the whole network, measured in turns in one "
    "process; `times baseline` its ratio. `f evaluations` counts the fields of all blocks in a "
    "forward pass, and again in the backward pass where they are recomputed. `p` counts the "
    "numbers that move the weights, `moved` is the distance of theta(1) from theta(0) relative to "
    "theta(0), `z(0) again` that of z(0), solved backward by the method's own solver, from the "
    "true one."
)


def accuracy_table(table: PaperTable, runs: Collection) -> Table:
    """One of the paper's tables, with a line for each network and row that has runs."""
    columns = [*OURS, *(PAPERS if runs.has_cifar10 else ())]
    lines = [
        _accuracy_line(model, row, runs)[: len(columns)]
        for model in runs.models
        for row in table.rows
        if runs.accuracies(model, row.label)
    ]
    return Table(columns, lines)


def _accuracy_line(model: str, row: Row, runs: Collection) -> list[str]:
    ours = _ours(model, row.label, runs)
    paper = PAPER[model].get(row.label) if runs.is_cifar10(model) else None
    if paper is None:
        return [*ours, "", "", "", ""]
    improved = paper.average - PAPER[model]["baseline"].average
    return [
        *ours,
        f"{paper.least:.2f} / {paper.most:.2f}",
        f"{paper.average:.2f}",
        f"{improved:+.2f}" if row.label != "baseline" else "",
        str(difference_to(runs.accuracies(model, row.label), paper.average)),
    ]


def _ours(model: str, label: str, runs: Collection) -> list[str]:
    """The cells under `OURS`."""
    found = runs.accuracies(model, label)
    return [
        NAMES[model],
        label,
        str(len(found)),
        f"{min(found):.2f} / {max(found):.2f}",
        f"{mean(found):.2f}",
        *(str(d or "") for d in _differences(model, label, runs, runs.accuracies)),
    ]


def _differences(
    model: str, label: str, runs: Collection, values: Callable[[str, str], list[float]]
) -> list[Difference | None]:
    """To the baseline, and to ANODE at as many steps, under the same recipe."""
    config = RunConfig(**runs.by_key[model, label][0].config)
    others = ("baseline", find_method(config.method).at_rest or "")
    labels = [runs.label(model, kind, config.recipe) for kind in others]
    return [
        difference(values(model, label), values(model, other))
        if other != label and values(model, other)
        else None
        for other in labels
    ]


def _with_runs(runs: Collection) -> list[str]:
    """The tables with runs of a row that no table before them has."""
    labels = {label for _, label in runs.by_key} - {"baseline"}
    names: list[str] = []
    seen: set[str] = set()
    for name, table in TABLES.items():
        rows = {row.label for row in table.rows}
        if table.trains and (rows - seen) & labels:
            names.append(name)
        seen |= rows if table.trains else set()
    baseline = any(label == "baseline" for _, label in runs.by_key)
    return names or (["accuracy-1"] if baseline else [])


def _explained(name: str, table: Table, runs: Collection) -> list[str | Table]:
    missing = {
        NAMES[model]: [r.label for r in TABLES[name].rows if not runs.accuracies(model, r.label)]
        for model in runs.models
    }
    told = "; ".join(
        f"{model} {', '.join(labels) if len(labels) <= LISTED else f'{len(labels)} rows'}"
        for model, labels in missing.items()
        if labels
    )
    return [table, *([f"Without runs so far: {told}."] if told else [])]


def parameter_table() -> Table:
    """Exact counts beside the paper's thousands, and the growth over the baseline."""
    columns = ["network", "method", "parameters", "to baseline", "paper (K)", "paper to baseline"]
    lines = []
    for model, rows in PAPER.items():
        base = parameters(model, "baseline")
        for method, row in rows.items():
            count = parameters(model, method)
            grown = f"{100 * (count / base - 1):+.3f} %"
            papers = f"{100 * (row.parameters / rows['baseline'].parameters - 1):+.3f} %"
            cells = [NAMES[model], method, f"{count:,}", grown, f"{row.parameters:.2f}", papers]
            lines.append(
                [cell if method != "baseline" or "%" not in cell else "" for cell in cells]
            )
    return Table(columns, lines)


def loss_table(runs: Collection) -> Table:
    """Cross entropy in training and on the test images, and what steps and motion take off it."""
    columns = ["network", "method", "runs"]
    for name in ("train loss", "test loss"):
        columns += [name, "to baseline", "to ANODE at equal steps"]
    lines = []
    for (model, label), results in runs.by_key.items():
        cells = [NAMES[model], label, str(len(results))]
        for name in ("train_loss", "test_loss"):
            losses = partial(runs.last, name)
            differences = _differences(model, label, runs, losses)
            cells += [f"{mean(losses(model, label)):.4f}"]
            cells += [d.written(4) if d else "" for d in differences]
        lines.append(cells)
    return Table(columns, lines)


def _cost(e: Evidence) -> list[str | Table]:
    used = {times.conditions: times for key in e.runs.by_key if (times := e.times(*key))}
    return [COST, *timed_on([*used.values()]), cost_table(e)]


def cost_table(e: Evidence) -> Table:
    """What a method takes in time and numbers, and how far it moves its weights."""
    columns = ["network", "method", "s / step", "times baseline", "f evaluations", "parameters"]
    columns += ["p", "moved", "z(0) again"]
    lines = []
    for (model, label), results in e.runs.by_key.items():
        kind = RunConfig(**results[0].config).kind
        times: Mapping[str, Sequence[float]] = e.times(model, label) or {}
        count = results[0].field_evaluations
        step = median(times[kind]) if kind in times else None
        base = median(times["baseline"]) if "baseline" in times else None
        reversal = [r.reversal for r in results if r.reversal is not None]
        lines.append(
            [
                NAMES[model],
                label,
                f"{step:.3f}" if step else "",
                f"{step / base:.2f}" if step and base else "",
                f"{count['forward']} + {count['backward']}",
                f"{results[0].parameters:,}",
                *motion_cells(results),
                per_cent(mean(reversal)) if reversal else "",
            ]
        )
    return Table(columns, lines)


def _others(runs: Collection) -> Table:
    """Runs that are in none of the tables."""
    known = {row.label for table in TABLES.values() for row in table.rows}
    return Table(OURS, [_ours(*key, runs) for key in runs.by_key if key[1] not in known])


def _summary(runs: Collection) -> str:
    if not runs.results:
        return "No run is finished yet."
    settings = [RunConfig(**result.config) for result in runs.results]
    epochs = {c.model: c.epochs for c in settings}
    trained = ", ".join(
        f"{NAMES[m]} {counted(epochs[m], 'epoch')} (the paper {PAPER_RECIPES[m].epochs})"
        for m in runs.models
    )
    seeds = sorted({c.seed for c in settings})
    names = " and ".join(sorted({str(r.data["name"]) for r in runs.results}))
    count = counted(len(settings), "run")
    said = [
        f"{count} on {names}: {trained}; seeds {', '.join(map(str, seeds))}.",
        "Accuracies are on the test images after the last epoch, in per cent; no epoch is selected "
        "by them. Differences of averages are given with their 95 % interval (Welch) where both "
        "sides have two runs or more"
        + (
            ", those to the paper's averages with that of our runs alone."
            if runs.has_cifar10
            else "."
        ),
    ]
    if not runs.has_cifar10:
        said.append("The paper's accuracies are those on CIFAR-10, and not beside these.")
    if any(map(is_jpeg_copy, runs.results)):
        said.append(JPEG_COPIES)
    return " ".join(said)
