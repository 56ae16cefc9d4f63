"""Results and checkpoints that are not what they should be: set aside, and trained without."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from anodev2.experiment import conditions
from anodev2.experiment.conditions import report_conditions
from anodev2.experiment.folder import Busy, claimed
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.result import Result
from anodev2.experiment.training.checkpoints import (
    WholeCheckpointIO,
    checkpoint_to_resume,
    model_weights,
    read_checkpoint,
)
from anodev2.experiment.training.run import train_run
from anodev2.experiment.training.task import Classification
from anodev2.usage import UsageError
from damage import BAD_CHECKPOINTS, BAD_RESULTS, Touching, forbid, resaved, truncate, widen
from tiny import stop_in_epoch, tiny_config, tiny_data

FOLDER = Path("runs/resnet4-anodev2-2-seed0")
LAST = FOLDER / "checkpoints/last.ckpt"
BEST = FOLDER / "checkpoints/best.ckpt"
RESULT = FOLDER / "result.json"


@pytest.fixture(autouse=True, scope="module")
def _steps_of_32_images() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "anodev2.experiment.config.recipe_for",
            lambda *a: replace(recipe_for(*a), batch_size=32),
        )
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    train_run(tiny_config(), out, resume=False, data=tiny_data())
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped in its third epoch, whose best epoch is made the first."""
    out = tmp_path_factory.mktemp("stopped")
    for epoch in (1, 2):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_in_epoch(epoch, patch)
            train_run(tiny_config(), out, resume=None, data=tiny_data())
        if epoch == 1:
            first = (out / LAST).read_bytes()
    (out / BEST).write_bytes(first)
    return out


def copied(source: Path, tmp_path: Path) -> Path:
    shutil.copytree(source / "runs", tmp_path / "runs")
    return tmp_path


def resumed(out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[int]]:
    """The result of going on, and the epochs that were trained for it, counted from 0."""
    epochs: list[int] = []
    plain = Classification.on_train_epoch_start

    def noted(self: Classification) -> None:
        epochs.append(self.current_epoch)
        plain(self)

    monkeypatch.setattr(Classification, "on_train_epoch_start", noted)
    return train_run(tiny_config(), out, resume=True, data=tiny_data()), epochs


def assert_same_run(out: Path, other: Path) -> None:
    weights, others = model_weights(out / LAST), model_weights(other / LAST)
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert untimed(Result.read(out / RESULT)) == untimed(Result.read(other / RESULT))


def untimed(result: Result) -> dict[str, Any]:
    """A result without times and environment."""
    rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in result.epochs]
    kept = replace(result, epochs=rows, seconds_per_step=None, environment={})
    return asdict(kept)


def assert_set_aside(file: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has a new name, and one line says so."""
    aside = file.with_name(f"{file.name}.unreadable")
    assert aside.read_bytes() == content
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("anodev2: ")]
    assert [line for line in lines if f"'{file}'" in line] == lines
    assert len(lines) == 1
    assert lines[0].endswith(f"; set aside as '{aside.name}'")


@pytest.mark.parametrize("damage", BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_a_bad_result_is_set_aside_and_the_same_result_made_without_training(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    out = copied(finished, tmp_path)
    content = damage((out / RESULT).read_bytes())
    (out / RESULT).write_bytes(content)
    _, epochs = resumed(out, monkeypatch)
    assert epochs == []
    assert_set_aside(out / RESULT, content, capsys)
    assert_same_run(out, finished)


@pytest.mark.parametrize("damage", BAD_CHECKPOINTS.values(), ids=BAD_CHECKPOINTS)
def test_a_bad_last_checkpoint_is_set_aside_and_the_run_goes_on_from_its_best(
    stopped: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    out = copied(stopped, tmp_path)
    content = damage((out / LAST).read_bytes())
    (out / LAST).write_bytes(content)
    _, epochs = resumed(out, monkeypatch)
    assert epochs == [1, 2]
    assert_set_aside(out / LAST, content, capsys)
    assert_same_run(out, finished)


def test_where_both_checkpoints_are_bad_both_are_set_aside_and_the_run_starts_again(
    stopped: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = copied(stopped, tmp_path)
    for file in (LAST, BEST):
        (out / file).write_bytes(b"junk")
    _, epochs = resumed(out, monkeypatch)
    assert epochs == [0, 1, 2]
    for file in (LAST, BEST):
        assert (out / file).with_name(f"{file.name}.unreadable").read_bytes() == b"junk"
    assert_same_run(out, finished)


def test_a_bad_best_checkpoint_is_set_aside_though_the_last_is_good(
    stopped: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = copied(stopped, tmp_path)
    (out / BEST).write_bytes(b"junk")
    _, epochs = resumed(out, monkeypatch)
    assert epochs == [2]
    assert_set_aside(out / BEST, b"junk", capsys)
    assert_same_run(out, finished)


def test_a_checkpoint_of_a_version_that_did_not_name_its_run_is_gone_on_from(
    stopped: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = copied(stopped, tmp_path)
    older = resaved(lambda found: found.pop("run"))((out / LAST).read_bytes())
    (out / LAST).write_bytes(older)
    _, epochs = resumed(out, monkeypatch)
    assert epochs == [2]
    assert_same_run(out, finished)


def test_code_in_a_checkpoint_is_not_executed(
    stopped: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, executed = copied(stopped, tmp_path), tmp_path / "executed"
    add = resaved(lambda found: found.update(code=Touching(executed)))
    content = add((out / LAST).read_bytes())
    (out / LAST).write_bytes(content)
    with pytest.raises(UsageError, match="holds more than a checkpoint's tensors"):
        WholeCheckpointIO(tiny_config()).load_checkpoint(out / LAST, weights_only=False)
    resumed(out, monkeypatch)
    assert not executed.exists()
    assert_set_aside(out / LAST, content, capsys)
    assert_same_run(out, finished)
    torch.load((out / LAST).with_name("last.ckpt.unreadable"), weights_only=False)
    assert executed.exists()  # so it was code


def test_what_was_set_aside_before_is_kept(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    for content in ("first", "second", "third"):
        (out / RESULT).write_text(content)
        train_run(tiny_config(), out, resume=True, data=tiny_data())
    aside = [out / FOLDER / f"result.json.unreadable{more}" for more in ("", "-2", "-3")]
    assert [path.read_text() for path in aside] == ["first", "second", "third"]


def test_nothing_is_set_aside_while_another_process_has_the_run(
    finished: Path, tmp_path: Path
) -> None:
    out = copied(finished, tmp_path)
    (out / RESULT).write_text("junk")
    with claimed(out / FOLDER), pytest.raises(Busy):
        train_run(tiny_config(), out, resume=True, data=tiny_data())
    assert (out / RESULT).read_text() == "junk"


def test_another_process_of_the_run_passes_over_a_bad_checkpoint_and_leaves_it(
    stopped: Path, tmp_path: Path
) -> None:
    out = copied(stopped, tmp_path)
    state = read_checkpoint(out / LAST)["state_dict"]
    (out / LAST).write_bytes(b"junk")
    found = checkpoint_to_resume((out / LAST).parent, tiny_config(), state, claimed=False)
    assert found == out / BEST
    assert (out / LAST).read_bytes() == b"junk"


def test_another_process_of_the_run_passes_over_a_checkpoint_set_aside_while_it_looks(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = copied(stopped, tmp_path)
    state, plain = read_checkpoint(out / LAST)["state_dict"], Path.read_bytes

    def late(self: Path) -> bytes:
        if self == out / LAST:
            self.rename(self.with_name("last.ckpt.unreadable"))
        return plain(self)

    monkeypatch.setattr(Path, "read_bytes", late)
    found = checkpoint_to_resume((out / LAST).parent, tiny_config(), state, claimed=False)
    assert found == out / BEST


def test_nothing_is_set_aside_where_the_run_is_not_to_be_resumed(
    finished: Path, tmp_path: Path
) -> None:
    out = copied(finished, tmp_path)
    (out / RESULT).write_text("junk")
    with pytest.raises(UsageError, match="holds an unfinished run: --resume it"):
        train_run(tiny_config(), out, resume=False, data=tiny_data())
    assert (out / RESULT).read_text() == "junk"


@pytest.mark.parametrize("file", [RESULT, LAST, BEST])
def test_a_file_that_may_not_be_read_is_refused_and_left_where_it_is(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    out = copied(finished, tmp_path)
    (out / RESULT).write_text("junk")
    before = sorted(path.name for path in out.glob("**/*"))
    forbid(file.name, monkeypatch)
    with pytest.raises(UsageError, match=rf"cannot read '.*{file.name}': Permission denied"):
        train_run(tiny_config(), out, resume=True, data=tiny_data())
    assert sorted(path.name for path in out.glob("**/*")) == before


@pytest.mark.parametrize("damage", [truncate, resaved(widen)], ids=["cut off", "other shapes"])
def test_a_command_that_only_reads_refuses_a_bad_checkpoint_and_leaves_it_where_it_is(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
) -> None:
    out = copied(finished, tmp_path)
    (out / LAST).write_bytes(damage((out / LAST).read_bytes()))
    monkeypatch.setattr(conditions, "load_data", lambda name: tiny_data())
    with pytest.raises(UsageError, match=r"last\.ckpt' is (not a whole|a) checkpoint"):
        report_conditions(out / FOLDER, None, 8)
    assert not list(out.glob("**/*.unreadable"))


def test_a_checkpoint_names_its_run(finished: Path) -> None:
    assert read_checkpoint(finished / LAST)["run"] == asdict(tiny_config())
