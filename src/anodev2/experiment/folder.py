"""The folder of a run: its configuration file, and the state it is in."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Literal

import yaml
from filelock import FileLock, Timeout

from anodev2.experiment.config import SHARED, RunConfig, recipe_mismatch
from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.result import Result
from anodev2.experiment.whole_file import UNFINISHED, remove_unfinished, whole_file
from anodev2.models import find_method
from anodev2.usage import UsageError

LOCK = ".lock"
MOMENT = 0.2
"""Seconds that a claim waits: another process may be looking whether the run is free."""


class Busy(UsageError):  # noqa: N818
    """Another process is training the run."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep a run's folder to this process; the system frees it when the process dies.

    What a killed process was writing there is removed.

    Raises:
        Busy: another process has it.
        ValueError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=MOMENT)
    except Timeout:
        raise Busy(f"'{folder}' is being trained by another process") from None
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        for place in (folder, folder / "checkpoints"):
            remove_unfinished(place)
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
    except (OSError, ValueError, yaml.YAMLError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"'{path.parent}' is not the folder of a run: choose another --out")
    return found


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a configuration, unless it is there already.

    Raises:
        ValueError: its folder cannot be made or written to.
    """
    if path.exists() and read_config(path) == config:
        return
    try:
        with whole_file(path) as file:
            file.write_text(yaml.safe_dump(config, sort_keys=False))
    except OSError as error:
        raise unwritable(path.parent, error) from error


def unwritable(folder: Path, error: OSError) -> UsageError:
    """What to tell who gave a folder that cannot be made or written to."""
    return UsageError(
        f"cannot write to '{folder}' ({error.strerror}): expected --out to be a folder, "
        "or a place for one"
    )


def run_state(out: Path, config: RunConfig) -> Literal["absent", "unfinished", "finished"]:
    """What is in a run's folder; a run whose result is another's or damaged is unfinished.

    Raises:
        ValueError: a run of another configuration, no run at all, or a file that cannot be
            read at all.
    """
    folder = out / "runs" / config.name
    if not folder.exists() or all(map(_is_no_part, folder.iterdir())):
        return "absent"
    found = read_config(folder / "config.yaml")
    other = mismatch(found, config)
    if other:
        advice = f"choose another --out{_or_options(found, config)}"
        raise UsageError(f"'{folder}' holds a run {other}: {advice}")
    for name in ("result.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt"):
        _check_permission(folder / name)
    try:
        result = result_of(folder, config)
    except Damaged:
        return "unfinished"
    if result is None:
        return "unfinished"
    changed = recipe_mismatch(result.recipe, config)
    if changed:
        raise UsageError(f"'{folder}' holds a run {changed}: choose another --out")
    return "finished"


def epochs_done(folder: Path) -> int:
    """How many epochs of a run are finished, by its metrics."""
    metrics = folder / "metrics.csv"
    return max(0, len(metrics.read_bytes().splitlines()) - 1) if metrics.exists() else 0


def result_of(folder: Path, config: RunConfig) -> Result | None:
    """The result in a run's folder, None where there is none.

    Raises:
        Damaged: it is another run's, or no result.
        ValueError: it cannot be read at all.
    """
    path = folder / "result.json"
    if not path.exists():
        return None
    result = Result.read(path)
    other = mismatch(result.config, config)
    if other:
        raise Damaged(path, f"is the result of another run, {other}")
    return result


def set_aside_result(folder: Path, config: RunConfig) -> None:
    """Set aside a result that is another run's or damaged; the run must be claimed.

    Raises:
        ValueError: it cannot be read at all.
    """
    try:
        result_of(folder, config)
    except Damaged as damaged:
        set_aside(damaged)


def mismatch(found: Mapping[str, Any], config: RunConfig) -> str | None:
    """What tells another run from this one, as in "with epochs 3, not 4".

    Files of older versions lack what there was not yet, have the precision "auto" and a rate of p
    for weights at rest.
    """
    for key, given in _differing(found, config):
        if given is MISSING:
            return f"without {key}"
        return f"with {key} {given!r}, not {getattr(config, key)!r}"
    return None


def _differing(found: Mapping[str, Any], config: RunConfig) -> Iterator[tuple[str, Any]]:
    """The settings that are others in a configuration, with what they are there."""
    usual = {f.name: f.default for f in fields(config)}
    rests = not find_method(config.method).moves
    for key, value in asdict(config).items():
        given = found.get(key, usual[key])
        older = (key, given) == ("precision", "auto") or (key == "p_rate" and rests)
        if given != value and not older:
            yield key, given


def _or_options(found: Mapping[str, Any], config: RunConfig) -> str:
    """The options that lead to the run of a configuration, where a command can have them."""
    differing = dict(_differing(found, config))
    if not all(key in SHARED and isinstance(v, str | int) for key, v in differing.items()):
        return ""
    options = " ".join(f"--{key} {shlex.quote(str(given))}" for key, given in differing.items())
    return f", or {options} for the run that is there"


def _is_no_part(path: Path) -> bool:
    """Whether it is left by a process that was killed before the run began."""
    return path.name == LOCK or path.name.startswith(UNFINISHED)


def _check_permission(path: Path) -> None:
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
