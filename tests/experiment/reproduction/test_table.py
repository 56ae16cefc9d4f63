"""The paper's tables as runs."""

from collections import Counter

import pytest

from anodev2.experiment.reproduction.table import TABLES, rows_of, runs_of
from anodev2.models import find_method
from anodev2.usage import UsageError

SETTINGS = {
    "data": "digits",
    "epochs": 2,
    "order": "pre",
    "precision": "float32",
    "recipe": "default",
}


def methods(table: str) -> list[str]:
    return [row.method for row in rows_of(table, None)]


def test_each_configuration_stands_beside_the_baseline_and_anode_at_equal_steps() -> None:
    assert methods("accuracy-1") == ["baseline", "anodev2-1", "anode-5"]
    assert methods("accuracy-2") == ["baseline", "anodev2-2", "anode"]


def test_steps_has_three_methods_at_four_depths_with_three_solvers() -> None:
    rows = methods("steps")
    assert len(set(rows)) == 36
    depths = Counter(find_method(row).steps for row in rows)
    assert depths == {1: 9, 2: 9, 5: 9, 10: 9}


def test_every_coupled_row_of_steps_has_its_row_at_rest() -> None:
    rows = methods("steps")
    assert {find_method(r).at_rest for r in rows if find_method(r).moves} <= {*rows}


def test_the_ablation_also_removes_the_block_takes_one_step_and_freezes_q() -> None:
    labels = [row.label for row in rows_of("ablation", None)]
    assert labels[:4] == ["baseline", "neural-ode", "anode", "anodev2-2"]
    assert labels[4:] == ["without-block", "anodev2-2-1", "anodev2-2 frozen"]


def test_parameters_needs_no_runs() -> None:
    assert rows_of("parameters", None) == []


def test_all_has_every_row_once() -> None:
    rows = rows_of("all", None)
    assert len(rows) == len({*rows})
    assert {*rows} == {row for t in TABLES.values() if t.trains for row in t.rows}


def test_seeds_come_one_after_another_so_that_a_part_is_a_table_too() -> None:
    rows = rows_of("accuracy-1", ["baseline", "anodev2-1"])
    runs = runs_of(rows, ["resnet4", "alexnet"], [3, 4], **SETTINGS)
    assert [(c.seed, c.model, c.method) for c in runs[:5]] == [
        (3, "resnet4", "baseline"),
        (3, "resnet4", "anodev2-1"),
        (3, "alexnet", "baseline"),
        (3, "alexnet", "anodev2-1"),
        (4, "resnet4", "baseline"),
    ]
    assert len(runs) == 8


def test_frozen_weights_are_a_run_of_their_own() -> None:
    rows = rows_of("ablation", ["anodev2-2 frozen"])
    runs = runs_of(rows, ["resnet4"], [0], **SETTINGS)
    assert [c.name for c in runs] == ["resnet4-anodev2-2-frozen-seed0"]
    assert [row.label for row in rows_of("all", ["anodev2-2"])] == ["anodev2-2"]


@pytest.mark.parametrize(
    ("table", "kept", "told"),
    [
        ("acuracy-1", None, "unknown table 'acuracy-1'.*did you mean 'accuracy-1'"),
        ("accuracy-1", ["anode"], "method of the table accuracy-1 'anode'.*did you mean 'anode-5'"),
        ("accuracy-1", ["basline"], "method of the table accuracy-1 'basline'.*'baseline'"),
    ],
)
def test_what_a_table_does_not_have_is_refused_by_name(table, kept, told) -> None:
    with pytest.raises(UsageError, match=told):
        rows_of(table, kept)
