"""How far the continuous optimality system is from the discrete one, against the step.

    python benchmarks/optimality.py [--picture FILE]

Both give the gradient of a block whose weights move (linear reaction-diffusion-advection and a
linear evolution), in float64 on the same forward pass. The discrete one is the gradient of what is
computed; relative distances to it are printed and drawn, with a line of slope one.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import LinearEvolution, ReactionDiffusionAdvection
from anodev2.optimality import continuous_gradients, gradients

STEPS = (2, 5, 10, 20, 40, 80, 160)
EVOLUTIONS = {
    "reaction-diffusion-advection": partial(ReactionDiffusionAdvection, activation=None),
    "linear": LinearEvolution,
}


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="file to draw the distances to")
    options = parser.parse_args()
    found = {}
    print(f"| Euler steps | {' | '.join(map(str, STEPS))} |")
    print(f"| --- {'| ---: ' * len(STEPS)}|")
    for name in EVOLUTIONS:
        rows = [distances(name, steps) for steps in STEPS]
        for group in ("w0", "p"):
            found[f"{group}, {name}"] = [row[group] for row in rows]
            cells = " | ".join(f"{row[group]:.4f}" for row in rows)
            print(f"| gradient of {group}, {name} | {cells} |")
    if options.picture:
        draw(found, options.picture)


def distances(name: str, steps: int) -> dict[str, float]:
    """Relative distance of the gradients of w0 and of p."""
    torch.manual_seed(0)
    field = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, padding=1))
    block = CoupledODE(field, coupling=configuration_1(steps), evolution=EVOLUTIONS[name]).double()
    with torch.no_grad():
        for p in block.evolution.parameters():
            p.uniform_(-0.1, 0.1)
    z0, dj_dz1 = torch.randn(2, 3, 4, 6, 6, dtype=torch.float64)
    exact, other = (f(block, z0, dj_dz1) for f in (gradients, continuous_gradients))
    names = {
        "w0": block.evolved,
        "p": [n for n, _ in block.named_parameters() if n.startswith("evolution.")],
    }
    return {
        group: (joined(other, chosen) - joined(exact, chosen)).norm().item()
        / joined(exact, chosen).norm().item()
        for group, chosen in names.items()
    }


def joined(values: dict[str, torch.Tensor], names: list[str]) -> torch.Tensor:
    """Some gradients as one vector."""
    return torch.cat([values[name].flatten() for name in names])


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Distance against the number of steps, both logarithmic."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, values in found.items():
        axes.loglog(STEPS, values, marker="o", markersize=4, label=name)
    first = found[next(iter(found))][1]
    axes.loglog(STEPS, [first * STEPS[1] / n for n in STEPS], "k--", lw=0.8, label="first order")
    axes.set(xlabel="Euler steps", ylabel="relative distance from the discrete gradient")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
