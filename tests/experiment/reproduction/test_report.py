"""The report as data: a pure function of finished runs."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anodev2.experiment.folder import write_config
from anodev2.experiment.reproduction.collection import Collection, collect
from anodev2.experiment.reproduction.document import Document, Table
from anodev2.experiment.reproduction.evidence import Evidence
from anodev2.experiment.reproduction.report import (
    accuracy_table,
    cost_table,
    loss_table,
    parameter_table,
    report_of,
)
from anodev2.experiment.reproduction.run_section import run_table
from anodev2.experiment.reproduction.step_times import Times
from anodev2.experiment.reproduction.table import TABLES
from anodev2.usage import UsageError
from results import result, runs_of, timed, write


def titles(document: Document) -> list[str]:
    return [section.title for section in document.sections]


def test_a_row_has_our_runs_the_papers_and_both_differences() -> None:
    runs = runs_of(baseline=[69, 70, 71], anodev2_1=[71, 72, 73], anode_5=[72, 72, 72])
    table = accuracy_table(TABLES["accuracy-1"], runs)
    assert list(table.rows[1]) == [
        "ResNet-4",
        "anodev2-1",
        "3",
        "71.00 / 73.00",
        "72.00",
        "+2.00 ± 2.27",
        "+0.00 ± 2.48",
        "77.27 / 78.58",
        "78.11",
        "+1.16",
        "-6.11 ± 2.48",
    ]


def test_rows_that_the_paper_does_not_have_leave_its_columns_empty() -> None:
    table = accuracy_table(TABLES["accuracy-1"], runs_of(baseline=[70], anode_5=[71]))
    assert list(table.rows[1])[7:] == ["", "", "", ""]


def test_other_images_than_cifar10_do_not_stand_beside_the_papers_figures() -> None:
    other = result()
    other.data["is_cifar10"] = False
    table = accuracy_table(TABLES["accuracy-1"], Collection((other,)))
    assert list(table.columns)[7:] == list(table.rows[0])[7:] == []
    said = report_of(Collection((other,)), [], []).summary
    assert "The paper's accuracies are those on CIFAR-10, and not beside these." in said
    assert "to the paper's averages" not in said
    beside = accuracy_table(TABLES["accuracy-1"], Collection((other, result("resnet10"))))
    assert list(beside.rows[0])[7:] == ["", "", "", ""]
    assert list(beside.rows[1])[7] == "87.79 / 88.52"


def test_parameters_are_exact_beside_the_papers_thousands() -> None:
    rows = {(row[0], row[1]): list(row[2:]) for row in parameter_table().rows}
    assert rows["ResNet-4", "anodev2-1"] == ["8,122", "+5.398 %", "8.23", "+6.744 %"]
    assert rows["AlexNet", "anodev2-1"] == ["1,757,514", "+0.047 %", "1757.51", "+0.047 %"]
    assert rows["ResNet-10", "baseline"] == ["44,186", "", "44.19", ""]
    assert len(rows) == 15


def test_costs_are_relative_to_the_baselines_step() -> None:
    runs = runs_of(baseline=[70], anodev2_1=[71])
    seconds = timed({"baseline": [0.1, 0.1, 9.0], "anodev2-1": [0.42, 0.42, 0.5]})
    table = cost_table(Evidence(runs, [seconds]))
    assert [row[2:4] for row in table.rows] == [["0.100", "1.00"], ["0.420", "4.20"]]


def cost_lines(*seconds: Times) -> list[str]:
    """What is said of costs, apart from the table."""
    runs = Collection(tuple(map(result, ("resnet4", "resnet10", "alexnet"))))
    document = report_of(runs, seconds, [])
    (section,) = (s for s in document.sections if s.title == "Cost")
    return [part for part in section.parts if isinstance(part, str)]


def test_step_times_are_told_with_what_they_were_timed_on() -> None:
    steps = {"baseline": [0.1]}
    one = timed(steps, processor="AMD EPYC")
    told = "Steps were timed on AMD EPYC, 1 thread, bfloat16, batches of 256."
    assert cost_lines(one)[1:] == [told]
    assert len(cost_lines()) == 1
    alike = timed(steps, processor="AMD EPYC", model="resnet10")
    assert cost_lines(one, alike) == cost_lines(one)
    assert cost_lines(timed(steps, batch_size=64), one) == cost_lines(one)  # no row shows it
    other = timed(steps, processor="H200", threads=8, model="alexnet")
    assert cost_lines(one, alike, other)[1:] == [
        "Steps were timed on AMD EPYC, 1 thread, bfloat16, batches of 256 (ResNet-4, ResNet-10); "
        "H200, 8 threads, bfloat16, batches of 256 (AlexNet)."
    ]


def test_tables_without_runs_are_left_out_and_missing_rows_are_named() -> None:
    document = report_of(runs_of(baseline=[70], anodev2_1=[71]), [], [])
    assert "Configuration 1, five steps (the paper's Table 1)" in titles(document)
    parts = [p for s in document.sections for p in s.parts if isinstance(p, str)]
    assert "Without runs so far: ResNet-4 anode-5." in parts
    assert "Other runs" not in titles(document)


def test_a_table_is_shown_where_it_has_runs_of_rows_of_its_own() -> None:
    def shown(**runs: list[float]) -> list[str]:
        document = report_of(runs_of(baseline=[70], **runs), [], [])
        return [title.partition(",")[0] for title in titles(document)[1:]]

    assert shown(anode=[71], anodev2_2=[72])[:2] == [
        "Configuration 2",
        "Parameters (the paper's Table 3)",
    ]
    assert shown(neural_ode=[10], anode=[71])[:2] == [
        "Configuration 2",
        "Ablation (the paper's Table 4)",
    ]
    assert shown(anode_10=[71])[0] == "Steps and solvers"


def test_differences_are_to_the_baseline_under_the_same_recipe() -> None:
    runs = Collection(
        (
            result(accuracy=70),
            result(accuracy=60, recipe="paper"),
            result(method="anodev2-1", accuracy=65, recipe="paper"),
        )
    )
    (section,) = (s for s in report_of(runs, [], []).sections if s.title == "Other runs")
    (table,) = section.parts
    assert isinstance(table, Table)
    assert [(row[1], row[5]) for row in table.rows] == [
        ("baseline paper", ""),
        ("anodev2-1 paper", "+5.00"),
    ]


def test_runs_of_no_table_are_reported_too() -> None:
    other = result(method="anodev2-1", evolution="linear:form=skew")
    document = report_of(Collection((other,)), [], [])
    (section,) = (s for s in document.sections if s.title == "Other runs")
    (table,) = section.parts
    assert isinstance(table, Table)
    assert table.rows[0][1] == "anodev2-1 linear:form=skew"
    assert not any("Table 1" in title for title in titles(document))


def test_jpeg_copies_are_said_to_be_such() -> None:
    assert "JPEG copies" in report_of(runs_of(baseline=[70]), [], []).summary
    png = replace(result(), data=result().data | {"encoding": "PNG"})
    assert "JPEG copies" not in report_of(Collection((png,)), [], []).summary


def test_every_run_is_listed_with_its_seed_time_and_machine() -> None:
    rows = run_table(runs_of(baseline=[70, 71])).rows
    assert [row[1] for row in rows] == ["0", "1"]
    assert {row[5] for row in rows} == {"60 s"}
    assert [row[6:] for row in rows] == [["bfloat16", "1", "a processor", "abc"]] * 2


def test_losses_stand_beside_the_baselines_and_anodes_at_equal_steps() -> None:
    found = runs_of(baseline=[70, 70], anode_5=[70], anodev2_1=[70, 70])
    by_method = {"baseline": 0.9, "anode-5": 0.8, "anodev2-1": 0.7}
    losses = [
        replace(
            run,
            epochs=[
                row | {"train_loss": by_method[run.config["method"]] + 0.1 * run.config["seed"]}
                for row in run.epochs
            ],
        )
        for run in found.results
    ]
    rows = {row[1]: list(row[2:6]) for row in loss_table(Collection(tuple(losses))).rows}
    assert rows == {
        "baseline": ["2", "0.9500", "", ""],
        "anode-5": ["1", "0.8000", "-0.1500", ""],
        "anodev2-1": ["2", "0.7500", "-0.2000 ± 0.3042", "-0.0500"],
    }


def test_a_step_is_timed_by_its_kind_and_batch_whatever_else_the_recipe_has() -> None:
    recipes = ("default", "paper", "default:batch_size=64")
    runs = Collection(tuple(result(recipe=recipe) for recipe in recipes))
    seconds = [timed({"baseline": [0.1]}), timed({"baseline": [0.02]}, batch_size=64)]
    assert {row[1]: list(row[2:4]) for row in cost_table(Evidence(runs, seconds)).rows} == {
        "baseline": ["0.100", "1.00"],
        "baseline paper": ["0.100", "1.00"],
        "baseline default:batch_size=64": ["0.020", "1.00"],
    }


def test_a_later_command_with_fewer_methods_takes_no_times_away() -> None:
    runs = runs_of(baseline=[70], anode_5=[71])
    held = timed({"baseline": [0.1], "anode-5": [0.6]})
    later = timed({"baseline": [0.2], "anode": [0.5]}, processor="another")
    shown = [list(row[2:4]) for row in cost_table(Evidence(runs, [held, later])).rows]
    assert shown == [["0.100", "1.00"], ["0.600", "6.00"]]


def test_steps_are_those_of_the_batches_that_a_run_had_whatever_its_recipe_is_by_now() -> None:
    older = replace(result(), recipe=result().recipe | {"batch_size": 64})
    gone = replace(older, config=older.config | {"recipe": "default:gone=3", "precision": "auto"})
    seconds = [timed({"baseline": [0.02]}, batch_size=64), timed({"baseline": [0.1]})]
    for run in (older, gone):
        (row,) = cost_table(Evidence(Collection((run,)), seconds)).rows
        assert row[2] == "0.020"


def test_baselines_alone_stand_beside_the_papers() -> None:
    (table,) = (
        section.parts[0]
        for section in report_of(runs_of(baseline=[70, 71]), [], []).sections
        if section.title.startswith("Configuration 1")
    )
    assert isinstance(table, Table)
    assert [row[8] for row in table.rows] == ["76.95"]


def test_the_report_does_not_depend_on_the_order_of_the_files() -> None:
    runs = runs_of(baseline=[70, 71], anodev2_1=[72, 73])
    backward = Collection(tuple(reversed(runs.results)))
    assert report_of(backward, [], []) == report_of(runs, [], [])


def test_folders_of_several_machines_are_one_report(tmp_path: Path) -> None:
    first = write(tmp_path / "a", result(seed=0, accuracy=70), result(seed=1, accuracy=71))
    second = write(tmp_path / "b", result(seed=1, accuracy=99), result(seed=2, accuracy=72))
    runs = collect([first, second])
    assert runs.accuracies("resnet4", "baseline") == pytest.approx([70, 71, 72])


def test_runs_under_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    first = write(tmp_path / "a", result())
    second = write(tmp_path / "b", result(seed=1, epochs=3))
    with pytest.raises(UsageError, match=r"epochs 3, .* 2: expected .*same settings"):
        collect([first, second])


def test_a_recipe_is_named_only_where_runs_differ_in_it() -> None:
    paper = result(recipe="paper")
    assert list(Collection((paper,)).by_key) == [("resnet4", "baseline")]
    both = Collection((paper, result()))
    assert {*both.by_key} == {("resnet4", "baseline"), ("resnet4", "baseline paper")}


def test_a_run_copied_under_another_name_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, result())
    copy = tmp_path / "runs" / "a copy"
    write_config(copy / "config.yaml", result().config)
    result().write(copy / "result.json")
    assert collect([tmp_path]).accuracies("resnet4", "baseline") == pytest.approx([70])
    assert capsys.readouterr().err == ""


def test_runs_merged_under_one_name_must_have_the_same_settings_too(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{n}", result(epochs=n)) for n in (2, 3))
    with pytest.raises(UsageError, match="same settings"):
        collect([first, second])


def test_a_recipe_is_its_numbers_not_its_name(tmp_path: Path) -> None:
    first = write(tmp_path / "a", replace(result(), recipe={"warmup": 1.0}))
    second = write(tmp_path / "b", replace(result(seed=1), recipe={"warmup": 5.0}))
    with pytest.raises(UsageError, match=r"warmup 5.0, .* 1.0: expected"):
        collect([first, second])


@pytest.mark.parametrize(
    "change",
    [
        {"config": result().config | {"later": 1}},
        {"config": result().config | {"model": "resnet18"}},
        {"config": result().config | {"method": "anodev3"}},
        {"data": {"name": "cifar10"}},
        {"field_evaluations": {}},
        {"field_evaluations": {"forward": "1", "backward": 0}},
        {"reversal": "far"},
    ],
)
def test_results_of_other_versions_are_left_out_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change
) -> None:
    write(tmp_path, result())
    (tmp_path / "runs" / "other").mkdir()
    text = json.dumps(asdict(result(seed=1)) | change)
    (tmp_path / "runs" / "other" / "result.json").write_text(text)
    assert len(collect([tmp_path]).results) == 1
    assert re.search("is (no result for a report|not the result)", capsys.readouterr().err)


def test_a_result_whose_run_has_another_name_by_now_is_finished(tmp_path: Path) -> None:
    older = result(method="anodev2-1")
    older = replace(older, config=older.config | {"p_rate": 1.0})
    folder = tmp_path / "runs" / "resnet4-anodev2-1-seed0"  # with a rate of p that had no name
    older.write(folder / "result.json")
    write_config(folder / "config.yaml", older.config)
    begun = tmp_path / "runs" / "begun"
    begun.mkdir()
    (begun / "config.yaml").write_text("epochs: 2\n")
    assert list(collect([tmp_path]).unfinished) == ["begun"]


def test_a_run_is_listed_with_every_revision_that_trained_it() -> None:
    later = result(seed=1)
    resumed = replace(later, earlier_environments=[later.environment | {"git_revision": "first"}])
    assert run_table(Collection((result(), resumed))).rows[1][-1] == "first, abc"


def test_a_revision_whose_files_were_changed_is_listed_as_such() -> None:
    run = result()
    changed = replace(run, environment=run.environment | {"git_revision": f"{'7' * 40}-dirty"})
    assert run_table(Collection((changed,))).rows[0][-1] == "7777777777-dirty"


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no finished runs"):
        collect([tmp_path])
    with pytest.raises(UsageError, match="does not exist"):
        collect([tmp_path / "nowhere"])
