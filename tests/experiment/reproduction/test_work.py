"""A table made in a folder, with an engine that trains nothing and with the real one."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from anodev2.cli import main
from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.folder import claimed
from anodev2.experiment.reproduction import illustration, timing
from anodev2.experiment.reproduction import work as module
from anodev2.experiment.reproduction.collection import collect
from anodev2.experiment.reproduction.engine import Engine, Outcome
from anodev2.experiment.reproduction.local import Local
from anodev2.experiment.reproduction.timing import timed_steps
from anodev2.experiment.reproduction.work import Work, reproduce
from anodev2.experiment.result import Result, describe_data
from anodev2.usage import UsageError
from results import result, write

METHODS = ["baseline", "anodev2-1"]


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of those that need no runs is enough here; tests/experiment/figures has them all."""
    monkeypatch.setattr(illustration, "STANDING", {"coupling": "What each step reads."})


@pytest.fixture(autouse=True)
def _quick_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_plan.py has the real ones."""
    monkeypatch.setattr(timing, "_time", lambda configs, *_: {c.kind: [0.5] for c in configs})


@dataclass
class Stub(Engine):
    """Finishes runs at once, but for those whose seed is in `fail`, or in `busy` the first time."""

    fail: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    asked: list[list[str]] = field(default_factory=list)
    threads: int = 1

    @property
    def side_by_side(self) -> int:
        return 1

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        self.asked.append([config.name for config in configs])
        for config in configs:
            if config.seed in self.fail:
                yield Outcome(config, "failed", "the loss is nan in epoch 1")
            elif config.seed in self.busy and len(self.asked) == 1:
                yield Outcome(config, "busy")
            else:
                found = result(method=config.method, seed=config.seed, epochs=config.epochs)
                data = found.data | describe_data(load_data(config.data)) | {"is_cifar10": True}
                found = replace(found, config=vars(config), data=data, precision=config.precision)
                found.write(out / "runs" / config.name / "result.json")
                (out / "runs" / config.name / "config.yaml").write_text(
                    yaml.safe_dump(vars(config))
                )
                yield Outcome(config, "done")


def work(out: Path, *, seeds: Sequence[int] = (0,), table: str = "accuracy-1") -> Work:
    return Work(
        table=table,
        models=["resnet4"],
        methods=METHODS if table != "parameters" else None,
        seeds=seeds,
        data="digits",
        epochs=2,
        order="pre",
        precision="float32",
        recipe="default",
        out=out,
    )


def test_the_plan_comes_first_and_counts_what_is_done(tmp_path: Path, capsys) -> None:
    assert reproduce(work(tmp_path), Stub()) == 0
    first = capsys.readouterr().out
    assert "2 runs: 0 done, 0 unfinished, 2 to start, about" in first
    assert first.index("2 to start") < first.index("[1/2] resnet4-baseline-seed0")
    engine = Stub()
    assert reproduce(work(tmp_path, seeds=(0, 1)), engine) == 0
    assert "4 runs: 2 done, 0 unfinished, 2 to start" in capsys.readouterr().out
    assert engine.asked == [["resnet4-baseline-seed1", "resnet4-anodev2-1-seed1"]]


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


def test_what_another_process_has_is_waited_for_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(module, "POLL", 0.0)
    engine = Stub(busy=(1,))
    assert reproduce(work(tmp_path, seeds=(0, 1)), engine) == 0
    assert engine.asked[1] == ["resnet4-baseline-seed1", "resnet4-anodev2-1-seed1"]
    assert "waiting for 2 runs of another process: resnet4-baseline" in capsys.readouterr().out


def test_only_runs_that_are_free_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Stub(busy=(0, 1))
    monkeypatch.setattr(module, "_free", lambda _, busy: busy[:1])
    first = replace(work(tmp_path, seeds=(0, 1)), methods=["baseline"])
    assert reproduce(first, engine) == 0
    assert engine.asked[1:] == [["resnet4-baseline-seed0"], ["resnet4-baseline-seed1"]]


def test_a_request_to_end_is_an_interruption(tmp_path: Path) -> None:
    class Ended(Stub):
        def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
            os.kill(os.getpid(), signal.SIGTERM)
            yield from super().run(configs, out)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        reproduce(work(tmp_path), Ended())
    assert signal.getsignal(signal.SIGTERM) == before


def test_time_left_counts_what_runs_side_by_side_have_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    class Beside(Stub):
        def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
            folder = out / "runs" / configs[1].name
            folder.mkdir(parents=True)
            (folder / "config.yaml").write_text(yaml.safe_dump(vars(configs[1])))
            (folder / "metrics.csv").write_text("epoch\n1\n")  # one of its two
            yield from super().run(configs, out)

    clock = iter([0.0, 60.0, 90.0])
    monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    reproduce(work(tmp_path), Beside())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert [line.rpartition(", ")[2] for line in lines] == ["20 s left", "0 s left"]


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


def test_a_checkpoint_that_cannot_be_drawn_costs_its_picture_alone(tmp_path: Path, capsys) -> None:
    reproduce(work(tmp_path), Stub())
    (tmp_path / "runs/resnet4-anodev2-1-seed0/checkpoints").mkdir()
    (tmp_path / "runs/resnet4-anodev2-1-seed0/checkpoints/last.ckpt").write_bytes(b"no")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path)])
    assert stop.value.code == 0
    assert "last.ckpt" in capsys.readouterr().err
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


@pytest.mark.slow
def test_two_commands_on_one_folder_do_no_run_twice(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "anodev2.cli", "reproduce", "accuracy-2", "--models", "resnet4",
        "--methods", "baseline,anodev2-2", "--seeds", "0,1", "--data", "digits", "--epochs", "2",
        "--out", str(tmp_path), "--threads", "1",
    ]  # fmt: skip
    table = replace(work(tmp_path, table="accuracy-2"), methods=None, precision="auto")
    timed_steps(table.configs(), load_data("digits"), tmp_path / "timings.json", threads=1)
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    epochs = [line for _, error in told for line in error.splitlines() if " epoch " in line]
    trained = [line.partition(":")[0] for line in epochs]
    assert len(trained) == len({*trained}) == 2 * 4
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 4


@pytest.mark.slow
def test_a_run_whose_process_dies_is_taken_over_from_its_checkpoint(tmp_path: Path) -> None:
    """What a second command does when the first is killed: its lock goes with it."""
    (config,) = [c for c in work(tmp_path).configs() if c.method == "baseline"]
    holder = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys, time; from pathlib import Path\n"
            "from anodev2.experiment.folder import claimed\n"
            "with claimed(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)",
            str(tmp_path / "runs" / config.name),
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    (busy,) = Local(processes=1, threads=1).run([config], tmp_path)
    assert busy.state == "busy"
    holder.kill()
    holder.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with claimed(tmp_path / "runs" / config.name):
                break
        except UsageError:
            time.sleep(0.1)
    (done,) = Local(processes=1, threads=1).run([config], tmp_path)
    assert done.state == "done"
    assert Result.read(tmp_path / "runs" / config.name / "result.json").config == vars(config)
