"""Test files run as scripts, in processes whose freed memory goes back to the system."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def measured(script: str, argument: str) -> dict[str, Any]:
    """What a script prints as JSON on its last line."""
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, argument],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def resident(key: str) -> int:
    """Bytes of this process's memory: VmRSS is now, VmHWM the peak; 0 where nobody tells."""
    if sys.platform != "linux":
        return 0
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def forget_peak() -> None:
    """Let the peak begin anew."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
