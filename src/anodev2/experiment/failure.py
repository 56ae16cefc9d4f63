"""A run that could not be carried through, although nothing given to it was wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anodev2.experiment.whole_file import whole_file

FAILURE = "failure.txt"


class RunFailure(RuntimeError):  # noqa: N818
    """Ends one run; its text is one line."""


@dataclass(frozen=True)
class KeptFailure:
    """A failure that is kept in the folder of its run.

    Args:
        reason: one line.
        written: when, in nanoseconds by the clock of the folder's files.
    """

    reason: str
    written: int


@contextmanager
def failure_kept(folder: Path) -> Iterator[None]:
    """Leave why a run failed in its folder, until it is tried again."""
    path = folder / FAILURE
    path.unlink(missing_ok=True)
    try:
        yield
    except RunFailure as failure:
        with whole_file(path) as file:
            file.write_text(f"{failure}\n")
        raise


def kept_failure(folder: Path) -> KeptFailure | None:
    """Why the run of a folder failed when it was last tried, None where it did not."""
    path = folder / FAILURE
    try:
        return KeptFailure(path.read_text(errors="replace").strip(), path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@contextmanager
def written_or_failed(folder: Path) -> Iterator[None]:
    """Make a failure in one line of what the system refuses, such as writing to a full disk.

    TensorBoard writes in a thread, whose error comes back from the next call to it; so what
    the thread would print as well is left out.

    Args:
        folder: what is named where the system does not name a file.

    Raises:
        RunFailure: something could not be written.
    """
    plain = threading.excepthook

    def without_system_errors(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, OSError):
            plain(arguments)

    threading.excepthook = without_system_errors
    try:
        yield
    except OSError as error:
        raise RunFailure(
            f"cannot write to '{error.filename or folder}' ({error.strerror or error}): the last "
            "good state is kept, and the same command goes on from it ('train' with --resume)"
        ) from error
    finally:
        threading.excepthook = plain
