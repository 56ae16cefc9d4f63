"""Runs stopped from outside, as processes: SIGKILL and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from anodev2.experiment.folder import LOCK, claimed, run_state
from anodev2.experiment.training.checkpoints import read_checkpoint
from anodev2.experiment.whole_file import UNFINISHED
from terminal import heed_interrupts
from tiny import tiny_config

RUN = Path("runs/resnet4-anodev2-2-seed0")


def command(out: Path, *more: str) -> list[str]:
    options = ["--method", "anodev2-2", "--epochs", "5", "--out", str(out), *more]
    return [sys.executable, "-m", "anodev2.cli", "train", *options]


def stop_in_third_epoch(out: Path, how: signal.Signals) -> tuple[int, str]:
    """Start a run, signal it once two epochs are written; its status and standard error."""
    process = subprocess.Popen(
        command(out), stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    metrics = out / RUN / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and len(metrics.read_text().splitlines()) == 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    assert len(metrics.read_text().splitlines()) == 3
    assert last(out)["epoch"] == 1
    return process.returncode, error


def last(out: Path) -> dict[str, object]:
    return read_checkpoint(out / RUN / "checkpoints/last.ckpt")


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The last checkpoint of a run that nobody stopped."""
    out = tmp_path_factory.mktemp("through")
    subprocess.run(command(out), check=True, capture_output=True)
    return last(out)


def assert_same_network(a: dict[str, object], b: dict[str, object]) -> None:
    weights, others = a["state_dict"], b["state_dict"]
    assert isinstance(weights, dict)
    assert isinstance(others, dict)
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.slow
def test_a_run_killed_in_its_third_epoch_and_resumed_ends_with_the_same_weights(
    tmp_path: Path, through: dict[str, object]
) -> None:
    status, _ = stop_in_third_epoch(tmp_path, signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert not (tmp_path / RUN / "result.json").exists()
    subprocess.run(command(tmp_path, "--resume"), check=True, capture_output=True)
    assert_same_network(last(tmp_path), through)


@pytest.mark.slow
def test_ctrl_c_ends_with_one_line_and_leaves_a_resumable_run(
    tmp_path: Path, through: dict[str, object]
) -> None:
    status, error = stop_in_third_epoch(tmp_path, signal.SIGINT)
    assert status == 130
    assert error.splitlines()[-1] == (
        "anodev2: interrupted; --resume goes on after the last finished epoch"
    )
    assert "Traceback" not in error
    subprocess.run(command(tmp_path, "--resume"), check=True, capture_output=True)
    assert_same_network(last(tmp_path), through)


@pytest.mark.slow
def test_runs_killed_at_twenty_random_moments_and_in_all_writing_end_as_one_never_killed(
    tmp_path: Path,
) -> None:
    script = [sys.executable, str(Path(__file__).with_name("killed.py")), str(tmp_path)]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # that of the tests
    done = subprocess.run(
        script, env={**os.environ, **path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"].count("at random") == 20
    assert len(found["kills"]) == 20 + 5 * 3  # each place in the writing of each file
    assert found["left"] > 0  # half files, hidden, of which none is left at the end
    assert found["differing"] == []


def test_half_files_of_a_killed_process_are_removed_where_a_run_is_claimed_and_no_others(
    tmp_path: Path,
) -> None:
    kept = [tmp_path / "config.yaml", tmp_path / ".hidden", tmp_path / "checkpoints/last.ckpt"]
    half = [tmp_path / f"{UNFINISHED}config-a.yaml", kept[2].with_name(f"{UNFINISHED}last-b.ckpt")]
    kept[2].parent.mkdir()
    for path in (*kept, *half):
        path.touch()
    with claimed(tmp_path):
        found = {path for path in tmp_path.glob("**/*") if path.is_file()}
    assert found == {*kept, tmp_path / LOCK}


@pytest.mark.parametrize("left", [[], [LOCK], [LOCK, f"{UNFINISHED}config-a.yaml"]])
def test_a_folder_of_a_process_killed_before_its_run_began_holds_no_run(
    tmp_path: Path, left: list[str]
) -> None:
    folder = tmp_path / "runs" / tiny_config().name
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).touch()
    assert run_state(tmp_path, tiny_config()) == "absent"
