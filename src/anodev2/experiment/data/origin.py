"""Where images come from: a local folder or the hub, opened with Hugging Face `datasets`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anodev2.experiment.data.source import Source
from anodev2.usage import UsageError, first_line

INTEGER_LABELS = ("label", "labels", "fine_label")
REACH_SECONDS = 5.0  # `datasets` alone retries for 23 s before it gives up an unreachable hub


def open_folder(folder: Path, *, cache: str) -> Source:
    """Open the data set in a local folder.

    Args:
        folder: parquet files, or images in one folder per class.
        cache: folder for what `datasets` prepares; the source reads from it.

    Raises:
        UsageError: the folder holds no labelled images.
    """
    import datasets

    empty = (datasets.data_files.EmptyDatasetError, datasets.exceptions.DataFilesNotFoundError)
    try:
        with _quiet():
            splits = datasets.load_dataset(str(folder), cache_dir=cache)
    except empty as error:
        raise UsageError(
            f"the folder '{folder}' holds no data: expected parquet files, or images in one "
            "folder per class such as train/cat/1.png"
        ) from error
    except Exception as error:  # the readers below `datasets` raise their own kinds
        raise UsageError(
            f"'{folder}' cannot be opened: expected a folder that datasets.load_dataset opens "
            f"({first_line(error)})"
        ) from error
    return _source(folder.name, splits)


def open_hub(name: str) -> Source:
    """Open a data set of the Hugging Face hub, or its local copy where the hub is out of reach.

    Args:
        name: `owner/name`.

    Raises:
        UsageError: no such data set, no network, or it holds no labelled images.
    """
    import datasets

    offline = datasets.config.HF_HUB_OFFLINE
    try:
        with _quiet():
            # Offline, `datasets` takes its own copy from an earlier run, or fails at once.
            datasets.config.HF_HUB_OFFLINE = offline or not _reaches_hub(name)
            splits = datasets.load_dataset(name)
    except UsageError:
        raise
    except ConnectionError as error:
        raise UsageError(
            f"the hub cannot be reached for '{name}', and there is no folder of that name: "
            "expected a network, or --data PATH with the folder of a local copy"
        ) from error
    except Exception as error:  # the readers below `datasets` raise their own kinds
        raise UsageError(
            f"'{name}' of the hub cannot be opened: expected images with labels, or --data PATH "
            f"with the folder of a local copy ({first_line(error)})"
        ) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = offline
    return _source(name, splits)


def _reaches_hub(name: str) -> bool:
    """Whether the hub answers; a UsageError if it answers that there is no such data set."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        HfApi().dataset_info(name, timeout=REACH_SECONDS)
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"the hub has no data set '{name}' that is open to you, and there is no folder of that "
            "name: expected owner/name of the hub, such as uoft-cs/cifar10"
        ) from error
    except Exception:  # the kinds depend on the version of the client's HTTP library
        return False
    return True


def _source(name: str, splits: dict[str, Any]) -> Source:
    """The splits and columns to use among those that `datasets` found."""
    import datasets

    test = next((split for split in ("test", "validation") if split in splits), None)
    if "train" in splits and test:
        chosen = {"train": splits["train"], "test": splits[test]}
    elif len(splits) == 1:
        chosen = dict(splits)
    else:
        raise UsageError(
            f"'{name}' has the splits {', '.join(splits)}: expected train with test or "
            "validation, or one split alone"
        )
    rows = next(iter(chosen.values()))
    columns = ", ".join(rows.features)
    kinds = rows.features.items()
    image = next((column for column, kind in kinds if isinstance(kind, datasets.Image)), None)
    if image is None:
        raise UsageError(f"'{name}' has no images: expected an image column, found {columns}")
    named = [column for column, kind in kinds if isinstance(kind, datasets.ClassLabel)]
    numbered = [column for column in INTEGER_LABELS if _is_integer(rows.features.get(column))]
    if not named and not numbered:
        raise UsageError(
            f"'{name}' has no labels: expected class labels or an integer column called "
            f"{', '.join(INTEGER_LABELS)}, found {columns}"
        )
    for split, part in chosen.items():
        if len(part) == 0:
            raise UsageError(f"the split '{split}' of '{name}' is empty: expected images")
    classes = tuple(rows.features[named[0]].names) if named else ()
    return Source(name, chosen, image, (named or numbered)[0], classes)


def _is_integer(kind: Any) -> bool:
    """Whether a feature of `datasets` is a column of whole numbers."""
    return "int" in (getattr(kind, "dtype", None) or "")


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars or log lines of `datasets`: an error of ours is one line."""
    import datasets

    loggers = [logging.getLogger("datasets"), logging.getLogger("huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
