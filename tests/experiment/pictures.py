"""Small image data sets that the tests write, and what they expect of them."""

import io
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from anodev2.experiment.data.loading import load_data
from anodev2.usage import UsageError


def picture(seed: int, *, size: tuple[int, int] = (8, 6)) -> Image.Image:
    """Random pixels, width by height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def pixels_of(content: bytes) -> torch.Tensor:
    """What Pillow makes of an encoded image, (3, H, W)."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(content)).convert("RGB"))).permute(
        2, 0, 1
    )


def write_rows(
    path: Path,
    images: list[bytes | None],
    labels: list[int | None],
    *,
    label: tuple[str, datasets.features.features.FeatureType] = (
        "label",
        datasets.ClassLabel(names=["cat", "dog", "frog"]),
    ),
) -> None:
    cells = [None if image is None else {"bytes": image, "path": None} for image in images]
    features = datasets.Features({"img": datasets.Image(), label[0]: label[1]})
    rows = datasets.Dataset.from_dict({"img": cells, label[0]: labels}, features=features)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(str(path))


def write_parquet(folder: Path, *, kind: str = "JPEG") -> dict[str, list[bytes]]:
    """Nine training and six test images of three classes; their encoded bytes."""
    content = {
        "train": [encoded(picture(seed), kind) for seed in range(9)],
        "test": [encoded(picture(seed), kind) for seed in range(9, 15)],
    }
    for split, images in content.items():
        labels = [position % 3 for position in range(len(images))]
        write_rows(folder / f"{split}-00000-of-00001.parquet", images, labels)
    return content


def write_image_folder(folder: Path, *, splits: tuple[str, ...] = ("train", "test")) -> None:
    """Five images in each of the classes cat and dog, as PNG files."""
    for split in splits:
        for label, name in enumerate(("cat", "dog")):
            directory = folder / split / name
            directory.mkdir(parents=True)
            for number in range(5):
                picture(10 * label + number).save(directory / f"{number}.png")


def refusal(data: str | Path) -> str:
    """The one line that `data` is refused with."""
    with pytest.raises(UsageError) as caught:
        load_data(str(data))
    message = str(caught.value)
    assert "\n" not in message
    return message


def cached(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.npz"))
