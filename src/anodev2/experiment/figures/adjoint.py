"""How wrong the gradient of the continuous adjoint is, against the number of steps.

The relative distance of its gradient of all parameters to that of the discrete program
(`Direct`), for a block of two 3x3 convolutions of 8 channels with ReLU, leaky ReLU or tanh
between and after them, in float64; sigma is None, weights move.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from anodev2.block import CoupledODE
from anodev2.coupling import configuration_1
from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.experiment.figures.picture import COLOURS
from anodev2.experiment.threads import torch_threads
from anodev2.gradient import ContinuousAdjoint, Direct, GradientStrategy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = (1, 2, 5, 10, 20, 40, 80, 160)
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "leaky ReLU": nn.LeakyReLU,
    "tanh": nn.Tanh,
}
Errors = Mapping[str, Sequence[float]]
"""For each activation the relative error at each number of steps."""


def moving_block(activation: Callable[[], nn.Module], steps: int) -> CoupledODE:
    """A block in float64 whose weights and coefficients are the same for any steps.

    Args:
        activation: makes what follows each of its convolutions.
        steps: Euler steps of configuration 1.
    """
    with torch.random.fork_rng(devices=[]):
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


def start() -> Float[Tensor, "4 8 16 16"]:
    """z(0), the same each time."""
    return torch.randn(
        4, 8, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def gradient(block: CoupledODE, strategy: GradientStrategy) -> Float[Tensor, "parameters"]:
    """Of half the mean square of z(1), by all parameters.

    Args:
        block: stays as it is.
        strategy: how to differentiate.
    """
    copy = deepcopy(block)
    copy.gradient = strategy
    copy(start()).square().mean().div(2).backward()
    return torch.cat([p.grad.flatten() for p in copy.parameters() if p.grad is not None])


def gradient_error(block: CoupledODE) -> float:
    """Relative distance of the continuous adjoint's gradient to the exact one."""
    exact, adjoint = (gradient(block, s) for s in (Direct(), ContinuousAdjoint()))
    return distance(adjoint, exact)


def distance(found: Float[Tensor, "*shape"], true: Float[Tensor, "*shape"]) -> float:
    """Relative to what is true, in the Euclidean norm."""
    return float((found - true).norm() / true.norm())


def errors(error: Callable[[CoupledODE], float], steps: Sequence[int] = STEPS) -> Errors:
    """An error of the block with each activation at each number of steps.

    One thread computes it: on tensors this small several wait for each other, beside a training
    a hundred times as long, and their sums have other last digits.

    Args:
        error: of a block, such as `gradient_error`.
        steps: Euler steps.
    """
    with torch_threads(1):
        return {
            name: [error(moving_block(activation, n)) for n in steps]
            for name, activation in ACTIVATIONS.items()
        }


def adjoint_figure(steps: Sequence[int] = STEPS) -> Figure:
    """The gradient's error against steps, both logarithmic, with a line of first order.

    Args:
        steps: Euler steps.
    """
    figure = Figure(figsize=(5.6, 4), layout="constrained")
    axes = figure.subplots()
    draw_errors(axes, errors(gradient_error, steps), steps)
    axes.set_title("continuous adjoint against the exact gradient", fontsize=10)
    axes.set_ylabel("relative error of the gradient g")
    return figure


def draw_errors(axes: "Axes", found: Errors, steps: Sequence[int] = STEPS) -> None:
    """Draw errors of each activation.

    Args:
        axes: where to.
        found: what `errors` gives.
        steps: Euler steps.
    """
    styles = zip(("-", "--", "-"), ("o", "x", "s"), COLOURS, found.items(), strict=False)
    for style, marker, colour, (name, values) in styles:
        axes.loglog(steps, values, style, marker=marker, color=colour, markersize=5, label=name)
    axes.loglog(steps, [0.5 / n for n in steps], "k:", linewidth=1, label="first order")
    axes.set_xlabel("Euler steps")
    axes.set_xticks(steps, [str(n) for n in steps])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
