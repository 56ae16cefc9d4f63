"""Files among the decoded images that are damaged or foreign: set aside, and decoded again."""

import errno
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.data.cache import cache_file, read_cache, write_cache
from anodev2.experiment.data.loading import load_data
from anodev2.usage import UsageError
from damage import Touching, flip_bit, forbid, truncate
from pictures import cached, refusal, write_image_folder, write_parquet
from tiny import tiny_data

pytestmark = pytest.mark.usefixtures("cache")


def changed(**other: np.ndarray) -> Callable[[bytes], bytes]:
    """Replaces some of the arrays in the file."""

    def change(content: bytes) -> bytes:
        stream = io.BytesIO()
        with np.load(io.BytesIO(content)) as arrays:
            np.savez(stream, **{**arrays, **other})
        return stream.getvalue()

    return change


def without(name: str) -> Callable[[bytes], bytes]:
    """Takes an array out of the file."""

    def change(content: bytes) -> bytes:
        stream = io.BytesIO()
        with np.load(io.BytesIO(content)) as arrays:
            np.savez(stream, **{other: arrays[other] for other in arrays if other != name})
        return stream.getvalue()

    return change


@pytest.mark.parametrize(
    "damage",
    [
        *(truncate, flip_bit, lambda _: b"", lambda _: b"junk"),
        *(without("train_labels"), without("key"), changed(key=np.array("0" * 32))),
        changed(train_images=np.zeros((9, 6, 8, 3))),
        changed(train_images=np.zeros((8, 6, 8, 3), dtype=np.uint8)),
        changed(train_images=np.zeros((9, 7, 8, 3), dtype=np.uint8)),
        changed(
            train_images=np.zeros((9, 6, 8, 1), dtype=np.uint8),
            test_images=np.zeros((6, 6, 8, 1), dtype=np.uint8),
        ),
        changed(test_labels=np.full(6, 3)),
        changed(test_labels=np.zeros(6)),
        changed(classes=np.arange(3)),
    ],
    ids=[
        *("truncated", "bit flipped", "empty", "junk", "no labels", "no key"),
        *("another key", "float images"),
        *("fewer images", "other size", "grey", "label without class", "float labels", "numbers"),
    ],
)
def test_a_damaged_or_foreign_cache_file_is_set_aside_and_the_images_decoded_again(
    tmp_path: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    write_parquet(tmp_path / "data", kind="PNG")
    first = load_data(str(tmp_path / "data"))
    (file,) = cached(cache)
    good = file.read_bytes()
    file.write_bytes(damage(good))
    capsys.readouterr()
    again = load_data(str(tmp_path / "data"))
    assert torch.equal(again.train.images, first.train.images)
    assert torch.equal(again.test.labels, first.test.labels)
    assert file.with_name(f"{file.name}.unreadable").read_bytes() == damage(good)
    with np.load(file) as arrays, np.load(io.BytesIO(good)) as before:
        assert all(np.array_equal(arrays[name], before[name]) for name in before)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "anodev2: " in line]
    assert f"'{file}' does not hold decoded images" in line
    assert line.endswith(f"set aside as '{file.name}.unreadable'")


def test_images_of_another_data_set_under_this_ones_name_are_set_aside(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_image_folder(tmp_path / "a")
    write_parquet(tmp_path / "b", kind="PNG")
    load_data(str(tmp_path / "a"))
    (foreign,) = cached(cache)
    good = load_data(str(tmp_path / "b"))
    (file,) = {*cached(cache)} - {foreign}
    file.write_bytes(foreign.read_bytes())
    capsys.readouterr()
    again = load_data(str(tmp_path / "b"))
    assert again.classes == good.classes
    assert torch.equal(again.train.images, good.train.images)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "anodev2: " in line]
    assert line == (
        f"anodev2: '{file}' does not hold decoded images (it is of other images); set aside as "
        f"'{file.name}.unreadable'"
    )


def test_a_second_damaged_cache_file_is_set_aside_beside_the_first(
    tmp_path: Path, cache: Path
) -> None:
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    (file,) = cached(cache)
    for content in ("first", "second", "third"):
        file.write_text(content)
        load_data(str(tmp_path / "data"))
    aside = [file.with_name(f"{file.name}.unreadable{more}") for more in ("", "-2", "-3")]
    assert [path.read_text() for path in aside] == ["first", "second", "third"]


def test_code_in_a_cache_file_is_not_executed(tmp_path: Path, cache: Path) -> None:
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    (file,) = cached(cache)
    evil = np.array([Touching(tmp_path / "executed")], dtype=object)
    file.write_bytes(changed(classes=evil)(file.read_bytes()))
    load_data(str(tmp_path / "data"))
    assert not (tmp_path / "executed").exists()
    with np.load(file.with_name(f"{file.name}.unreadable"), allow_pickle=True) as arrays:
        arrays["classes"]
    assert (tmp_path / "executed").exists()  # so it was code


def test_a_cache_file_that_may_not_be_read_is_refused_and_left_where_it_is(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    (file,) = cached(cache)
    forbid(file.name, monkeypatch)
    assert refusal(tmp_path / "data") == f"cannot read '{file}': Permission denied"
    assert list(cache.iterdir()) == [file]


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error")])
def test_a_cache_file_that_is_good_stays_where_reading_it_fails(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = cache_file("set", b"content")
    write_cache(path, tiny_data())
    content = path.read_bytes()

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(np, "load", failing)
    with pytest.raises((MemoryError, UsageError)):
        read_cache(path, "set")
    assert path.read_bytes() == content


def test_a_damaged_file_that_another_process_set_aside_meanwhile_is_not_missed(
    tmp_path: Path,
) -> None:
    set_aside(Damaged(tmp_path / "gone.npz", "is damaged"))
    assert list(tmp_path.iterdir()) == []
