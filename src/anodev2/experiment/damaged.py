"""Files that are not what their name says: never trusted, never deleted."""

import sys
from itertools import count
from pathlib import Path

from anodev2.usage import UsageError


class Damaged(UsageError):  # noqa: N818
    """A file that can be read but is not what belongs there; its text is one line.

    Args:
        path: the file.
        why: what is wrong with it, as in "is cut off".
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"'{self.path}' {self.why}"


def set_aside(damaged: Damaged) -> None:
    """Rename the file to NAME.unreadable, or -2, -3 and so on, and say so on standard error.

    Raises:
        OSError: its folder cannot be written to.
    """
    path = damaged.path
    aside = _free_name(path)
    try:
        path.replace(aside)
    except OSError as error:
        aside.unlink()
        if isinstance(error, FileNotFoundError):  # another process has set it aside meanwhile
            return
        raise
    print(f"anodev2: {damaged}; set aside as '{aside.name}'", file=sys.stderr, flush=True)


def _free_name(path: Path) -> Path:
    """A name that was free and is now taken by an empty file: renaming replaces what is there."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.unreadable" + (f"-{number}" if number > 1 else ""))
        try:
            aside.touch(exist_ok=False)
        except FileExistsError:
            continue
        return aside
    raise AssertionError(path)
