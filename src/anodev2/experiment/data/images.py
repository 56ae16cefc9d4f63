"""Labelled images in memory, as every training run reads them."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from anodev2.usage import UsageError

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True)
class Split:
    """The images of one split and their labels.

    Args:
        images: uint8 of shape (N, C, H, W), pixel values 0 to 255; the memory order is
            channels_last, so that `images.permute(0, 2, 3, 1)` is contiguous.
        labels: int64 of shape (N,), indices into the classes of the data set.
    """

    images: UInt8[Tensor, "n channels height width"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        """Number of images N."""
        return len(self.labels)


@dataclass(frozen=True)
class ImageData:
    """A data set of images of one size.

    Args:
        name: what the data set is called: `digits`, a folder's name, or `owner/name`.
        train: images to learn from.
        test: images to measure on.
        classes: name of each label.
        mean: mean of each channel over the training images, on the scale 0 to 1.
        std: standard deviation of each channel likewise; 1 for a constant channel, which
            normalising must not divide by zero.
        encoding: format of the first training image, such as "JPEG" (lossy) or "PNG"
            (exact), and "raw" for digits.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    encoding: str

    @property
    def flips(self) -> bool:
        """Whether a mirrored image still shows its class; a mirrored digit is another sign."""
        return self.encoding != "raw"

    @property
    def is_cifar10(self) -> bool:
        """Whether this is all of CIFAR-10: its ten classes, 50,000 and 10,000 images."""
        counts = (len(self.train), len(self.test))
        return self.classes == CIFAR10_CLASSES and counts == (50_000, 10_000)


def measured(
    name: str, train: Split, test: Split, *, classes: tuple[str, ...], encoding: str
) -> ImageData:
    """An ImageData whose mean and std are measured on `train`; the arguments are its fields."""
    moments = [_moments(train.images[:, channel]) for channel in range(train.images.shape[1])]
    mean, std = zip(*moments, strict=True)
    return ImageData(name, train, test, classes, mean, std, encoding)


def _moments(pixels: Tensor) -> tuple[float, float]:
    # From the histogram: exact, and without a float copy of the images.
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = (counts * values).sum() / counts.sum()
    variance = (counts * (values - mean) ** 2).sum() / counts.sum()
    return mean.item(), variance.sqrt().item() or 1.0


def hold_out(split: Split) -> tuple[Split, Split]:
    """A fixed division into training and test images, every class in proportion.

    Args:
        split: all images.

    Returns:
        (train, test); a fifth of the images, rounded up, is test.

    Raises:
        UsageError: too few images to have each class in both parts.
    """
    from sklearn.model_selection import train_test_split

    try:
        train, test = train_test_split(
            torch.arange(len(split)).numpy(),
            test_size=0.2,
            stratify=split.labels.numpy(),
            random_state=0,
        )
    except ValueError as error:
        raise UsageError(
            f"{len(split)} images in one split: expected enough to hold out a fifth for testing "
            f"with every class in it; give more images or a test split ({error})"
        ) from error
    return _take(split, torch.from_numpy(train)), _take(split, torch.from_numpy(test))


def _take(split: Split, indices: Tensor) -> Split:
    images = split.images.permute(0, 2, 3, 1)[indices].permute(0, 3, 1, 2)
    return Split(images, split.labels[indices])
