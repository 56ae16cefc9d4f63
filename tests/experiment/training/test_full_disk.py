"""What cannot be written: one line, the last good state, and a run that goes on from it."""

import csv
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.summary.writer.record_writer import RecordWriter

from anodev2.cli import main
from anodev2.experiment import compare
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.training import checkpoints, run
from anodev2.experiment.training.checkpoints import model_weights, read_checkpoint
from anodev2.experiment.training.run import train_run
from anodev2.experiment.training.task import Classification
from anodev2.experiment.whole_file import UNFINISHED, whole_file
from tiny import tiny_config, tiny_data

FOLDER = Path("runs/resnet4-anodev2-2-seed0")
LAST = FOLDER / "checkpoints/last.ckpt"
FULL = OSError(ENOSPC, "No space left on device")


@pytest.fixture(autouse=True, scope="module")
def _steps_of_32_tiny_images() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "anodev2.experiment.config.recipe_for",
            lambda *a: replace(recipe_for(*a), batch_size=32),
        )
        patch.setattr(run, "load_data", lambda name: tiny_data())
        patch.setattr(compare, "load_data", lambda name: tiny_data())
        yield


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a run whose disk was never full."""
    out = tmp_path_factory.mktemp("through")
    train_run(tiny_config(data="digits"), out, resume=False, data=tiny_data())
    return model_weights(out / LAST)


def command(name: str, out: Path, *more: str) -> int:
    """The exit status of a command that trains three epochs."""
    chosen = "--method" if name == "train" else "--methods"
    options = [chosen, "anodev2-2", "--epochs", "3", "--precision", "float32", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        main([name, *options, *more])
    return int(stop.value.code or 0)


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """Standard error without the lines of epochs: one line."""
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if not line.startswith("resnet4-")]
    return line


def assert_goes_on(
    out: Path, through: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command with --resume ends in the same weights, and says nothing more."""
    assert not list(out.glob(f"**/{UNFINISHED}*"))
    assert command("train", out, "--resume") == 0
    weights = model_weights(out / LAST)
    assert weights.keys() == through.keys()
    assert all(torch.equal(weights[name], through[name]) for name in through)
    assert "anodev2: " not in capsys.readouterr().err


def failing_from(time: int, plain: Callable[..., Any], *, half: bool = False) -> Callable[..., Any]:
    """A function that raises that the disk is full at its call of that number, from 1, and after.

    Args:
        time: number of the first call that fails.
        plain: what is called before, and its data.
        half: write half of the bytes that the second argument is before failing.
    """
    calls = 0

    def failing(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < time:
            return plain(*arguments, **settings)
        if half:
            plain(arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise FULL

    return failing


@pytest.mark.parametrize(
    ("owner", "name", "time", "half", "epoch", "file"),
    [
        (csv.DictWriter, "writerows", 2, False, 0, r"/metrics\.csv"),
        (checkpoints.torch, "save", 3, False, 0, ""),
        (Path, "write_bytes", 3, True, 0, r"/checkpoints/(best|last)\.ckpt"),
        (Path, "write_text", 2, True, 2, r"/result\.json"),
    ],
    ids=["metrics", "torch.save", "checkpoint", "result"],
)
def test_a_full_disk_ends_the_run_in_one_line_and_leaves_the_last_good_state(
    tmp_path: Path,
    through: dict[str, torch.Tensor],
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    time: int,
    half: bool,
    epoch: int,
    file: str,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, failing_from(time, getattr(owner, name), half=half))
        assert command("train", tmp_path) == 1
    assert re.fullmatch(
        rf"anodev2: cannot write to '{re.escape(str(tmp_path / FOLDER))}{file}' \(No space left on "
        r"device\): the last good state is kept, and the same command goes on from it "
        r"\('train' with --resume\)",
        complaint(capsys),
    )
    assert read_checkpoint(tmp_path / LAST)["epoch"] == epoch
    assert not (tmp_path / FOLDER / "result.json").exists()
    assert_goes_on(tmp_path, through, capsys)


@pytest.mark.parametrize("time", [1, 5, 40])
def test_a_full_disk_met_by_tensorboards_thread_ends_the_run_in_one_line(
    tmp_path: Path,
    through: dict[str, torch.Tensor],
    capsys: pytest.CaptureFixture[str],
    time: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "write", failing_from(time, RecordWriter.write))
        patch.setattr(threading, "excepthook", threading.__excepthook__)  # pytest has its own
        assert command("train", tmp_path) == 1
    assert "(No space left on device): the last good state is kept" in complaint(capsys)
    assert not (tmp_path / FOLDER / "result.json").exists()
    assert_goes_on(tmp_path, through, capsys)


def test_a_full_disk_ends_a_comparison_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(out: Path, *_: Any) -> None:
        with whole_file(out / "report.md"):
            raise FULL

    monkeypatch.setattr(compare, "write_report", failing)
    assert command("compare", tmp_path) == 1
    report = tmp_path / "report.md"
    assert complaint(capsys).startswith(f"anodev2: cannot write to '{report}' (No space left")


def test_other_errors_of_the_program_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Classification, "training_step", broken)
    with pytest.raises(ZeroDivisionError):
        train_run(tiny_config(), tmp_path, resume=False, data=tiny_data())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"mount: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all that is left of a disk."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_disk_filled_in_the_second_epoch_ends_the_run_in_one_line_and_emptied_it_goes_on(
    small_disk: Path,
    through: dict[str, torch.Tensor],
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = Classification.on_train_epoch_start

    def filling(self: Classification) -> None:
        plain(self)
        if self.current_epoch == 1:
            fill(small_disk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Classification, "on_train_epoch_start", filling)
        assert command("train", small_disk) == 1
    assert "(No space left on device): the last good state is kept" in complaint(capsys)
    assert read_checkpoint(small_disk / LAST)["epoch"] == 0
    assert len((small_disk / FOLDER / "metrics.csv").read_text().splitlines()) == 2
    assert command("train", small_disk, "--resume") == 1  # still full
    assert "(No space left on device): the last good state is kept" in complaint(capsys)
    (small_disk / "filler").unlink()
    assert_goes_on(small_disk, through, capsys)


def test_an_out_on_a_full_disk_is_refused_in_one_line(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(small_disk)
    assert command("train", small_disk) == 2
    assert complaint(capsys) == (
        f"anodev2: cannot write to '{small_disk / FOLDER}' (No space left on device): expected "
        "--out to be a folder, or a place for one"
    )


@pytest.mark.parametrize("begun", [False, True], ids=["nothing there", "an unfinished run there"])
def test_an_out_on_a_read_only_place_is_refused_in_one_line(
    small_disk: Path, capsys: pytest.CaptureFixture[str], begun: bool
) -> None:
    if begun:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv.DictWriter, "writerows", failing_from(1, print))
            assert command("train", small_disk) == 1
        capsys.readouterr()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert command("train", small_disk, *(["--resume"] if begun else [])) == 2
    assert complaint(capsys) == (
        f"anodev2: cannot write to '{small_disk / FOLDER}' (Read-only file system): expected "
        "--out to be a folder, or a place for one"
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc, where nobody may write")
def test_an_out_where_nobody_may_write_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("train", Path("/proc/self/out")) == 2
    line = complaint(capsys)
    assert line.startswith(f"anodev2: cannot write to '/proc/self/out/{FOLDER}' (")
    assert line.endswith("expected --out to be a folder, or a place for one")
