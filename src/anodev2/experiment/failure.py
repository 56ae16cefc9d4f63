"""A run that could not be carried through, although nothing given to it was wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anodev2.usage import UsageError


class RunFailure(RuntimeError):  # noqa: N818
    """Ends one run; its text is one line."""


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
    except (UsageError, RunFailure):
        raise
    except Exception as error:
        refused = _system_error(error)
        if refused is None:
            raise
        raise RunFailure(
            f"cannot write to '{refused.filename or folder}' ({refused.strerror or refused}): the "
            "last good state is kept, and the same command goes on from it ('train' with --resume)"
        ) from error
    finally:
        threading.excepthook = plain


def _system_error(error: BaseException | None) -> OSError | None:
    """The error of the system that an error is, or was raised for."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error
