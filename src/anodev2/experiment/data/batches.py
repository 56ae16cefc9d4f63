"""Batches of one epoch after another: shuffled, augmented and normalised in whole tensors."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor
from torch.nn import functional

from anodev2.experiment.data.images import Split
from anodev2.usage import UsageError


@dataclass(frozen=True)
class Augmentation:
    """The usual random changes to small training images.

    Args:
        padding: zeros in pixels on every side, before a crop of the image's own size at
            one of (2 padding + 1)^2 offsets.
        flip: mirror each image left to right with probability 1/2.
    """

    padding: int = 4
    flip: bool = True


@dataclass(frozen=True)
class Draws:
    """The random choices of one epoch for all N images, by the image's place in the split.

    Args:
        order: int64 (N,), the images in the order they are shown.
        offsets: int64 (N, 2), upper left corner of each crop in the padded image.
        flips: bool (N,), which images are mirrored.
    """

    order: Int64[Tensor, " n"]
    offsets: Int64[Tensor, "n 2"]
    flips: Bool[Tensor, " n"]


class Batches:
    """An iterable over the batches of an epoch, one process's share of them.

    The order, crops and flips of an epoch come from (seed, epoch) alone: not from the global
    random state, the batch size or the number of processes, so an image is changed in the
    same way wherever it is shown.

    Each item is (images, labels): float32 (B, C, H, W) in channels_last memory, normalised to
    (pixel / 255 - mean) / std per channel, and int64 (B,). The last batch may be smaller.

    Args:
        split: the images.
        mean: mean per channel on the scale 0 to 1.
        std: standard deviation per channel likewise, positive.
        batch_size: images a batch B, at least 1.
        seed: of every random choice.
        augment: the random changes to make, None for none.
        shuffle: a new order every epoch, and equally many images in every process (up to
            world_size - 1 images of an epoch are left out: gradients are exchanged batch by
            batch, and a process with one more would wait for ever); otherwise the order of
            the split with every image.
        epoch: says the number of the epoch; asked when its first batch is taken, not when
            the iterator is made.
        rank: number of this process, 0 to world_size - 1.
        world_size: number of processes that share the images.

    Raises:
        UsageError: batch_size is below 1, or a process would have no images.
    """

    def __init__(
        self,
        split: Split,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        batch_size: int,
        seed: int,
        augment: Augmentation | None,
        shuffle: bool,
        epoch: Callable[[], int],
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        if batch_size < 1:
            raise UsageError(f"batch size {batch_size}: expected at least 1")
        if len(split) < world_size:
            raise UsageError(
                f"{len(split)} images for {world_size} processes: expected at least one each"
            )
        # No copy for images in channels_last memory, which are so already.
        self._pixels = split.images.permute(0, 2, 3, 1).contiguous()
        self._labels = split.labels
        self._mean = torch.tensor(mean) * 255
        self._std = torch.tensor(std) * 255
        self._batch_size = batch_size
        self._seed = seed
        self._augment = augment
        self._shuffle = shuffle
        self._epoch = epoch
        used = len(split) - len(split) % world_size if shuffle else len(split)
        self._mine = slice(rank, used, world_size)

    def __len__(self) -> int:
        """Number of batches this process gets an epoch."""
        images = len(range(len(self._labels))[self._mine])
        return -(-images // self._batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch that `epoch()` gives at the first `next`."""
        draws = self._draw(self._epoch())
        for index in torch.split(draws.order[self._mine], self._batch_size):
            pixels = self._pixels[index]
            if self._augment is not None:
                offsets, flips = draws.offsets[index], draws.flips[index]
                pixels = crop(pixels, offsets, flips, padding=self._augment.padding)
            images = pixels.float().sub_(self._mean).div_(self._std)
            yield images.permute(0, 3, 1, 2), self._labels[index]

    def _draw(self, epoch: int) -> Draws:
        # A hash keeps (seed, epoch) = (0, 1) and (1, 0) apart.
        mixed = hashlib.sha256(f"{self._seed} {epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(mixed[:8]))
        count = len(self._labels)
        augment = self._augment or Augmentation(padding=0, flip=False)
        shuffled = torch.randperm(count, generator=generator)
        offsets = torch.randint(2 * augment.padding + 1, (count, 2), generator=generator)
        flips = torch.randint(2, (count,), generator=generator) == 1
        return Draws(
            order=shuffled if self._shuffle else torch.arange(count),
            offsets=offsets,
            flips=flips & augment.flip,
        )


def crop(
    pixels: UInt8[Tensor, "batch height width channels"],
    offsets: Int64[Tensor, "batch 2"],
    flips: Bool[Tensor, " batch"],
    *,
    padding: int,
) -> UInt8[Tensor, "batch height width channels"]:
    """A window of each padded image, of the image's own size.

    Args:
        pixels: (B, H, W, C).
        offsets: int64 (B, 2), row and column of each window's corner in the padded image,
            0 to 2 padding.
        flips: bool (B,), which windows are mirrored left to right.
        padding: zeros on every side, in pixels.

    Returns:
        (B, H, W, C), contiguous.
    """
    count, height, width, _ = pixels.shape
    padded = functional.pad(pixels, (0, 0, padding, padding, padding, padding))
    across = torch.arange(width)
    rows = offsets[:, :1] + torch.arange(height)
    columns = offsets[:, 1:] + torch.where(flips[:, None], across.flip(0), across)
    return padded[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
