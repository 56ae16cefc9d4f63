"""How wrong the continuous adjoint is, and the state that it solves backward.

    python benchmarks/adjoint.py [--picture docs/adjoint.png]

Left: the relative distance of the adjoint's gradient of all parameters to that of the discrete
program (`Direct`), against the number of Euler steps. Right: the relative distance of z(0),
solved backward from z(1) with as many steps, to the true one. Fields are two 3x3 convolutions
of 8 channels with ReLU, leaky ReLU or tanh between and after them; sigma is None, weights move.
"""

import argparse
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.gradient import ContinuousAdjoint, Direct, GradientStrategy

STEPS = [1, 2, 5, 10, 20, 40, 80, 160]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "leaky ReLU": nn.LeakyReLU,
    "tanh": nn.Tanh,
}


def moving_block(activation: Callable[[], nn.Module], steps: int) -> CoupledODE:
    """A block in float64 whose weights and coefficients are the same for any steps."""
    torch.manual_seed(0)
    links = [(nn.Conv2d(8, 8, 3, padding=1, bias=False), activation()) for _ in range(2)]
    field = nn.Sequential(*(module for link in links for module in link))
    evolution = partial(ReactionDiffusionAdvection, activation=None)
    block = CoupledODE(field, coupling=configuration_1(steps), evolution=evolution)
    for convolution, _ in links:
        nn.init.kaiming_normal_(convolution.weight)
    for p in block.evolution.parameters():
        nn.init.normal_(p, std=0.1)
    return block.double()


def start() -> Tensor:
    return torch.randn(
        4, 8, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def gradient(block: CoupledODE, strategy: GradientStrategy) -> Tensor:
    """Of half the mean square of z(1), by all parameters."""
    copy = deepcopy(block)
    copy.gradient = strategy
    copy(start()).square().mean().div(2).backward()
    return torch.cat([p.grad.flatten() for p in copy.parameters() if p.grad is not None])


def gradient_error(block: CoupledODE) -> float:
    exact, adjoint = (gradient(block, s) for s in (Direct(), ContinuousAdjoint()))
    return distance(adjoint, exact)


@torch.no_grad()
def reverse_error(block: CoupledODE) -> float:
    """Euler from z(1) to z(0) with the weights of each step, against the true z(0)."""
    steps = block.coupling.z_steps
    z = block(start())
    theta = {name.removeprefix("field."): w for name, w in block.weight_trajectory().items()}
    for i in reversed(range(steps)):
        weights = {name: w[i] for name, w in theta.items()}
        z = z - torch.func.functional_call(block.field, weights, (z,)) / steps
    return distance(z, start())


def distance(found: Tensor, true: Tensor) -> float:
    return ((found - true).norm() / true.norm()).item()


def main() -> None:
    """Print both errors for each field, and draw them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", help="file to draw the two errors to")
    picture = parser.parse_args().picture
    titles = {"gradient": gradient_error, "z(0) solved backward": reverse_error}
    errors = {
        title: {
            name: [error(moving_block(activation, steps)) for steps in STEPS]
            for name, activation in ACTIVATIONS.items()
        }
        for title, error in titles.items()
    }
    for title, curves in errors.items():
        print(f"relative error of the {title}")
        print(f"{'steps':>12}" + "".join(f"{steps:>9}" for steps in STEPS))
        for name, values in curves.items():
            print(f"{name:>12}" + "".join(f"{value:9.4f}" for value in values))
    if picture:
        draw(errors, picture)


def draw(errors: dict[str, dict[str, list[float]]], path: str) -> None:
    """Both errors against steps, with a line of first order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, 2), errors.items(), strict=True):
        for style, (name, values) in zip(("-", "--", "-"), curves.items(), strict=True):
            axes.loglog(STEPS, values, style, marker="o", markersize=4, label=name)
        axes.loglog(STEPS, [0.5 / n for n in STEPS], "k:", linewidth=1, label="first order")
        axes.set(title=f"relative error of the {title}", xlabel="Euler steps", xticks=STEPS)
        axes.set_xticklabels(STEPS)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
