"""What a run is trained with: versions, revision of the source, processor."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

DIRTY = "-dirty"
"""Ends a revision from which the files of the package differ."""
PACKAGES = ("anodev2", "torch", "torchdiffeq", "lightning", "datasets")


def describe_environment(threads: int) -> dict[str, Any]:
    """Versions, git revision of the package (None unless git tracks it), processor and threads."""
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "git_revision": _git_revision(),
        "processor": processor_name(),
        "threads": threads,
    }


def processor_name() -> str:
    """The model of this machine's accelerator, else of its processor."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _git_revision() -> str | None:
    package = Path(__file__).parents[1]
    try:
        if not _git("ls-files", "--", "__init__.py", folder=package):
            return None
        changed = _git("status", "--porcelain", "--", ".", folder=package)
        return _git("rev-parse", "HEAD", folder=package) + (DIRTY if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*command: str, folder: Path) -> str:
    found = subprocess.run(
        ["git", *command], cwd=folder, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()
