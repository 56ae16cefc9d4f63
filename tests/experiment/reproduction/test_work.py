"""A table made in a folder, with an engine that trains nothing."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anodev2.cli import main
from anodev2.experiment.reproduction import illustration
from anodev2.experiment.reproduction.collection import collect
from anodev2.experiment.reproduction.work import reproduce
from anodev2.experiment.result import Result
from anodev2.experiment.trained import configuration
from anodev2.usage import UsageError
from results import result, write
from stub import Stub, work
from written_runs import moved_network, with_checkpoint

pytestmark = pytest.mark.usefixtures("quick_pictures", "quick_times")


def test_the_plan_comes_first_and_counts_what_is_done(tmp_path: Path, capsys) -> None:
    assert reproduce(work(tmp_path), Stub()) == 0
    first = capsys.readouterr().out
    assert "2 runs: 0 done, 0 unfinished, 2 to start, about" in first
    assert first.index("2 to start") < first.index("[1/2] resnet4-baseline-seed0")
    engine = Stub()
    assert reproduce(work(tmp_path, seeds=(0, 1)), engine) == 0
    assert "4 runs: 2 done, 0 unfinished, 2 to start" in capsys.readouterr().out
    assert engine.asked == [["resnet4-baseline-seed1", "resnet4-anodev2-1-seed1"]]


def test_finished_runs_without_times_are_timed_and_those_with_are_not(
    tmp_path: Path, capsys
) -> None:
    reproduce(work(tmp_path), Stub())
    (tmp_path / "timings.json").unlink()
    capsys.readouterr()
    assert reproduce(work(tmp_path), Stub()) == 0
    assert "timing training steps of resnet4" in capsys.readouterr().out
    assert reproduce(work(tmp_path), Stub()) == 0
    assert "timing training steps" not in capsys.readouterr().out


def test_networks_are_timed_in_the_order_given(tmp_path: Path, capsys) -> None:
    networks = ["resnet4", "alexnet", "resnet10"]
    for models in (networks, networks[::-1]):
        out = tmp_path / models[0]
        assert reproduce(replace(work(out), models=models), Stub()) == 0
        assert f"timing training steps of {', '.join(models)}" in capsys.readouterr().out


def test_the_report_is_a_page_and_its_markdown_with_pictures_beside(tmp_path: Path) -> None:
    reproduce(work(tmp_path), Stub())
    assert {"report.html", "report.md", "figures", "runs"} <= {p.name for p in tmp_path.iterdir()}
    linked = re.findall(r"\((figures/[^)]+)\)", (tmp_path / "report.md").read_text())
    assert linked
    assert all((tmp_path / path).exists() for path in linked)


def test_a_failed_run_is_told_with_its_reason_and_is_status_1(tmp_path: Path, capsys) -> None:
    assert reproduce(work(tmp_path, seeds=(0, 1)), Stub(fail=(1,))) == 1
    told = capsys.readouterr().out
    assert "resnet4-anodev2-1-seed1: failed, the loss is nan in epoch 1" in told


def test_parameters_are_reported_without_any_run(tmp_path: Path) -> None:
    engine = Stub()
    assert reproduce(work(tmp_path, table="parameters"), engine) == 0
    assert engine.asked == []
    assert "1,757,514" in (tmp_path / "report.md").read_text()


def test_runs_of_other_settings_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    reproduce(work(tmp_path), Stub())
    engine = Stub()
    with pytest.raises(UsageError, match="epochs 2, not 3"):
        reproduce(replace(work(tmp_path, seeds=(1, 0)), epochs=3), engine)
    with pytest.raises(UsageError, match="epochs 3 for resnet4, whose finished runs here have 2"):
        reproduce(replace(work(tmp_path, seeds=(1,)), epochs=3), engine)
    with pytest.raises(
        UsageError, match=r"precision bfloat16 for .* finished runs here have float32"
    ):
        reproduce(replace(work(tmp_path, seeds=(1,)), precision="bfloat16"), engine)
    for path in tmp_path.glob("runs/*/result.json"):
        found = Result.read(path)
        replace(found, recipe=found.recipe | {"warmup": 2.0}).write(path)
    with pytest.raises(
        UsageError, match=r"warmup 1\.0 for resnet4 by the recipe 'default', whose .* have 2\.0"
    ):
        reproduce(work(tmp_path, seeds=(1,)), engine)
    for path in tmp_path.glob("runs/*/result.json"):  # of a version without a rate of p
        found = Result.read(path)
        replace(found, recipe={"warmup": 1.0}).write(path)
    with pytest.raises(UsageError, match=r"p rate 3\.0 for .* whose finished runs here have 1\.0"):
        reproduce(work(tmp_path, seeds=(1,)), engine)
    assert engine.asked == []


def test_runs_on_other_images_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    reproduce(work(tmp_path), Stub())
    for path in tmp_path.glob("runs/*/result.json"):
        found = Result.read(path)
        replace(found, data=found.data | {"train_images": 50_000}).write(path)
    engine = Stub()
    with pytest.raises(UsageError, match=r"train images 1437 for .* here have 50000: choose"):
        reproduce(work(tmp_path, seeds=(1,)), engine)
    assert engine.asked == []


def test_where_the_only_result_is_damaged_its_run_is_done_again(tmp_path: Path, capsys) -> None:
    first = replace(work(tmp_path), methods=["baseline"])
    reproduce(first, Stub())
    path = tmp_path / "runs/resnet4-baseline-seed0/result.json"
    path.write_bytes(path.read_bytes()[:100])
    engine = Stub()
    assert reproduce(first, engine) == 0
    assert engine.asked == [["resnet4-baseline-seed0"]]
    assert "result.json' is not the result of a run" in capsys.readouterr().err


def test_the_folder_of_a_comparison_keeps_its_own_report(tmp_path: Path) -> None:
    (tmp_path / "comparison.yaml").touch()
    with pytest.raises(UsageError, match="is the folder of `anodev2 compare`"):
        reproduce(work(tmp_path), Stub())


def test_the_report_is_written_from_the_results_alone(tmp_path: Path) -> None:
    write(tmp_path, result(seed=0), result(method="anodev2-1", seed=0))
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path)])
    assert stop.value.code == 0
    assert "figures/curves-resnet4.png" in (tmp_path / "report.md").read_text()


def test_rows_without_curves_are_named_below_the_picture(tmp_path: Path) -> None:
    shown = [result(), result(method="anodev2-1"), result(method="without-block")]
    runs = collect([write(tmp_path, *shown)])
    captions = [p.caption for p in illustration.illustrate(tmp_path / "figures", runs)]
    assert "ResNet-4: accuracy and loss after each epoch; not drawn: without-block." in captions
    many = [result(method=f"anode-{steps}") for steps in (1, 3, 4, 6, 7)]
    captions = [
        p.caption
        for p in illustration.illustrate(
            tmp_path / "figures", collect([write(tmp_path / "many", result(), *many)])
        )
    ]
    assert "ResNet-4: accuracy and loss after each epoch; not drawn: 5 rows." in captions


def test_a_checkpoint_that_cannot_be_drawn_costs_its_picture_alone(tmp_path: Path, capsys) -> None:
    reproduce(work(tmp_path), Stub())
    (tmp_path / "runs/resnet4-anodev2-1-seed0/checkpoints").mkdir()
    (tmp_path / "runs/resnet4-anodev2-1-seed0/checkpoints/last.ckpt").write_bytes(b"no")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path)])
    assert stop.value.code == 0
    assert "last.ckpt" in capsys.readouterr().err
    assert "kernels-resnet4" not in (tmp_path / "report.md").read_text()


def test_a_checkpoint_of_another_run_costs_its_picture_alone(tmp_path: Path, capsys) -> None:
    reproduce(work(tmp_path), Stub())
    folder = tmp_path / "runs/resnet4-anodev2-1-seed0"
    other = asdict(configuration(folder)) | {"seed": 7}
    with_checkpoint(folder, moved_network("anodev2-1"), run=other)
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path)])
    assert stop.value.code == 0
    told = "last.ckpt' is a checkpoint of another run: with seed 7, not 0\n"
    assert told in capsys.readouterr().err
    assert "kernels-resnet4" not in (tmp_path / "report.md").read_text()


def test_a_run_that_failed_is_named_in_the_report_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, result(seed=0))
    folder = tmp_path / "runs" / "resnet4-baseline-seed1"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 1\n")
    (folder / "metrics.csv").write_text("epoch\n1\n")
    (folder / "failure.txt").write_text("the loss is nan in epoch 2, step 3\n")
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path)])
    told = "resnet4-baseline-seed1 (1 epoch so far, the loss is nan in epoch 2, step 3)"
    assert told in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("change", [{"models": ["resnet5"]}, {"methods": ["anode-5"]}])
def test_cuts_of_a_table_without_runs_are_checked_too(tmp_path: Path, change) -> None:
    with pytest.raises(UsageError, match="unknown m"):
        reproduce(replace(work(tmp_path, table="parameters"), **change), Stub())


def test_the_report_of_a_folder_is_the_same_bytes_when_written_again(tmp_path: Path) -> None:
    reproduce(work(tmp_path), Stub())
    files = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path)])
    assert stop.value.code == 0
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files
