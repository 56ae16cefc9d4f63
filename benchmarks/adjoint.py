"""How wrong the continuous adjoint is, and the state that it solves backward.

    python benchmarks/adjoint.py [--picture docs/adjoint.png]

Left: the relative distance of the adjoint's gradient of all parameters to that of the discrete
program (`Direct`), against the number of Euler steps, as in `anodev2 figures adjoint`. Right: the
relative distance of z(0), solved backward from z(1) with as many steps, to the true one.
"""

import argparse

import torch

from anodev2 import CoupledODE
from anodev2.experiment.figures.adjoint import (
    STEPS,
    Errors,
    distance,
    draw_errors,
    errors,
    gradient_error,
    start,
)


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


def main() -> None:
    """Print both errors for each field, and draw them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", help="file to draw the two errors to")
    picture = parser.parse_args().picture
    titles = {"gradient": gradient_error, "z(0) solved backward": reverse_error}
    found = {title: errors(error) for title, error in titles.items()}
    for title, curves in found.items():
        print(f"relative error of the {title}")
        print(f"{'steps':>12}" + "".join(f"{steps:>9}" for steps in STEPS))
        for name, values in curves.items():
            print(f"{name:>12}" + "".join(f"{value:9.4f}" for value in values))
    if picture:
        draw(found, picture)


def draw(found: dict[str, Errors], path: str) -> None:
    """Both errors against steps, with a line of first order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, 2), found.items(), strict=True):
        draw_errors(axes, curves)
        axes.set_title(f"relative error of the {title}")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
