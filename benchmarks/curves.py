"""Memory and time against the number of steps, for every gradient strategy.

    python benchmarks/curves.py [--rounds N] [--batch N] [--threads N] [--picture FILE]

Work: ResNet-4's block, configuration 1, float32, channels_last. Peaks are of one forward and
backward pass in a fresh process each; times are medians of jobs run in turn. For Binomial(4) it
prints time per step, relative to five steps, beside what its schedule says: with an evaluation
as the unit and two of them for a backward step, (N + again(N) + N + 2 N) / N, where again(N)
counts the steps run again without a tape.
"""

import argparse

import torch
from contenders import Work, job
from measure import alternate, peak_bytes

from anodev2.gradient.schedule import Advance, binomial_schedule

STEPS = [5, 10, 20, 40, 80]
STRATEGIES = ["Direct()", "Checkpoint(1)", "Checkpoint(5)", "Binomial(4)", "ContinuousAdjoint()"]
Curves = dict[str, list[float]]


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each job")
    parser.add_argument("--batch", type=int, default=64, help="images in z(0)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--picture", help="file to draw both to")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    works = [Work(steps, options.batch) for steps in STEPS]
    times: Curves = {name: [] for name in STRATEGIES}
    for work in works:
        found = alternate({name: job(name, work) for name in STRATEGIES}, options.rounds)
        for name, seconds in found.items():
            times[name].append(seconds)
    state = 4 * works[0].z0().numel()
    peaks = {name: [peak_bytes(name, work) / state for work in works] for name in STRATEGIES}
    show("seconds", times)
    show("peak in states", peaks)
    measured = [t / steps for t, steps in zip(times["Binomial(4)"], STEPS, strict=True)]
    expected = [scheduled(steps) for steps in STEPS]
    show(
        "time per step, Binomial(4), relative to five steps",
        {
            "measured": [t / measured[0] for t in measured],
            "by schedule": [t / expected[0] for t in expected],
        },
    )
    if options.picture:
        draw(times, peaks, options.picture)


def scheduled(steps: int) -> float:
    """Evaluations a step by the schedule of Binomial(4), a backward step counted as two."""
    actions = binomial_schedule(steps, 4).backward
    again = sum(a.stop - a.start for a in actions if isinstance(a, Advance))
    return (steps + again + steps + 2 * steps) / steps


def show(title: str, curves: Curves) -> None:
    print(f"\n{title:>24}" + "".join(f"{steps:>9}" for steps in STEPS))
    for name, values in curves.items():
        print(f"{name:>24}" + "".join(f"{value:9.3f}" for value in values))


def draw(times: Curves, peaks: Curves, path: str) -> None:
    """Peak and time against steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, curves in ((left, peaks), (right, times)):
        for name, values in curves.items():
            axes.loglog(STEPS, values, marker="o", markersize=4, label=name)
        axes.set(xlabel="steps", xticks=STEPS)
        axes.set_xticklabels(STEPS)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.set(title="peak memory, in states z", yticks=(10, 20, 50, 100, 200))
    left.set_yticklabels((10, 20, 50, 100, 200))
    right.set(title="forward and backward pass, in seconds", yticks=(0.1, 0.2, 0.5, 1, 2, 5))
    right.set_yticklabels((0.1, 0.2, 0.5, 1, 2, 5))
    left.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
