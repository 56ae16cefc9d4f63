"""Processes of this machine: what they make, how they end, and what others see of it."""

import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from anodev2.experiment.config import RunConfig
from anodev2.experiment.folder import Busy, claimed
from anodev2.experiment.reproduction import engine
from anodev2.experiment.reproduction.engine import Outcome, carry_out
from anodev2.experiment.reproduction.local import Local
from anodev2.experiment.result import Result
from digits import (
    digits_run,
    epochs_done,
    meanwhile,
    same_weights,
    table,
    wait_until,
    what_came_out,
)
from terminal import heed_interrupts

TABLE = table(epochs=3)


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one-by-one")
    assert list(Local(1, 1).run(TABLE, out)) == [Outcome(config, "done") for config in TABLE]
    return out


def pid_of(config: RunConfig) -> int | None:
    """The process that the engine has given the run, once it is there."""
    children = multiprocessing.active_children()
    return next((child.pid for child in children if child.name == config.name), None)


@pytest.mark.slow
def test_runs_side_by_side_come_out_as_one_after_another_to_the_bit(
    tmp_path: Path, one_by_one: Path
) -> None:
    outcomes = list(Local(2, 1).run(TABLE, tmp_path))
    assert {outcome.config for outcome in outcomes if outcome.state == "done"} == set(TABLE)
    for config in TABLE:
        assert what_came_out(tmp_path, config) == what_came_out(one_by_one, config)
        assert same_weights(config, tmp_path, one_by_one)


@pytest.mark.slow
def test_a_run_has_the_threads_it_was_given(tmp_path: Path) -> None:
    config = digits_run("baseline", 1)
    assert list(Local(1, 3).run([config], tmp_path)) == [Outcome(config, "done")]
    result = Result.read(tmp_path / "runs" / config.name / "result.json")
    assert result.environment["threads"] == 3


TELLING = """
import os
from anodev2.evolution import Frozen
class Telling(Frozen):
    def __init__(self, shape):
        raise RuntimeError("GPU " + os.environ["CUDA_VISIBLE_DEVICES"])
"""


@pytest.mark.slow
def test_runs_side_by_side_take_the_gpus_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    plain = digits_run("anodev2-2", 1)
    runs = [replace(plain, evolution="telling.Telling", seed=seed) for seed in range(3)]
    outcomes = sorted(Local(3, 1).run(runs, tmp_path / "out"), key=lambda o: o.config.seed)
    assert [outcome.reason.split(": ")[1] for outcome in outcomes] == ["GPU 3", "GPU 5", "GPU 3"]


@pytest.mark.slow
def test_a_run_whose_process_is_killed_goes_on_once_and_disturbs_no_other(
    tmp_path: Path, one_by_one: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        wait_until(lambda: epochs_done(tmp_path, TABLE[0]))
        os.kill(pid_of(TABLE[0]) or 0, signal.SIGKILL)

    with meanwhile(kill):
        outcomes = list(Local(2, 1).run(TABLE, tmp_path))
    assert {outcome.config for outcome in outcomes if outcome.state == "done"} == set(TABLE)
    told = capfd.readouterr().err
    assert (
        f"anodev2: {TABLE[0].name}: its process was killed (exit status -9); "
        "it goes on from its last checkpoint\n"
    ) in told
    assert all(told.count(f"{config.name} epoch 1/3") == 1 for config in TABLE)
    for config in TABLE:
        assert what_came_out(tmp_path, config) == what_came_out(one_by_one, config)


@pytest.mark.slow
def test_a_run_whose_process_is_killed_twice_has_failed(tmp_path: Path) -> None:
    def kill_twice() -> None:
        first = None
        for _ in range(2):
            wait_until(lambda: pid_of(TABLE[0]) not in (None, first))  # noqa: B023
            first = pid_of(TABLE[0])
            os.kill(first or 0, signal.SIGKILL)

    with meanwhile(kill_twice):
        outcomes = list(Local(1, 1).run(TABLE[:1], tmp_path))
    reason = "its process was killed (exit status -9), and again when it went on"
    assert outcomes == [Outcome(TABLE[0], "failed", reason)]


@dataclass
class Stopped:
    """A process with an engine, on a terminal of its own, that was signalled in mid-run."""

    status: int
    seconds: float
    terminal: str
    orphans: list[int]


COMMAND = """
import sys
from pathlib import Path
from anodev2.experiment.reproduction.local import Local
from digits import table
if __name__ == "__main__":
    try:
        list(Local(2, 1).run(table(epochs=3)[: int(sys.argv[2])], Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def stop(out: Path, runs: int, how: signal.Signals) -> Stopped:
    """Ctrl-C goes to all processes of the terminal, anything else to the engine's alone."""
    script = out / "command.py"
    script.write_text(COMMAND)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(script), str(out), str(runs)],
        stderr=theirs,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(theirs)
    wait_until(lambda: all(epochs_done(out, config) for config in TABLE[:runs]))
    children = children_of(process.pid)
    began = time.monotonic()
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    status = process.wait(timeout=60)
    seconds = time.monotonic() - began
    time.sleep(1)
    return Stopped(status, seconds, said(ours), [pid for pid in children if trains(pid)])


def children_of(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True)
    return [int(pid) for pid in found.stdout.split() if trains(int(pid))]


def trains(pid: int) -> bool:
    """Whether it is one of the engine's processes, and alive."""
    line = Path(f"/proc/{pid}/cmdline")
    return line.exists() and b"spawn_main" in line.read_bytes()


def said(terminal: int) -> str:
    os.set_blocking(terminal, False)
    text = b""
    try:
        while part := os.read(terminal, 65536):
            text += part
    except OSError:  # all that was written is read
        pass
    os.close(terminal)
    return text.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Stopped]]:
    out = tmp_path_factory.mktemp("interrupted")
    yield out, stop(out, 2, signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_at_once_without_a_word(
    interrupted: tuple[Path, Stopped],
) -> None:
    _, stopped = interrupted
    assert stopped.status == 130
    assert stopped.seconds < 5
    assert not stopped.orphans
    assert all(" epoch " in line for line in stopped.terminal.splitlines())


@pytest.mark.slow
def test_ctrl_c_is_for_the_engine_and_not_for_its_processes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = digits_run("baseline", 1)

    def interrupt() -> None:
        wait_until(lambda: pid_of(config))
        time.sleep(1)
        os.kill(pid_of(config) or 0, signal.SIGINT)

    with meanwhile(interrupt):
        outcomes = list(Local(1, 1).run([config], tmp_path))
    assert outcomes == [Outcome(config, "done")]
    assert all(" epoch " in line for line in capfd.readouterr().err.splitlines())


@pytest.mark.slow
def test_runs_side_by_side_tell_their_epochs_in_lines_on_a_terminal_too(
    interrupted: tuple[Path, Stopped],
) -> None:
    _, stopped = interrupted
    assert "\r" not in stopped.terminal
    assert all(f"{config.name} epoch 1/3: loss " in stopped.terminal for config in TABLE)


@pytest.mark.slow
def test_a_run_that_ctrl_c_stopped_goes_on_to_the_result_it_would_have_had(
    interrupted: tuple[Path, Stopped], one_by_one: Path
) -> None:
    out, config = interrupted[0], TABLE[0]
    before = epochs_done(out, config)
    assert list(Local(1, 1).run([config], out)) == [Outcome(config, "done")]
    assert epochs_done(out, config)[: len(before)] == before
    assert what_came_out(out, config) == what_came_out(one_by_one, config)


@pytest.mark.slow
def test_no_process_outlives_an_engine_that_is_killed(tmp_path: Path) -> None:
    stopped = stop(tmp_path, 1, signal.SIGKILL)
    assert stopped.status == -signal.SIGKILL
    assert not stopped.orphans


@pytest.mark.slow
def test_a_run_that_another_process_has_is_busy_and_none_goes_on_unheard(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / TABLE[0].name
    with claimed(folder):
        outcomes = Local(2, 1).run(TABLE, tmp_path)
        reason = f"'{folder}' is being trained by another process"
        assert next(outcomes) == Outcome(TABLE[0], "busy", reason)
        assert pid_of(TABLE[1])
        outcomes.close()  # type: ignore[attr-defined]
    assert pid_of(TABLE[1]) is None


def test_an_error_that_nobody_foresaw_fails_its_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory\ntried to allocate 1 TiB")

    monkeypatch.setattr(engine, "train_run", broken)
    reason = "RuntimeError: out of memory"
    assert carry_out(TABLE[0], tmp_path, 1) == Outcome(TABLE[0], "failed", reason)


@pytest.mark.parametrize(("patience", "state"), [(0, "busy"), (30, "done")])
def test_patience_waits_for_a_lock_that_lingers(
    patience: float, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([Busy("is being trained"), None])

    def lingering(*_: object, **__: object) -> None:
        if busy := next(tries):
            raise busy

    monkeypatch.setattr(engine, "train_run", lingering)
    assert carry_out(TABLE[0], tmp_path, 1, patience=patience).state == state
