"""Decoded images on disk: one uncompressed npz file a data set, named by its content.

The name's key is a hash of the bytes the images were decoded from, never of their dates:
a file changed in place gives other data even where its size and time are as before."""

import hashlib
import os
import re
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from anodev2.experiment.images import ImageData, Split, measured
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

FORMAT = b"anodev2 images 1"  # part of every key: raise the number when the file's layout changes


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


def read_cache(path: Path, name: str) -> ImageData:
    """The data set `name` that `write_cache` left at `path`.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            train = split_of(arrays["train_images"], arrays["train_labels"])
            test = split_of(arrays["test_images"], arrays["test_labels"])
            classes = tuple(str(label) for label in arrays["classes"])
            encoding = str(arrays["encoding"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(
            f"the cache file '{path}' cannot be read: expected decoded images; "
            "delete it to have them decoded again"
        ) from error
    return measured(name, train, test, classes=classes, encoding=encoding)


def write_cache(path: Path, data: ImageData) -> None:
    """Write `data` to `path` so that a killed process leaves no half file under that name.

    Raises:
        UsageError: the folder cannot be written to.
    """
    try:
        with whole_file(path) as temporary:
            np.savez(
                temporary,
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
