"""Encoded, labelled images, and how they become pixels."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anodev2.experiment.data.cache import split_of
from anodev2.experiment.data.images import ImageData, Split, hold_out, measured
from anodev2.usage import UsageError, first_line

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Source:
    """An opened data set whose images are still encoded.

    Args:
        name: what the data set is called.
        splits: its rows: `train` and `test`, or one split alone of any name.
        image: name of the column of images.
        label: name of the column of labels.
        classes: name of each label; empty where the data has numbers only.
    """

    name: str
    splits: dict[str, "Dataset"]
    image: str
    label: str
    classes: tuple[str, ...]

    def digest(self) -> bytes:
        """sha256 over the encoded images, the labels, the classes and the splits' names."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for split, rows in self.splits.items():
            digest.update(f"{split} {len(rows)}\n".encode())
            for encoded, label in self._rows(split):
                digest.update(hashlib.sha256(encoded).digest() + f"{label}\n".encode())
        return digest.digest()

    def decode(self) -> ImageData:
        """Decode all images; shows the progress on a terminal.

        Raises:
            UsageError: an image or label is missing or damaged, or two sizes differ.
        """
        decoded = {split: self._decode(split) for split in self.splits}
        encoding = next(iter(decoded.values()))[1]
        parts = {split: part for split, (part, _) in decoded.items()}
        highest = max(int(part.labels.max()) for part in parts.values())
        classes = self.classes or tuple(str(label) for label in range(highest + 1))
        _check_sizes(self.name, parts)
        _check_labels(self.name, parts, classes)
        train, test = parts.values() if len(parts) == 2 else hold_out(*parts.values())
        return measured(self.name, train, test, classes=classes, encoding=encoding)

    def _rows(self, split: str) -> Iterator[tuple[bytes, int | None]]:
        """Every encoded image with its label, read in batches."""
        import datasets

        columns = self.splits[split].select_columns([self.image, self.label])
        encoded = columns.cast_column(self.image, datasets.Image(decode=False))
        for batch in encoded.iter(batch_size=256):
            for image, label in zip(batch[self.image], batch[self.label], strict=True):
                yield _encoded(image), label

    def _decode(self, split: str) -> tuple[Split, str]:
        """The images of a split and the format of its first."""
        from tqdm import tqdm  # type: ignore[import-untyped]

        total = len(self.splits[split])
        labels = np.full(total, -1, dtype=np.int64)  # -1, an invalid label, is a missing one
        pixels, encoding = np.empty(0, dtype=np.uint8), ""
        rows = tqdm(self._rows(split), f"decoding {split}", total, leave=False, disable=None)
        for position, (encoded, label) in enumerate(rows):
            where = f"image {position} of the split '{split}' of '{self.name}'"
            try:
                image, found = _decode_image(encoded)
            except (OSError, SyntaxError, ValueError) as error:
                raise UsageError(
                    f"{where} cannot be decoded: expected an encoded image ({first_line(error)})"
                ) from error
            if position == 0:
                pixels, encoding = np.empty((total, *image.shape), dtype=np.uint8), found
            if image.shape != pixels.shape[1:]:
                raise UsageError(
                    f"{where} is {_size(image.shape)}, image 0 is {_size(pixels.shape[1:])}: "
                    "expected images of one size"
                )
            pixels[position] = image
            if label is not None:
                labels[position] = label
        return split_of(pixels, labels), encoding


def _check_sizes(name: str, parts: dict[str, Split]) -> None:
    sizes = {
        split: _size(part.images.permute(0, 2, 3, 1).shape[1:]) for split, part in parts.items()
    }
    if len(set(sizes.values())) > 1:
        found = ", ".join(
            f"{len(parts[split])} images of {size} in {split}" for split, size in sizes.items()
        )
        raise UsageError(f"'{name}' has {found}: expected images of one size")


def _check_labels(name: str, parts: dict[str, Split], classes: tuple[str, ...]) -> None:
    for split, part in parts.items():
        bad = ((part.labels < 0) | (part.labels >= len(classes))).nonzero()
        if len(bad):
            at = int(bad[0])
            raise UsageError(
                f"image {at} of the split '{split}' of '{name}' has the label "
                f"{int(part.labels[at])}: expected 0 to {len(classes) - 1}"
            )


def _encoded(cell: dict[str, Any] | None) -> bytes:
    """The bytes of an undecoded image; none where the row has no image."""
    if cell is None:
        return b""
    encoded: bytes | None = cell["bytes"]
    return Path(cell["path"]).read_bytes() if encoded is None else encoded


def _decode_image(encoded: bytes) -> tuple[np.ndarray, str]:
    """RGB pixels (H, W, 3), turned as a camera noted, and the format they were encoded in."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB")), image.format or ""


def _size(shape: tuple[int, ...]) -> str:
    """Width by height, as image viewers say it, of pixels (H, W, 3)."""
    return f"{shape[1]}x{shape[0]}"
