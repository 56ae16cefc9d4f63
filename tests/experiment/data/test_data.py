"""Loading images: what digits, folders and the hub decode to."""

import io
import re
from pathlib import Path

import datasets
import huggingface_hub
import pytest
import torch
from PIL import Image

from anodev2.experiment.data.images import ImageData
from anodev2.experiment.data.loading import load_data
from pictures import (
    cached,
    encoded,
    picture,
    pixels_of,
    write_image_folder,
    write_parquet,
    write_rows,
)

CIFAR10 = Path(__file__).parents[3] / "../shared/data/cifar10"


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory: pytest.TempPathFactory) -> ImageData:
    if not CIFAR10.is_dir():
        pytest.skip("../shared/data/cifar10 is missing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANODEV2_CACHE", str(tmp_path_factory.mktemp("cifar10")))
        return load_data(str(CIFAR10))


# Digits.


def test_digits_are_1437_training_and_360_test_images_of_three_channels() -> None:
    data = load_data("digits")
    assert data.train.images.shape == (1437, 3, 32, 32)
    assert data.test.images.shape == (360, 3, 32, 32)


def test_digits_have_the_same_split_every_time() -> None:
    first, second = load_data("digits"), load_data("digits")
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.labels, second.test.labels)


def test_the_split_of_digits_is_stratified() -> None:
    data = load_data("digits")
    train, test = data.train.labels.bincount(), data.test.labels.bincount()
    assert ((test - (train + test) / 5).abs() < 1).all()


def test_digits_keep_the_range_of_their_pixels() -> None:
    images = load_data("digits").train.images
    assert (int(images.min()), int(images.max())) == (0, 255)


def test_enlarged_digits_keep_the_mean_of_the_original_pixels() -> None:
    from sklearn.datasets import load_digits

    data = load_data("digits")
    images = torch.cat([data.train.images, data.test.images])
    original = load_digits().images.mean() * 255 / 16
    # An original pixel's weights sum to 16 enlarged ones, so only their rounding is left.
    assert images.double().mean().item() == pytest.approx(original, abs=0.05)


def test_digits_are_not_flipped_and_other_images_are(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data")
    assert (load_data("digits").flips, load_data(str(tmp_path / "data")).flips) == (False, True)


# Folders.


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_parquet_folder_gives_the_pixels_that_pillow_decodes(tmp_path: Path, kind: str) -> None:
    content = write_parquet(tmp_path / "data", kind=kind)
    data = load_data(str(tmp_path / "data"))
    assert torch.equal(data.train.images, torch.stack([*map(pixels_of, content["train"])]))
    assert torch.equal(data.test.images, torch.stack([*map(pixels_of, content["test"])]))


def test_a_parquet_folder_gives_its_labels_and_classes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data")
    data = load_data(str(tmp_path / "data"))
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert data.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.classes == ("cat", "dog", "frog")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_encoding_is_that_of_the_first_training_image(tmp_path: Path, kind: str) -> None:
    write_parquet(tmp_path / "data", kind=kind)
    assert load_data(str(tmp_path / "data")).encoding == kind


def test_an_image_folder_gives_the_pixels_of_its_files_by_class(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data")
    data = load_data(str(tmp_path / "data"))
    for label, name in enumerate(data.classes):
        files = sorted((tmp_path / "data/train" / name).iterdir())
        expected = torch.stack([pixels_of(file.read_bytes()) for file in files])
        assert torch.equal(data.train.images[data.train.labels == label], expected)


def test_the_classes_of_an_image_folder_are_its_directories(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data")
    assert load_data(str(tmp_path / "data")).classes == ("cat", "dog")


def test_validation_images_are_the_test_where_there_is_no_test(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data", splits=("train", "validation"))
    data = load_data(str(tmp_path / "data"))
    assert (len(data.train), len(data.test)) == (10, 10)


def test_a_stratified_fifth_is_held_out_of_a_single_split(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data", splits=("train",))
    data = load_data(str(tmp_path / "data"))
    assert data.train.labels.bincount().tolist() == [4, 4]
    assert data.test.labels.bincount().tolist() == [1, 1]


def test_held_out_images_are_not_in_training(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "data", splits=("train",))
    data = load_data(str(tmp_path / "data"))
    images = torch.cat([data.train.images, data.test.images])
    assert len(images.flatten(1).unique(dim=0)) == 10


def test_grey_and_palette_images_become_rgb(tmp_path: Path) -> None:
    images = [picture(0).convert("L"), picture(1).convert("P"), picture(2)] * 5
    content = [encoded(image, "PNG") for image in images]
    write_rows(tmp_path / "data/train.parquet", content, [0] * 15)
    write_rows(tmp_path / "data/test.parquet", content, [0] * 15)
    data = load_data(str(tmp_path / "data"))
    assert torch.equal(data.train.images, torch.stack([*map(pixels_of, content)]))


def test_a_photograph_is_turned_as_the_camera_noted(tmp_path: Path) -> None:
    image, stream = picture(0), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees clockwise
    image.save(stream, "PNG", exif=exif)
    for split in ("train", "test"):
        write_rows(tmp_path / f"data/{split}.parquet", [stream.getvalue()], [0])
    turned = pixels_of(encoded(image.rotate(-90, expand=True), "PNG"))
    assert torch.equal(load_data(str(tmp_path / "data")).train.images[0], turned)


@pytest.mark.parametrize("name", ["label", "labels", "fine_label"])
def test_an_integer_column_of_labels_names_its_classes_by_number(tmp_path: Path, name: str) -> None:
    for split in ("train", "test"):
        write_rows(
            tmp_path / f"data/{split}.parquet",
            [encoded(picture(seed), "PNG") for seed in range(3)],
            [0, 2, 1],
            label=(name, datasets.Value("int64")),
        )
    data = load_data(str(tmp_path / "data"))
    assert (data.train.labels.tolist(), data.classes) == ([0, 2, 1], ("0", "1", "2"))


def test_mean_and_std_are_those_of_the_training_pixels(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data")
    data = load_data(str(tmp_path / "data"))
    pixels = data.train.images.double() / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-12)
    assert data.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), rel=1e-12)


def test_a_constant_channel_has_the_std_one(tmp_path: Path) -> None:
    content = [encoded(Image.new("RGB", (4, 4), (9, 9, value)), "PNG") for value in (0, 50)]
    for split in ("train", "test"):
        write_rows(tmp_path / f"data/{split}.parquet", content, [0, 1])
    assert load_data(str(tmp_path / "data")).std == pytest.approx((1, 1, 25 / 255))


@pytest.mark.parametrize("encoding", ["digits", "parquet"])
def test_images_lie_in_channels_last_memory(tmp_path: Path, encoding: str) -> None:
    write_parquet(tmp_path / "parquet")
    data = load_data("digits" if encoding == "digits" else str(tmp_path / "parquet"))
    assert data.train.images.permute(0, 2, 3, 1).is_contiguous()
    assert data.test.images.permute(0, 2, 3, 1).is_contiguous()


@pytest.mark.slow
def test_the_whole_of_cifar10_is_recognised(cifar10: ImageData) -> None:
    assert cifar10.is_cifar10


@pytest.mark.slow
def test_cifar10_is_balanced(cifar10: ImageData) -> None:
    assert cifar10.train.labels.bincount().tolist() == [5000] * 10
    assert cifar10.test.labels.bincount().tolist() == [1000] * 10


def test_other_images_are_not_taken_for_cifar10(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data")
    assert not load_data(str(tmp_path / "data")).is_cifar10


# The hub.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that answers every name with one data set; the names it was asked for."""
    content = tmp_path / "hub"
    write_parquet(content)
    opened = datasets.load_dataset(str(content), cache_dir=str(tmp_path / "arrow"))
    names = []

    def load(name: str) -> datasets.DatasetDict:
        names.append(name)
        return opened

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    monkeypatch.setattr(datasets, "load_dataset", load)
    return names


def test_the_word_cifar10_is_the_data_set_of_its_authors_on_the_hub(hub: list[str]) -> None:
    assert load_data("cifar10").name == "uoft-cs/cifar10"
    assert hub == ["uoft-cs/cifar10"]


def test_a_data_set_of_the_hub_is_decoded_once(
    hub: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_data("owner/name")
    monkeypatch.setattr(Image, "open", None)  # decoding now fails
    second = load_data("owner/name")
    assert torch.equal(first.train.images, second.train.images)
    assert re.fullmatch(r"owner_name-[0-9a-f]{32}\.npz", cached(cache)[0].name)
