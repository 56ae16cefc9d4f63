"""Decoded images on disk: one uncompressed npz file a data set, named by its content.

The name's key is a hash of the bytes the images were decoded from, never of their dates:
a file changed in place gives other data even where its size and time are as before. The file
holds its key too: under another's name it is not that one's data."""

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.data.images import ImageData, Split, measured
from anodev2.experiment.whole_file import remove_unfinished, whole_file
from anodev2.usage import UsageError

FORMAT = b"anodev2 images 2"  # part of every key: raise the number when the file's layout changes
DAY = 24 * 60 * 60.0


def cache_folder() -> Path:
    """Where decoded images lie: `$ANODEV2_CACHE`, else `anodev2` in `$XDG_CACHE_HOME` or
    `~/.cache`; made if it is missing.

    Raises:
        UsageError: the folder cannot be made.
    """
    chosen = os.environ.get("ANODEV2_CACHE")
    parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(chosen or f"{parent}/anodev2").expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def cache_file(name: str, content: bytes) -> Path:
    """The file for a data set called `name` decoded from what `content` is a digest of."""
    key = hashlib.sha256(FORMAT + content).hexdigest()[:32]
    return cache_folder() / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}-{key}.npz"


def folder_digest(folder: Path) -> bytes:
    """sha256 over the sorted relative paths and the bytes of all files below `folder`.

    Raises:
        UsageError: a file cannot be read.
    """
    digest = hashlib.sha256()
    # As `datasets` does, this reads linked files but does not enter linked folders.
    files = sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    for path in files:
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise UsageError(
                f"cannot read '{path}': {error.strerror}; expected readable files"
            ) from error
        digest.update(os.fsencode(path.relative_to(folder).as_posix()) + b"\0" + content)
    return digest.digest()


def read_cache(path: Path, name: str) -> ImageData | None:
    """The data set `name` that `write_cache` left at `path`; None if there is no such file.

    A file that is something else is set aside.

    Raises:
        UsageError: the file cannot be read at all, or not be set aside.
    """
    try:
        with path.open("rb") as file:
            try:
                return _read(file, name, _key(path))
            except MemoryError:
                raise
            except Exception as error:  # numpy and zipfile have many for broken files
                if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                    raise  # the disk's; a broken zip has zipfile seek to nowhere
                why = f"({error})" if isinstance(error, Foreign) else f"({type(error).__name__})"
                damaged = Damaged(path, f"does not hold decoded images {why}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    try:
        set_aside(damaged)
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    return None


class Foreign(ValueError):  # noqa: N818
    """Arrays that are not those of the data set."""


def _key(path: Path) -> str:
    return path.stem.rpartition("-")[2]


def _read(file: BinaryIO, name: str, key: str) -> ImageData:
    with np.load(file, allow_pickle=False) as arrays:
        if "key" not in arrays or str(arrays["key"]) != key:
            raise Foreign("it is of other images")
        classes, encoding = arrays["classes"], arrays["encoding"]
        parts = {part: _part(arrays, part, len(classes)) for part in ("train", "test")}
    if classes.dtype.kind != "U" or classes.ndim != 1 or encoding.dtype.kind != "U":
        raise Foreign("its classes are not names")
    train, test = parts["train"], parts["test"]
    if train.images.shape[1:] != test.images.shape[1:]:
        raise Foreign("its images have several sizes")
    names = tuple(str(label) for label in classes)
    return measured(name, train, test, classes=names, encoding=str(encoding))


def _part(arrays: Mapping[str, np.ndarray], part: str, classes: int) -> Split:
    pixels, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3 or not pixels.size:
        raise Foreign(f"its {part}_images are {pixels.dtype} {pixels.shape}")
    if labels.dtype != np.int64 or labels.shape != pixels.shape[:1]:
        raise Foreign(f"its {part}_labels are {labels.dtype} {labels.shape}")
    if labels.min() < 0 or labels.max() >= classes:
        raise Foreign(f"a number of its {part}_labels has no class")
    return split_of(pixels, labels)


def write_cache(path: Path, data: ImageData) -> None:
    """Write `data` to `path` so that a killed process leaves no half file under that name.

    What a killed one left under another is removed after a day.

    Raises:
        UsageError: the folder cannot be written to.
    """
    remove_unfinished(path.parent, age=DAY)
    try:
        with whole_file(path) as temporary:
            np.savez(
                temporary,
                key=np.array(_key(path), dtype=np.str_),
                train_images=data.train.images.permute(0, 2, 3, 1).numpy(),
                train_labels=data.train.labels.numpy(),
                test_images=data.test.images.permute(0, 2, 3, 1).numpy(),
                test_labels=data.test.labels.numpy(),
                classes=np.array(data.classes, dtype=np.str_),
                encoding=np.array(data.encoding, dtype=np.str_),
            )
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def split_of(pixels: np.ndarray, labels: np.ndarray) -> Split:
    """The Split of `pixels` uint8 (N, H, W, C) and `labels` int64 (N,), sharing their memory."""
    return Split(torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels))


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write to the cache folder '{folder}': {error.strerror}; "
        "set ANODEV2_CACHE to a folder with room that can be written to"
    )
