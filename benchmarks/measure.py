"""How the benchmarks measure: alternating medians in one process, peaks in a fresh one each.

python benchmarks/measure.py NAME STEPS BATCH DTYPE     prints the peak of one job in bytes
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from contenders import DEVICE, Job, Work, job

WARM_UP = 6


def seconds(run: Job) -> float:
    """One run, by the clock or by CUDA's events."""
    if DEVICE == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000
    begin = perf_counter()
    run()
    return perf_counter() - begin


def alternate(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Median seconds of each job, the jobs run in turn, after runs that pay for page faults."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(WARM_UP + rounds):
        for name, run in jobs.items():
            times[name].append(seconds(run))
    return {name: median(found[WARM_UP:]) for name, found in times.items()}


def peak_bytes(name: str, work: Work) -> int:
    """The most that one job of this contender needs besides weights and z(0)."""
    arguments = [name, str(work.steps), str(work.batch), str(work.dtype).removeprefix("torch.")]
    # Every tensor gets pages of its own, so that freed ones do not count.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def _peak_here(run: Job) -> int:
    if DEVICE == "cuda":
        run()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    for _ in range(2):
        run()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    run()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


if __name__ == "__main__":
    name, steps, batch, dtype = sys.argv[1:]
    print(_peak_here(job(name, Work(int(steps), int(batch), getattr(torch, dtype)))))
