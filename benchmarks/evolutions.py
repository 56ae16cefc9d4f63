"""What each evolution and memory kernel adds to ResNet-10: numbers, and share of a training step.

    python benchmarks/evolutions.py [--rounds N] [--batch N] [--threads N]

Configuration 1, bfloat16 where the machine has it. The motion of all evolved weights, forward and
backward, and a whole training step are run in turn in one process; medians after six runs of each.
"""

import argparse
from collections.abc import Callable

import torch
from measure import alternate

from anodev2 import CoupledODE
from anodev2.experiment.config import fast_precision
from anodev2.experiment.spelling import moving
from anodev2.models import build_model

WAYS = [
    ("rda", "dirac", 0.03),
    ("rda:activation=none", "dirac", 0.03),
    ("rda:solver=rk4", "dirac", 0.03),
    ("rda:coefficients=point", "dirac", 0.03),
    ("rda:compression=4", "dirac", 0.03),
    ("linear", "dirac", 0.03),
    ("linear:form=skew", "dirac", 0.03),
    ("linear:form=low-rank", "dirac", 0.03),
    ("network", "dirac", 0.10),
    ("coordinate", "dirac", 0.10),
    ("piecewise-linear", "dirac", 0.03),
    ("legendre", "dirac", 0.03),
    ("fourier", "dirac", 0.03),
    ("rda", "exponential:learn=true", 0.03),
    ("rda", "gaussian:learn=true", 0.03),
    ("rda", "uniform", 0.03),
    ("rda", "learned", 0.03),
]
"""Evolution, memory kernel, and the share of a step that it should not exceed."""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="counted runs of each job")
    parser.add_argument("--batch", type=int, default=256, help="images a step")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    jobs: dict[str, Callable[[], None]] = {"step": step(options.batch)}
    p = {}
    for evolution, memory, _ in WAYS:
        name = f"{evolution}, {memory}"
        jobs[name], p[name] = motion(evolution, memory)
    seconds = alternate(jobs, options.rounds)
    print(
        f"resnet10, batch {options.batch}, {options.threads} threads, {fast_precision()}; ", end=""
    )
    print(f"a training step takes {1000 * seconds['step']:.0f} ms\n")
    print("| evolution | memory | p | share of a step | to reach |")
    print("| --- | --- | ---: | ---: | ---: |")
    for evolution, memory, limit in WAYS:
        name = f"{evolution}, {memory}"
        share = seconds[name] / seconds["step"]
        print(
            f"| {evolution} | {memory} | {p[name]:,} | {100 * share:.1f} % | {100 * limit:.0f} % |"
        )


def motion(evolution: str, memory: str) -> tuple[Callable[[], None], int]:
    """Solving the evolution ODE of all blocks forward and backward; and the count of p."""
    model = build_model("resnet10", moving=moving(evolution, memory, "none"))
    blocks = [module for module in model.modules() if isinstance(module, CoupledODE)]

    def run() -> None:
        for block in blocks:
            theta = [x for path in block.paths().values() for x in path.theta if x.requires_grad]
            torch.autograd.backward(theta, [torch.ones_like(x) for x in theta])

    movers = [module for block in blocks for module in (block.evolution, block.memory)]
    return run, sum(x.numel() for module in movers for x in module.parameters())


def step(batch: int) -> Callable[[], None]:
    """A training step of ResNet-10 by configuration 1, without the optimizer."""
    model = build_model("resnet10").to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    cast = fast_precision() == "bfloat16"

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            loss = model(images).float().logsumexp(1).mean()
        loss.backward()

    return run


if __name__ == "__main__":
    main()
