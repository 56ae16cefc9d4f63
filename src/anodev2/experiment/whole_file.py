"""Files that are written whole or not at all."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile

UNFINISHED = ".anodev2-unfinished-"
"""How the names of files and folders begin that are being written."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the name when all went well.

    A process killed in between leaves what was at `path` before, and a hidden file; see
    `remove_unfinished`.

    Raises:
        OSError: it cannot be written; `filename` is `path`.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(
            dir=path.parent, prefix=f"{UNFINISHED}{path.stem}-", suffix=path.suffix, delete=False
        ) as file:
            temporary = Path(file.name)
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path, *, age: float | None = None) -> None:
    """Remove what killed processes were writing.

    Args:
        folder: where.
        age: seconds since its last change from which on a file or folder counts as left behind;
            None for any, where nobody else writes now.
    """
    for path in folder.glob(f"{UNFINISHED}*"):
        with suppress(OSError):  # it does no harm
            if age is None or time.time() - path.stat().st_mtime >= age:
                if path.is_dir():
                    rmtree(path)
                else:
                    path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
