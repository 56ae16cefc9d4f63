"""Data that cannot be trained on: each is refused in one line that helps."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from huggingface_hub.errors import RepositoryNotFoundError

from pictures import encoded, picture, refusal, write_image_folder, write_parquet, write_rows

pytestmark = pytest.mark.usefixtures("cache")


def test_a_misspelt_word_is_answered_with_the_nearest() -> None:
    assert refusal("digit") == (
        "unknown data 'digit': expected one of digits, cifar10, ./FOLDER, OWNER/NAME; "
        "did you mean 'digits'?"
    )


def test_no_name_at_all_is_refused() -> None:
    assert refusal("").startswith("unknown data '': expected one of digits, cifar10,")


def test_a_missing_folder_is_answered_with_the_nearest_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    assert refusal(tmp_path / "picture") == (
        f"no such folder '{tmp_path}/picture': expected a folder of images; "
        f"did you mean '{tmp_path}/pictures'?"
    )


@pytest.mark.parametrize("path", ["./none", "../none", "~none/none", "none/of/these", "/none"])
def test_what_looks_like_a_path_is_taken_for_a_folder(path: str) -> None:
    assert refusal(path).startswith(f"no such folder '{path}': expected a folder of images")


def test_a_file_is_refused_with_its_folder(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data")
    file = tmp_path / "data/train-00000-of-00001.parquet"
    assert refusal(file) == (
        f"'{file}' is a file: expected the folder of a data set, such as '{tmp_path}/data'"
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert refusal(tmp_path / "data") == (
        f"the folder '{tmp_path}/data' holds no data: expected parquet files, or images in one "
        "folder per class such as train/cat/1.png"
    )


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/notes.txt").write_text("no image\n")
    assert refusal(tmp_path / "data") == (
        "'data' has no images: expected an image column, found text"
    )


def test_a_folder_without_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    picture(0).save(tmp_path / "data/0.png")
    assert refusal(tmp_path / "data") == (
        "'data' has no labels: expected class labels or an integer column called "
        "label, labels, fine_label, found image"
    )


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.parquet").write_bytes(b"junk")
    assert refusal(tmp_path / "data").startswith(
        f"'{tmp_path}/data' cannot be opened: expected a folder that datasets.load_dataset opens ("
    )


def test_splits_that_cannot_be_told_apart_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image_folder(tmp_path / "data")
    splits = datasets.load_dataset(str(tmp_path / "data"), cache_dir=str(tmp_path / "arrow"))
    odd = {"train": splits["train"], "extra": splits["test"]}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: odd)
    assert refusal(tmp_path / "data") == (
        "'data' has the splits train, extra: expected train with test or validation, "
        "or one split alone"
    )


def test_two_sizes_in_a_split_are_named_with_their_places(tmp_path: Path) -> None:
    images = [encoded(picture(seed), "PNG") for seed in range(3)]
    images.append(encoded(picture(3, size=(5, 7)), "PNG"))
    write_rows(tmp_path / "data/train.parquet", images, [0] * 4)
    assert refusal(tmp_path / "data") == (
        "image 3 of the split 'train' of 'data' is 5x7, image 0 is 8x6: expected images of one size"
    )


def test_two_sizes_in_two_splits_are_named_with_their_counts(tmp_path: Path) -> None:
    write_rows(tmp_path / "data/train.parquet", [encoded(picture(0), "PNG")] * 3, [0] * 3)
    small = encoded(picture(1, size=(4, 4)), "PNG")
    write_rows(tmp_path / "data/test.parquet", [small] * 2, [0] * 2)
    assert refusal(tmp_path / "data") == (
        "'data' has 3 images of 8x6 in train, 2 images of 4x4 in test: expected images of one size"
    )


@pytest.mark.parametrize("content", [None, b"junk", "cut"], ids=["missing", "junk", "cut off"])
def test_a_damaged_image_is_named_with_its_place(tmp_path: Path, content: bytes | None) -> None:
    whole = encoded(picture(0), "PNG")
    damaged = whole[:60] if content == "cut" else content
    write_rows(tmp_path / "data/train.parquet", [whole, damaged], [0, 0])
    assert refusal(tmp_path / "data").startswith(
        "image 1 of the split 'train' of 'data' cannot be decoded: expected an encoded image ("
    )


@pytest.mark.parametrize("label", [None, -1], ids=["missing", "negative"])
def test_an_image_without_a_label_is_named_with_its_place(
    tmp_path: Path, label: int | None
) -> None:
    write_rows(tmp_path / "data/train.parquet", [encoded(picture(0), "PNG")] * 2, [0, label])
    assert refusal(tmp_path / "data") == (
        "image 1 of the split 'train' of 'data' has the label -1: expected 0 to 2"
    )


def test_too_few_images_to_hold_out_a_fifth_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "data/train.parquet", [encoded(picture(0), "PNG")] * 2, [0, 1])
    assert refusal(tmp_path / "data").startswith(
        "2 images in one split: expected enough to hold out a fifth for testing with every class"
    )


def test_an_unreachable_hub_is_one_line_within_seconds(tmp_path: Path) -> None:
    code = (
        "import datasets, time\n"
        "from anodev2.experiment.data.loading import load_data\n"
        "start = time.perf_counter()\n"
        "try:\n    load_data('uoft-cs/cifar10')\n"
        "except ValueError as error:\n    print(error)\n"
        "print(time.perf_counter() - start)\n"
    )
    surroundings = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | surroundings, capture_output=True, text=True
    )
    message, seconds = run.stdout.splitlines()
    assert message == (
        "the hub cannot be reached for 'uoft-cs/cifar10', and there is no folder of that name: "
        "expected a network, or --data PATH with the folder of a local copy"
    )
    assert run.stderr == ""
    assert float(seconds) < 5


def test_what_cannot_be_opened_leaves_no_line_but_the_error(tmp_path: Path) -> None:
    for name in ("good", "junk"):
        write_parquet(tmp_path / name)
    (tmp_path / "junk/train-00000-of-00001.parquet").write_bytes(b"junk")
    code = (
        "import sys\n"
        "from anodev2.experiment.data.loading import load_data\n"
        "load_data(sys.argv[1])\n"
        "try:\n    load_data(sys.argv[2])\n"
        "except ValueError:\n    print('refused')\n"
    )
    folders = [str(tmp_path / name) for name in ("good", "junk")]
    run = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("refused\n", "")


def test_a_refusal_leaves_the_settings_of_datasets_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]

    def settings() -> list[object]:
        bars = datasets.are_progress_bars_disabled()
        return [datasets.config.HF_HUB_OFFLINE, bars, *(logger.level for logger in loggers)]

    def unreachable(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    datasets.enable_progress_bars()
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    refusal("owner/name")
    assert settings() == [False, False, logging.WARNING, logging.WARNING]


def test_a_data_set_the_hub_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise RepositoryNotFoundError("404", response=SimpleNamespace(headers={}, request=None))

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", missing)
    assert refusal("owner/none") == (
        "the hub has no data set 'owner/none' that is open to you, and there is no folder of that "
        "name: expected owner/name of the hub, such as uoft-cs/cifar10"
    )
