"""The folder of a run: its configuration file, and the state it is in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import yaml
from filelock import FileLock, Timeout

from anodev2.experiment.checkpoints import read_checkpoint
from anodev2.experiment.config import RunConfig
from anodev2.experiment.result import Result
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

LOCK = ".lock"


class Busy(UsageError):  # noqa: N818
    """Another process is training the run."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep a run's folder to this process; the system frees it when the process dies.

    Raises:
        Busy: another process has it.
        ValueError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(blocking=False)
    except Timeout:
        raise Busy(f"'{folder}' is being trained by another process") from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def read_config(path: Path) -> dict[str, Any]:
    """The configuration in a folder.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"'{path.parent}' is not the folder of a run: choose another --out")
    return found


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a configuration.

    Raises:
        ValueError: its folder cannot be made or written to.
    """
    try:
        with whole_file(path) as file:
            file.write_text(yaml.safe_dump(config, sort_keys=False))
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write to '{folder}' ({error.strerror}): expected --out to be a folder, "
        "or a place for one"
    )


def run_state(out: Path, config: RunConfig) -> Literal["absent", "unfinished", "finished"]:
    """What is in a run's folder.

    Raises:
        ValueError: a run of another configuration, or no run at all.
    """
    folder = out / "runs" / config.name
    if not folder.exists() or [entry.name for entry in folder.iterdir()] == [LOCK]:
        return "absent"
    found = read_config(folder / "config.yaml")
    usual = {f.name: f.default for f in fields(config)}  # what older folders do not say
    other = {k: v for k, v in asdict(config).items() if found.get(k, usual[k]) != v}
    if other:
        key, value = next(iter(other.items()))
        raise UsageError(
            f"'{folder}' holds a run with {key} {found.get(key, usual[key])!r}, not {value!r}: "
            "choose another --out"
        )
    return "finished" if (folder / "result.json").exists() else "unfinished"


def check_readable(out: Path, config: RunConfig) -> None:
    """Refuse a run whose result or last checkpoint is there but cannot be read."""
    folder = out / "runs" / config.name
    if (folder / "result.json").exists():
        Result.read(folder / "result.json")
    elif (folder / "checkpoints" / "last.ckpt").exists():
        read_checkpoint(folder / "checkpoints" / "last.ckpt")
