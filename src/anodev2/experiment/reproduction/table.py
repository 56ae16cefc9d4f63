"""The paper's tables, as the runs they need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.spelling import DEFAULT
from anodev2.models import METHODS, find_method, spell_method
from anodev2.usage import check_choice

DEPTHS = (1, 2, 5, 10)
SOLVERS = ("euler", "midpoint", "rk4")


@dataclass(frozen=True)
class Row:
    """A way to train a network.

    Args:
        method: as `find_method` reads it.
        evolution: q, for methods that move their weights.
    """

    method: str
    evolution: str = DEFAULT[0]

    @property
    def label(self) -> str:
        """As `RunConfig.kind` of its runs."""
        return " ".join([self.method, *([self.evolution] if self.evolution != DEFAULT[0] else [])])


@dataclass(frozen=True)
class PaperTable:
    """A table: every row is trained on every network with every seed.

    Args:
        title: what it shows, with the number of the paper's table.
        rows: its rows.
        trains: whether it needs runs at all.
    """

    title: str
    rows: tuple[Row, ...]
    trains: bool = True


def _rows(*methods: str) -> tuple[Row, ...]:
    return tuple(Row(method) for method in methods)


TABLES = {
    "accuracy-1": PaperTable(
        "Configuration 1, five steps (the paper's Table 1)",
        _rows("baseline", "anodev2-1", "anode-5"),
    ),
    "accuracy-2": PaperTable(
        "Configuration 2, two steps (the paper's Table 2)", _rows("baseline", "anodev2-2", "anode")
    ),
    "parameters": PaperTable("Parameters (the paper's Table 3)", _rows(*METHODS), trains=False),
    "ablation": PaperTable(
        "Ablation (the paper's Table 4)",
        (
            *_rows("baseline", "neural-ode", "anode", "anodev2-2", "without-block", "anodev2-2-1"),
            Row("anodev2-2", "frozen"),
        ),
    ),
    "steps": PaperTable(
        "Steps and solvers",
        _rows(
            *(
                spell_method(kind, steps, solver)
                for solver in SOLVERS
                for kind in ("neural-ode", "anode", "anodev2-1")
                for steps in DEPTHS
            )
        ),
    ),
}
"""By name. Beside each configuration stands ANODE at as many steps."""


def rows_of(table: str, methods: Sequence[str] | None) -> list[Row]:
    """The rows of a table, or of all of them, that need runs.

    Args:
        table: one of `TABLES`, or "all".
        methods: the labels of those to keep; None keeps all.

    Raises:
        ValueError: an unknown table, or a row that the table does not have.
    """
    check_choice("table", table, [*TABLES, "all"])
    chosen = TABLES.values() if table == "all" else [TABLES[table]]
    known = dict.fromkeys(row.label for t in chosen for row in t.rows)
    for method in methods or ():
        check_choice(f"method of the table {table}", method, known)
    rows = dict.fromkeys(row for t in chosen if t.trains for row in t.rows)
    return [row for row in rows if methods is None or row.label in methods]


def runs_of(
    rows: Sequence[Row], models: Sequence[str], seeds: Sequence[int], **settings: Any
) -> list[RunConfig]:
    """The runs that rows need, one seed after another, so that a part of them is a table too.

    Args:
        rows: what to train.
        models: on which networks.
        seeds: and with which seeds.
        settings: what all runs share; see `run_config`.

    Raises:
        ValueError: something in a run that is not valid.
    """

    def config(model: str, row: Row, seed: int) -> RunConfig:
        own: dict[str, Any] = {"evolution": row.evolution} if find_method(row.method).moves else {}
        return run_config(model=model, method=row.method, seed=seed, **settings, **own)

    return [config(model, row, seed) for seed in seeds for model in models for row in rows]
