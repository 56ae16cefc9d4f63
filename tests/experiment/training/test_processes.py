"""The processes of a shared run: who is first, what is refused, and that none is left behind."""

import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies.launchers import subprocess_script

from anodev2.cli import main
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import write_config
from anodev2.experiment.result import Result
from anodev2.experiment.training import run
from anodev2.experiment.training.processes import (
    Launcher,
    Shares,
    check_processes,
    companions,
    is_first,
)
from anodev2.experiment.training.run import check_fit, train_run
from anodev2.usage import UsageError
from tiny import tiny_config, tiny_data

CONFIG = tiny_config(method="anodev2-1", devices=2)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a command line ends with at status 2."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("size", "devices", "nearest"), [(256, 3, 255), (250, 4, 248), (2, 5, 5), (10, 6, 12)]
)
def test_a_batch_that_cannot_be_shared_evenly_is_refused_with_the_nearest_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, devices: int, nearest: int
) -> None:
    recipe = f"default:batch_size={size}"
    options = ["--devices", str(devices), "--recipe", recipe, "--out", str(tmp_path / "out")]
    line = refused(capsys, "train", *options)
    assert f"a batch of {size} images in equal shares for {devices} processes" in line
    assert f"such as batch_size={nearest} in the recipe" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--devices", "--num-nodes", "--num_nodes"])
def test_no_devices_and_no_nodes_are_refused(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    name = option.removeprefix("--").replace("-", "_")
    assert f"{name} must be at least 1, got 0" in refused(capsys, "train", f"{option}=0")


def test_nodes_that_nothing_brings_together_are_refused_and_leave_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    line = refused(capsys, "train", "--num-nodes", "2", "--out", str(tmp_path / "out"))
    assert "2 nodes, but no MASTER_ADDR in the environment" in line
    assert list(tmp_path.iterdir()) == []


def test_more_devices_than_this_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="devices 2: this machine has 1"):
        check_processes(CONFIG)


def test_fewer_images_than_processes_are_refused() -> None:
    with pytest.raises(UsageError, match="48 test images: expected at least one for each of 64"):
        check_fit(tiny_data(), tiny_config(devices=8, num_nodes=8))


def test_the_numbers_of_devices_and_nodes_are_in_the_name_where_they_are_not_one() -> None:
    assert CONFIG.label == "anodev2-1 devices=2"
    assert replace(CONFIG, num_nodes=4).label == "anodev2-1 devices=2 num-nodes=4"
    assert replace(CONFIG, devices=1).label == "anodev2-1"


@pytest.mark.parametrize("rank", ["RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"])
def test_only_a_shared_run_asks_the_environment_whether_it_is_the_first(
    monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    assert is_first(CONFIG)
    monkeypatch.setenv(rank, "1")
    assert not is_first(CONFIG)
    assert is_first(replace(CONFIG, devices=1))


def test_another_process_of_a_finished_run_ends_without_waiting_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tiny_config(epochs=1)
    made = train_run(one, tmp_path / "one", resume=False, data=tiny_data())
    shared = replace(one, devices=2)
    made = replace(made, config=asdict(shared))
    made.write(tmp_path / "runs" / shared.name / "result.json")
    write_config(tmp_path / "runs" / shared.name / "config.yaml", made.config)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(run, "_fit", None)
    found = train_run(shared, tmp_path, resume=None, data=tiny_data())
    assert found == Result.read(tmp_path / "runs" / shared.name / "result.json")


def trainer_with(*commands: str) -> tuple[Trainer, list[subprocess.Popen[bytes]]]:
    """A trainer that has started these shell commands as the other processes of a run."""
    trainer = Trainer(accelerator="cpu", devices=len(commands) + 1, strategy=Shares(), logger=False)
    started = [subprocess.Popen(["sh", "-c", command]) for command in commands]
    launcher = trainer.strategy.launcher
    assert isinstance(launcher, Launcher)
    launcher.procs = list(started)
    return trainer, started


def test_a_process_that_died_is_named_by_its_status_and_the_others_are_killed() -> None:
    trainer, processes = trainer_with("exec sleep 100", "exit 3")
    said = "a process of the run ended with status 3"
    with pytest.raises(RunFailure, match=said), companions(trainer):
        raise RuntimeError("connection closed")
    assert [process.poll() for process in processes] == [-signal.SIGKILL, 3]


@pytest.mark.parametrize("error", [RuntimeError, RunFailure, KeyboardInterrupt, UsageError])
def test_an_error_of_the_first_process_is_its_own_and_ends_the_others(
    error: type[BaseException],
) -> None:
    trainer, (process,) = trainer_with("exec sleep 100")
    with pytest.raises(error, match=r"^mine$"), companions(trainer):
        raise error("mine")
    assert process.poll() == -signal.SIGKILL


def test_started_processes_ignore_ctrl_c_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")  # set by the launcher, and put back after the test
    tells = "import signal; raise SystemExit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    monkeypatch.setattr(
        subprocess_script, "_basic_subprocess_cmd", lambda: [sys.executable, "-c", tells]
    )
    before = signal.getsignal(signal.SIGINT)
    launcher = Launcher(LightningEnvironment(), 2, 1)
    launcher._call_children_scripts()
    assert [process.wait() for process in launcher.procs] == [1]
    assert signal.getsignal(signal.SIGINT) is before
