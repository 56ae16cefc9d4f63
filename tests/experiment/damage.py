"""Ways in which files come to be what they should not be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Touching:
    """An object whose pickle makes a file where it is loaded."""

    target: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_bit(content: bytes) -> bytes:
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def forbid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to open files of that name, as the system does where one may not read them."""
    plain = Path.open

    def refusing(self: Path, *args: Any, **settings: Any) -> Any:
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return plain(self, *args, **settings)

    monkeypatch.setattr(Path, "open", refusing)
