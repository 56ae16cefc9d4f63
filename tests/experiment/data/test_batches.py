"""Batches: what is shown in an epoch, in which order, and how it is changed."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anodev2.experiment.data.batches import Augmentation, Batches, crop
from anodev2.experiment.data.images import Split
from anodev2.usage import UsageError

RGB = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}  # leaves pixels as they are


def split_of(count: int, *, size: int = 6) -> Split:
    """Random pixels 1 to 255 in channels_last memory; the label is the image's place."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(1, 256, (count, size, size, 3), generator=generator)
    return Split(pixels.to(torch.uint8).permute(0, 3, 1, 2), torch.arange(count))


def batches(
    split: Split,
    *,
    batch_size: int = 4,
    seed: int = 0,
    augment: Augmentation | None = None,
    shuffle: bool = True,
    epoch: Callable[[], int] = lambda: 0,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    return Batches(
        split,
        **RGB,
        batch_size=batch_size,
        seed=seed,
        augment=augment,
        shuffle=shuffle,
        epoch=epoch,
        rank=rank,
        world_size=world_size,
    )


def shown(source: Batches) -> list[int]:
    return [int(label) for _, labels in source for label in labels]


def by_image(*sources: Batches) -> dict[int, Tensor]:
    return {
        int(label): image
        for source in sources
        for images, labels in source
        for image, label in zip(images, labels, strict=True)
    }


@given(
    count=st.integers(4, 40),
    batch_size=st.integers(1, 50),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_no_image_is_shown_twice_in_an_epoch_across_ranks(
    count: int, batch_size: int, world_size: int, shuffle: bool
) -> None:
    ranks = [
        batches(
            split_of(count, size=1),
            batch_size=batch_size,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]
    labels = [label for rank in ranks for label in shown(rank)]
    left_out = count % world_size if shuffle else 0
    assert len(set(labels)) == len(labels) == count - left_out


@given(
    count=st.integers(4, 40),
    batch_size=st.integers(1, 50),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_the_length_is_the_number_of_batches(
    count: int, batch_size: int, world_size: int, shuffle: bool
) -> None:
    for rank in range(world_size):
        source = batches(
            split_of(count, size=1),
            batch_size=batch_size,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
        )
        assert len(source) == len(list(source))


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_all_ranks_train_on_equally_many_images(world_size: int) -> None:
    counts = {
        len(shown(batches(split_of(23), rank=rank, world_size=world_size)))
        for rank in range(world_size)
    }
    assert counts == {23 // world_size}


def test_without_shuffling_images_come_in_the_order_of_the_split() -> None:
    assert shown(batches(split_of(10), shuffle=False)) == list(range(10))


def test_the_epoch_is_read_at_the_first_next() -> None:
    now = {"epoch": 0}
    source = batches(split_of(20), epoch=lambda: now["epoch"])
    iterator = iter(source)
    now["epoch"] = 5
    labels = [int(label) for _, batch in iterator for label in batch]
    assert labels == shown(batches(split_of(20), epoch=lambda: 5))


def test_the_same_seed_and_epoch_give_the_same_batches_whatever_the_global_random_state() -> None:
    source = batches(split_of(20), augment=Augmentation())
    torch.manual_seed(1)
    first = list(source)
    torch.manual_seed(2)
    for (images, labels), (again, labels_again) in zip(first, source, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, labels_again)


def test_drawing_batches_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    list(batches(split_of(20), augment=Augmentation()))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_seed_and_epoch_have_an_order_of_their_own() -> None:
    orders = {
        tuple(shown(batches(split_of(20), seed=seed, epoch=lambda epoch=epoch: epoch)))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


@pytest.mark.parametrize(("batch_size", "world_size"), [(1, 1), (7, 2), (20, 4)])
def test_an_image_is_changed_alike_whatever_the_batch_and_world_size(
    batch_size: int, world_size: int
) -> None:
    split, augment = split_of(20), Augmentation()
    whole = by_image(batches(split, augment=augment))
    shared = by_image(
        *(
            batches(split, batch_size=batch_size, augment=augment, rank=rank, world_size=world_size)
            for rank in range(world_size)
        )
    )
    assert whole.keys() == shared.keys()
    assert all(torch.equal(whole[label], shared[label]) for label in whole)


def test_an_image_is_changed_otherwise_in_another_epoch() -> None:
    split, augment = split_of(20), Augmentation()
    first = by_image(batches(split, augment=augment))
    second = by_image(batches(split, augment=augment, epoch=lambda: 1))
    assert sum(torch.equal(first[label], second[label]) for label in first) < 5


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_a_crop_is_the_window_of_the_padded_image_at_its_offset(padding: int) -> None:
    pixels = split_of(30, size=5).images.permute(0, 2, 3, 1)
    offsets = torch.randint(2 * padding + 1, (30, 2))
    flips = torch.randint(2, (30,)) == 1
    cropped = crop(pixels, offsets, flips, padding=padding)
    for image, (top, left), flip, result in zip(pixels, offsets, flips, cropped, strict=True):
        padded = torch.zeros(5 + 2 * padding, 5 + 2 * padding, 3, dtype=torch.uint8)
        padded[padding : padding + 5, padding : padding + 5] = image
        window = padded[top : top + 5, left : left + 5]
        assert torch.equal(result, window.flip(1) if flip else window)


def window_of(image: Tensor, changed: Tensor) -> list[tuple[int, int, bool]]:
    """All (top, left, mirrored) that make `changed` of `image`, both (C, H, W)."""
    size = image.shape[1]
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    found = []
    for top in range(9):
        for left in range(9):
            window = padded[:, top : top + size, left : left + size]
            for mirrored in (False, True):
                if torch.equal(changed, window.flip(2) if mirrored else window):
                    found.append((top, left, mirrored))
    return found


def augmented_windows(augment: Augmentation) -> list[tuple[int, int, bool]]:
    """The one window that each of 600 images was cut from; 6x6 images keep a 2x2 corner."""
    split = split_of(600)
    windows = []
    for label, image in by_image(batches(split, batch_size=100, augment=augment)).items():
        found = window_of(split.images[label].float(), image.round())
        assert len(found) == 1, f"image {label} is not one window of its padded self: {found}"
        windows.append(found[0])
    return windows


@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
def test_crop_offsets_are_uniform_over_twice_the_padding(axis: int) -> None:
    counts = torch.tensor([window[axis] for window in augmented_windows(Augmentation())])
    expected = 600 / 9
    chi_squared = ((counts.bincount(minlength=9) - expected) ** 2 / expected).sum()
    assert chi_squared < 26.1  # the 99.9 % quantile for 8 degrees of freedom


def test_rows_columns_and_mirroring_are_drawn_apart_from_each_other() -> None:
    windows = torch.tensor(augmented_windows(Augmentation()), dtype=torch.float64).T
    correlation = torch.corrcoef(windows) - torch.eye(3)
    assert correlation.abs().max() < 4 / 600**0.5  # four standard deviations


def test_half_of_the_images_are_mirrored() -> None:
    mirrored = sum(window[2] for window in augmented_windows(Augmentation()))
    assert abs(mirrored - 300) < 4 * 150**0.5  # four standard deviations


def test_no_image_is_mirrored_when_flip_is_false() -> None:
    assert not any(window[2] for window in augmented_windows(Augmentation(flip=False)))


def test_without_augmentation_images_are_those_of_the_split() -> None:
    split = split_of(10)
    for label, image in by_image(batches(split)).items():
        assert torch.equal(image.round(), split.images[label].float())


def test_the_border_is_black_before_normalising() -> None:
    white = Split(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8), torch.zeros(1).long())
    source = Batches(
        white,
        mean=(0.5, 0.25, 0.125),
        std=(0.5, 0.5, 0.25),
        batch_size=1,
        seed=0,
        augment=Augmentation(padding=8),
        shuffle=False,
        epoch=lambda: 0,
    )
    (images, _), *_ = source
    assert images[0, :, 0, 0].tolist() == [-1.0, -0.5, -0.5]


def test_normalised_channels_have_mean_zero_and_deviation_one() -> None:
    split = split_of(50)
    pixels = split.images.double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    source = Batches(
        split,
        mean=mean.tolist(),
        std=std.tolist(),
        batch_size=50,
        seed=0,
        augment=None,
        shuffle=True,
        epoch=lambda: 0,
    )
    ((images, _),) = source
    moments = (images.double().mean((0, 2, 3)), images.double().std((0, 2, 3), correction=0))
    # float32 pixels up to 255 minus a mean near 128: rounding of 128 / 2^24, over std 74.
    assert torch.allclose(torch.stack(moments), torch.tensor([[0.0], [1.0]]).double(), atol=1e-6)


@pytest.mark.parametrize("augment", [None, Augmentation()], ids=["plain", "augmented"])
def test_images_are_float32_in_channels_last_memory(augment: Augmentation | None) -> None:
    images, _ = next(iter(batches(split_of(10), augment=augment)))
    assert images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^batch size 0: expected at least 1$"):
        batches(split_of(4), batch_size=0)


def test_more_processes_than_images_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^3 images for 4 processes: expected at least one each$"):
        batches(split_of(3), world_size=4)
