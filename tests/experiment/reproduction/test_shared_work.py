"""Work that other processes share, stop or take over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.folder import claimed, write_config
from anodev2.experiment.reproduction import work as module
from anodev2.experiment.reproduction.engine import Outcome
from anodev2.experiment.reproduction.local import Local
from anodev2.experiment.reproduction.timing import timed_steps
from anodev2.experiment.reproduction.work import reproduce
from anodev2.experiment.result import Result
from anodev2.usage import UsageError
from stub import Stub, work

pytestmark = pytest.mark.usefixtures("quick_pictures", "quick_times")


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


class Elsewhere(Stub):
    """Another command has the runs that are asked for first, and each fails there."""

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        if self.asked:
            yield from super().run(configs, out)
            return
        self.asked.append([config.name for config in configs])
        for config in configs:
            folder = out / "runs" / config.name
            write_config(folder / "config.yaml", asdict(config))
            (folder / "failure.txt").write_text("the loss is nan in epoch 2, step 3\n")
            yield Outcome(config, "busy")


def test_a_run_that_fails_in_another_command_is_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Elsewhere()
    assert reproduce(work(tmp_path, seeds=(1,)), engine) == 1
    assert engine.asked == [["resnet4-baseline-seed1", "resnet4-anodev2-1-seed1"]]
    told = capsys.readouterr().out
    failed = "resnet4-baseline-seed1: failed, the loss is nan in epoch 2, step 3"
    assert f"[1/2] {failed}" in told
    assert "[2/2] resnet4-anodev2-1-seed1: failed" in told


def test_a_run_that_failed_before_the_command_began_is_trained_again_when_it_is_free(
    tmp_path: Path,
) -> None:
    config, _ = work(tmp_path).configs()
    folder = tmp_path / "runs" / config.name
    write_config(folder / "config.yaml", asdict(config))
    (folder / "failure.txt").write_text("the loss is nan in epoch 1, step 1\n")
    engine = Stub(busy=(0,))  # one that has just taken it, and is killed before it tries
    assert reproduce(replace(work(tmp_path), methods=["baseline"]), engine) == 0
    assert engine.asked == [[config.name]] * 2


def test_a_run_that_fails_again_in_another_command_with_the_same_words_is_not_trained_again(
    tmp_path: Path,
) -> None:
    for config in work(tmp_path).configs():
        path = tmp_path / "runs" / config.name / "failure.txt"
        write_config(path.with_name("config.yaml"), asdict(config))
        path.write_text("the loss is nan in epoch 2, step 3\n")
        os.utime(path, (0, 0))
    engine = Elsewhere()
    assert reproduce(work(tmp_path), engine) == 1
    assert len(engine.asked) == 1


def test_a_request_to_end_is_an_interruption(tmp_path: Path) -> None:
    class Ended(Stub):
        def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
            os.kill(os.getpid(), signal.SIGTERM)
            yield from super().run(configs, out)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        reproduce(work(tmp_path), Ended())
    assert signal.getsignal(signal.SIGTERM) == before


def test_work_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        assert pool.submit(reproduce, work(tmp_path), Stub()).result(timeout=60) == 0


def test_nothing_is_said_of_the_time_where_no_epoch_is_done(tmp_path: Path, capsys) -> None:
    reproduce(work(tmp_path, seeds=(1,)), Stub(fail=(1,)))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert lines[0] == "[1/2] resnet4-baseline-seed1: failed, the loss is nan in epoch 1"


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


@pytest.mark.slow
def test_two_commands_on_one_folder_do_no_run_twice(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "anodev2.cli", "reproduce", "accuracy-2", "--models", "resnet4",
        "--methods", "baseline,anodev2-2", "--seeds", "0", "--data", "digits", "--epochs", "2",
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
    assert len(trained) == len({*trained}) == 2 * 2
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2


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
