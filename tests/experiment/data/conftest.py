"""What keeps tests of data off the user's own cache."""

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of decoded images."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ANODEV2_CACHE", str(folder))
    return folder
