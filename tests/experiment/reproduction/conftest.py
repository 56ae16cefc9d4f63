"""What keeps tests of whole tables short."""

import pytest

from anodev2.experiment.reproduction import illustration, timing


@pytest.fixture
def quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of those that need no runs is enough here; tests/experiment/figures has them all."""
    monkeypatch.setattr(illustration, "STANDING", {"coupling": "What each step reads."})


@pytest.fixture
def quick_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_plan.py has the real ones."""
    monkeypatch.setattr(timing, "_time", lambda configs, *_: {c.kind: [0.5] for c in configs})
