"""Gradient strategies against plain PyTorch and against peers: ratios of time and of memory.

    python benchmarks/gradients.py [--rounds N] [--batch N] [--threads N] [--only WORD]

Work: ResNet-4's block, configuration 1. Times are medians of jobs run in turn in one process,
after six runs of each that pay for page faults; peaks are of one job in a fresh process each.
diffrax needs the extra `bench` and is left out without it; jobs run on CUDA where there is one.
"""

import argparse
from importlib.util import find_spec
from typing import NamedTuple

import torch
from contenders import Job, Work, block, job
from measure import alternate, peak_bytes

from anodev2.gradient import Direct

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32


class Figure(NamedTuple):
    """A ratio of two contenders at the same work, and what it should not exceed."""

    ours: str
    peer: str
    steps: int
    dtype: torch.dtype
    limit: float | None = None


TIMES = [
    Figure("Direct()", "by hand", 5, BFLOAT16, 1.0),
    Figure("Direct()", "by hand, fused", 5, BFLOAT16),
    Figure("evolution", "Direct()", 5, BFLOAT16, 0.01),
    Figure("Checkpoint(5)", "torch.utils.checkpoint", 5, BFLOAT16, 1.0),
    Figure("Checkpoint(5)", "torch.utils.checkpoint, fused", 5, BFLOAT16),
    Figure("Direct()", "by hand", 5, FLOAT32, 1.0),
    Figure("Direct()", "by hand, fused", 5, FLOAT32),
    Figure("evolution", "Direct()", 5, FLOAT32, 0.01),
    Figure("Checkpoint(5)", "torch.utils.checkpoint", 5, FLOAT32, 1.0),
    Figure("Checkpoint(5)", "torch.utils.checkpoint, fused", 5, FLOAT32),
    Figure("Direct()", "odeint_adjoint", 5, FLOAT32, 0.6),
    Figure("Binomial(4)", "odeint_adjoint", 40, FLOAT32, 0.85),
    Figure("Binomial(4)", "Direct()", 40, FLOAT32, 2.0),
    Figure("Direct()", "odeint", 40, FLOAT32, 1.0),
]
JAX_BATCH = 16
"""Images in z(0) beside diffrax, whose kernel gradients take XLA minutes on a CPU with more."""
JAX_TIMES = [
    Figure("Direct()", "diffrax", 5, FLOAT32, 1.0),
    Figure("Binomial(4)", "diffrax", 40, FLOAT32, 1.0),
]
PEAKS = [
    Figure("Checkpoint(5)", "torch.utils.checkpoint", 5, BFLOAT16, 1.0),
    Figure("Checkpoint(5)", "torch.utils.checkpoint", 5, FLOAT32, 1.0),
    Figure("Binomial(4)", "by hand", 40, BFLOAT16, 1 / 12),
    Figure("Binomial(4)", "by hand", 40, FLOAT32, 1 / 12),
    Figure("Binomial(4)", "odeint", 40, FLOAT32, 1 / 12),
]


def main() -> None:
    """Measure and print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="counted runs of each job")
    parser.add_argument("--batch", type=int, default=256, help="images in z(0)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", default="", help="figures whose contenders' names contain this")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"batch {options.batch}, {options.threads} threads")
    compare_groups(chosen(TIMES, options.only), options.batch, options.rounds)
    for figure in chosen(PEAKS, options.only):
        compare_peaks(figure, Work(figure.steps, options.batch, figure.dtype))
    if find_spec("diffrax") is None:
        print("diffrax is left out: pip install 'anodev2[bench]'")
        return
    compare_groups(chosen(JAX_TIMES, options.only), min(JAX_BATCH, options.batch), options.rounds)


def chosen(figures: list[Figure], word: str) -> list[Figure]:
    return [f for f in figures if word in f"{f.ours} {f.peer}"]


def compare_groups(figures: list[Figure], batch: int, rounds: int) -> None:
    """Times of figures, those of the same work together."""
    for steps, dtype in dict.fromkeys((f.steps, f.dtype) for f in figures):
        group = [f for f in figures if (f.steps, f.dtype) == (steps, dtype)]
        compare_times(group, Work(steps, batch, dtype), rounds)


def compare_times(figures: list[Figure], work: Work, rounds: int) -> None:
    """Figures of one number of steps and one precision, all jobs in turn."""
    names = dict.fromkeys(name for f in figures for name in (f.ours, f.peer))
    jobs = {
        name: evolution(work.steps) if name == "evolution" else job(name, work) for name in names
    }
    adjoint = "odeint_adjoint"
    if adjoint in jobs:  # flattening undoes channels_last, so it may be faster without
        default = Work(work.steps, work.batch, work.dtype, channels_last=False)
        jobs[f"{adjoint}, default layout"] = job(adjoint, default)
    times = alternate(jobs, rounds)
    if adjoint in jobs:
        times[adjoint] = min(times[adjoint], times[f"{adjoint}, default layout"])
    print(
        f"\n{work.steps} steps, {work.dtype}, batch {work.batch}: "
        + ", ".join(f"{name} {1000 * t:.1f} ms" for name, t in times.items())
    )
    for figure in figures:
        say("time", figure, times[figure.ours] / times[figure.peer])


def evolution(steps: int) -> Job:
    """The evolution of all weights of a block, forward and backward."""
    coupled = block(steps, Direct())
    return lambda: torch.autograd.backward(
        [theta.sum() for theta in coupled.weight_trajectory().values()]
    )


def compare_peaks(figure: Figure, work: Work) -> None:
    """One ratio of peaks."""
    ours, peer = (peak_bytes(name, work) for name in (figure.ours, figure.peer))
    print(f"\n{work.steps} steps, {work.dtype}: {ours / 1e6:.0f} MB and {peer / 1e6:.0f} MB")
    say("peak", figure, ours / peer)


def say(kind: str, figure: Figure, ratio: float) -> None:
    limit = "" if figure.limit is None else f"  (to reach: {figure.limit:.3g})"
    print(f"  {kind}, {figure.ours} against {figure.peer}: {ratio:.3f}{limit}", flush=True)


if __name__ == "__main__":
    main()
