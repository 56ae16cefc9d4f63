"""The data a run trains on: scikit-learn's digits, a folder of images, a set of the hub."""

import os
import re
import tempfile
from difflib import get_close_matches
from pathlib import Path

import torch
from torch.nn import functional

from anodev2.experiment.data.cache import (
    cache_file,
    cache_folder,
    folder_digest,
    read_cache,
    write_cache,
)
from anodev2.experiment.data.images import ImageData, Split, hold_out, measured
from anodev2.experiment.data.origin import open_folder, open_hub
from anodev2.experiment.whole_file import UNFINISHED
from anodev2.usage import UsageError, check_choice

HUB_CIFAR10 = "uoft-cs/cifar10"


def load_data(data: str) -> ImageData:
    """Load a labelled image data set, as RGB, in memory.

    Images are decoded once and then read from a cache (`$ANODEV2_CACHE`, else the user's
    cache folder) for as long as their encoded bytes stay the same. Without a `test` split
    `validation` is the test; a data set of one split has a fixed fifth held out.

    Args:
        data: `digits` (1,797 real 8x8 digits enlarged to 32x32, needs no network),
            `cifar10` (from the hub), the path of a folder that `datasets.load_dataset`
            opens (parquet files, or images in one folder per class), or `owner/name` of
            the hub. The words win over folders of the same name: write `./digits`.

    Returns:
        The data set; its images all have one size.

    Raises:
        UsageError: no such data, or data that holds no labelled images of one size.
    """
    if data == "digits":
        return _digits()
    if data == "cifar10":
        return _load_hub(HUB_CIFAR10)
    folder = _folder(data)
    if folder is not None:
        return _load_folder(folder)
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", data):
        return _load_hub(data)
    # The two placeholders never get here themselves: one is a path, the other a hub name.
    check_choice("data", data, ["digits", "cifar10", "./FOLDER", "OWNER/NAME"])
    raise AssertionError(data)


def _folder(data: str) -> Path | None:
    """The folder that `data` names, or None where it is not a path."""
    try:
        path = Path(data).expanduser()
    except RuntimeError:  # ~name of a user who does not exist
        path = Path(data)
    if not data:
        return None
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise UsageError(
            f"'{data}' is a file: expected the folder of a data set, such as '{path.parent}'"
        )
    if data.startswith((".", "/", "~")) or os.sep in data.replace("/", "", 1):
        raise UsageError(f"no such folder '{data}': expected a folder of images{_neighbour(path)}")
    return None


def _neighbour(path: Path) -> str:
    """A hint at the folder beside `path` whose name is nearest, if one is near."""
    if not path.parent.is_dir():
        return f"; there is no '{path.parent}' either"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    nearest = get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / nearest[0]}'?" if nearest else ""


def _load_folder(folder: Path) -> ImageData:
    path = cache_file(folder.name, folder_digest(folder))
    images = read_cache(path, folder.name)
    if images is not None:
        return images
    # `datasets` keeps what it prepared by the files' times, so it gets a cache of its own
    # each time; it lies beside ours because it is as large as the data.
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=UNFINISHED) as scratch:
        images = open_folder(folder, cache=scratch).decode()
    write_cache(path, images)
    return images


def _load_hub(name: str) -> ImageData:
    source = open_hub(name)
    path = cache_file(name, source.digest())
    images = read_cache(path, name)
    if images is not None:
        return images
    images = source.decode()
    write_cache(path, images)
    return images


def _digits() -> ImageData:
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.from_numpy(digits.images).float()[:, None] * (255 / 16)
    large = functional.interpolate(small, size=(32, 32), mode="bilinear").round().to(torch.uint8)
    images = large.repeat(1, 3, 1, 1).contiguous(memory_format=torch.channels_last)
    train, test = hold_out(Split(images, torch.from_numpy(digits.target).long()))
    return measured("digits", train, test, classes=tuple("0123456789"), encoding="raw")
