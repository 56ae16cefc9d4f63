"""Decoded images on disk: when they are used again, and how they are written."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from anodev2.experiment.data.cache import DAY, cache_file, write_cache
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.whole_file import UNFINISHED
from anodev2.usage import UsageError
from pictures import (
    cached,
    encoded,
    refusal,
    write_image_folder,
    write_parquet,
    write_rows,
)
from tiny import tiny_data

pytestmark = pytest.mark.usefixtures("cache")


def test_a_second_load_gives_what_the_first_gave(tmp_path: Path, cache: Path) -> None:
    write_parquet(tmp_path / "data")
    first = load_data(str(tmp_path / "data"))
    second = load_data(str(tmp_path / "data"))
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.labels, second.test.labels)
    settings = ("name", "classes", "mean", "std", "encoding")
    assert all(getattr(first, field) == getattr(second, field) for field in settings)


def test_a_second_load_does_not_import_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "datasets", None)  # importing it now fails
    assert len(load_data(str(tmp_path / "data")).train) == 9


def test_reading_the_loader_imports_none_of_the_slow_libraries() -> None:
    code = (
        "import sys, anodev2.experiment.data.loading; "
        "print([name for name in ('datasets', 'sklearn', 'PIL') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"


def test_one_file_is_left_in_the_cache(tmp_path: Path, cache: Path) -> None:
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    assert len(cached(cache)) == len(list(cache.iterdir())) == 1


def test_a_changed_byte_gives_other_data_though_size_and_time_are_as_before(
    tmp_path: Path,
) -> None:
    write_image_folder(tmp_path / "data", splits=("train",))
    file = tmp_path / "data/train/cat/0.png"
    Image.new("RGB", (8, 6), (1, 2, 3)).save(file, compress_level=0)
    before, times = load_data(str(tmp_path / "data")), file.stat()
    Image.new("RGB", (8, 6), (1, 2, 4)).save(file, compress_level=0)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    after = load_data(str(tmp_path / "data"))
    changed = torch.cat([before.train.images, before.test.images]) != torch.cat(
        [after.train.images, after.test.images]
    )
    assert changed.sum() == 8 * 6


def test_changed_parquet_gives_other_data_though_size_and_time_are_as_before(
    tmp_path: Path,
) -> None:
    file = tmp_path / "data/train.parquet"
    flat = [encoded(Image.new("RGB", (8, 6), (value, 2, 3)), "BMP") for value in (1, 4)]
    write_rows(file, [flat[0]] * 10, [0] * 10)
    times = file.stat()
    load_data(str(tmp_path / "data"))
    write_rows(file, [flat[1]] * 10, [0] * 10)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert load_data(str(tmp_path / "data")).train.images[:, 0].unique().tolist() == [4]


def test_a_renamed_class_gives_other_data(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    for split in ("train", "test"):
        (tmp_path / "data" / split / "cat").rename(tmp_path / "data" / split / "cow")
    assert load_data(str(tmp_path / "data")).classes == ("cow", "dog")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError], ids=["killed", "disk full"])
def test_nothing_is_left_where_writing_breaks_off(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: type[BaseException],
) -> None:
    def half(file: Path, **_: np.ndarray) -> None:
        file.write_bytes(b"half")
        raise failure(28, "No space left on device")

    write_parquet(tmp_path / "data")
    monkeypatch.setattr(np, "savez", half)
    with pytest.raises((failure, UsageError)):
        load_data(str(tmp_path / "data"))
    assert list(cache.iterdir()) == []


def test_what_a_killed_process_left_goes_after_a_day_and_what_another_writes_now_stays(
    tmp_path: Path, cache: Path
) -> None:
    write_parquet(tmp_path / "data")
    cache.mkdir()
    left, written = (cache / f"{UNFINISHED}images-{name}.npz" for name in ("left", "written"))
    for path, hours in ((left, 25), (written, 1)):
        path.touch()
        os.utime(path, (time.time() - 3600 * hours,) * 2)
    load_data(str(tmp_path / "data"))
    assert not left.exists()
    assert written.exists()


def test_the_final_name_appears_only_when_the_file_is_whole(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    save = np.savez

    def watched(file: Path, **arrays: np.ndarray) -> None:
        save(file, **arrays)
        seen.extend(path for path in cached(cache) if path != file)

    write_parquet(tmp_path / "data")
    monkeypatch.setattr(np, "savez", watched)
    load_data(str(tmp_path / "data"))
    assert seen == []


def test_what_datasets_prepared_for_a_killed_process_goes_after_a_day(cache: Path) -> None:
    for name, age in (("old", DAY + 60), ("new", 60)):
        folder = cache / f"{UNFINISHED}{name}"
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"rows")
        os.utime(folder, times=(time.time() - age,) * 2)
    write_cache(cache_file("set", b"content"), tiny_data())
    assert [path.name for path in cache.glob(f"{UNFINISHED}*")] == [f"{UNFINISHED}new"]


def test_a_cache_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "data")
    (tmp_path / "file").touch()
    monkeypatch.setenv("ANODEV2_CACHE", str(tmp_path / "file/cache"))
    assert refusal(tmp_path / "data") == (
        f"cannot write to the cache folder '{tmp_path}/file/cache': Not a directory; "
        "set ANODEV2_CACHE to a folder with room that can be written to"
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ANODEV2_CACHE": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"ANODEV2_CACHE": "", "XDG_CACHE_HOME": "xdg"}, "xdg/anodev2"),
        ({"ANODEV2_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "."}, ".cache/anodev2"),
    ],
)
def test_the_cache_lies_where_the_environment_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value and str(tmp_path / "caches" / value))
    write_parquet(tmp_path / "data")
    load_data(str(tmp_path / "data"))
    assert len(cached(tmp_path / "caches" / expected)) == 1
