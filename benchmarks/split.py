"""The split and the unsplit form of reaction-diffusion-advection with tanh, against the steps.

    python benchmarks/split.py [--picture FILE]

|w(1)| / |w(0)| of a kernel under pure diffusion and none at all, in float64: the unsplit form has a
limit, the split form applies tanh once a step and has none.
"""

import argparse
from pathlib import Path

import torch

from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.solver import RK4

STEPS = (1, 2, 5, 10, 20, 40, 80, 160)
FORMS = {"split": None, "unsplit, RK4": RK4()}


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="file to draw the norms to")
    options = parser.parse_args()
    found = {}
    print(f"| steps | {' | '.join(map(str, STEPS))} |")
    print(f"| --- {'| ---: ' * len(STEPS)}|")
    for d in (0.0, 0.1):
        for form in FORMS:
            name = f"{form}, d = {d:g}"
            found[name] = [norm(form, d, steps) for steps in STEPS]
            print(f"| {name} | {' | '.join(f'{x:.4f}' for x in found[name])} |")
    if options.picture:
        draw(found, options.picture)


@torch.no_grad()
def norm(form: str, d: float, steps: int) -> float:
    """|w(1)| / |w(0)| after so many steps."""
    torch.manual_seed(0)
    w0 = 0.5 * torch.randn(8, 8, 3, 3, dtype=torch.float64)
    operator = ReactionDiffusionAdvection(w0.shape, solver=FORMS[form]).double()
    operator.d.fill_(d)
    w = w0
    for m in range(steps):
        w = operator(w, m / steps, 1 / steps)
    return (w.norm() / w0.norm()).item()


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Norms against the number of steps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, values in found.items():
        dashed = "--" if "unsplit" in name else "-"
        axes.semilogx(STEPS, values, dashed, marker="o", markersize=4, label=name)
    axes.set(xlabel="w-steps", ylabel="|w(1)| / |w(0)|", ylim=(0, 1.05))
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
