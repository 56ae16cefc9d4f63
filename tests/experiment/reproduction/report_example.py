"""A report with all that a page can hold: the paper's figures, others beside them, made up."""

import math
from pathlib import Path

import torch

from anodev2.experiment.figures.curves import accuracy_curves
from anodev2.experiment.figures.kernels import kernel_evolution
from anodev2.experiment.paper import PAPER
from anodev2.experiment.reproduction.document import Claim, Document, Picture, Section, Table

NASTY = "<script>alert(1)</script> | & &lt; \"double\" 'single' *stars* _lines_ [a](b) `ticks`"

COLUMNS = (
    "method",
    "runs",
    "min / max",
    "average",
    "paper: min / max",
    "paper: average",
    "difference to baseline",
    "95 % interval",
    "parameters",
    "time a run",
)


def accuracy(model: str) -> Table:
    rows = []
    for position, (method, paper) in enumerate(PAPER[model].items()):
        measured = method != "neural-ode" or model == "resnet4"
        least, most, average = paper.least - 8.1, paper.most - 7.9, paper.average - 8.02
        difference = average - (PAPER[model]["baseline"].average - 8.02)
        rows.append(
            (
                method,
                "5" if measured else "",
                f"{least:.2f} / {most:.2f}" if measured else "",
                f"{average:.2f}" if measured else "",
                f"{paper.least:.2f} / {paper.most:.2f}",
                f"{paper.average:.2f}",
                f"{difference:+.2f}".replace("-", "−") if measured and position else "",
                f"{difference:+.1f} ± 0.5".replace("-", "−") if measured and position else "",
                f"{paper.parameters:,.2f} K",
                f"{9 + 17 * position % 50} min" if measured else "",
            )
        )
    return Table(COLUMNS, rows)


CLAIMS = (
    Claim(
        "Configuration 1 is above the baseline in min, max and average.",
        "holds here",
        "resnet4: 69.17 / 70.68 / 70.09 against 68.37 / 69.45 / 68.93, 5 seeds; resnet10 too.",
    ),
    Claim(
        "The worst run of configuration 1 is above the best of the baseline.",
        "does not hold here",
        "resnet4: 69.17 is not above 69.45. The paper's own table says the same of ResNet-4.",
    ),
    Claim(
        "Configuration 2 is above the baseline in min, max and average.",
        "holds here",
        "resnet4: 69.13 / 70.38 / 69.71, resnet10: 80.55 / 81.29 / 80.91.",
    ),
    Claim(
        "Both are above ANODE at the same number of steps.",
        "does not hold here",
        "`anode-5` 70.12 on average, `anodev2-1` 70.09: −0.03 ± 0.41.",
    ),
    Claim("A Neural ODE is far below.", "holds here", "resnet4: 39.35 against 68.93."),
    Claim(
        "More steps do not help a Neural ODE but help the coupled one.",
        "not measured",
        "Runs `resnet4-neural-ode-10-seed0` to `seed4` are missing.",
    ),
    Claim(
        "Configuration 1 costs about N times and configuration 2 twice the baseline.",
        "holds here",
        "3.7 and 1.7 times, N = 5.",
    ),
    Claim(
        "The model grows by 0.5 % at most.",
        "does not hold here",
        "alexnet: 0.047 % in the paper's own table, resnet4: 6.7 %.",
    ),
)

REPORT = Document(
    "Accuracy of three networks on CIFAR-10",
    "Runs of `anodev2 reproduce accuracy-1` beside the paper's figures: three networks, five "
    "methods, five seeds, 60 epochs where the paper trains 350.",
    [
        Section(
            "What the paper claims",
            [
                "A claim holds here where all runs of this report say so.",
                CLAIMS,
            ],
        ),
        Section(
            "AlexNet",
            ["Accuracies are on the test images after the last epoch.", accuracy("alexnet")],
        ),
        Section(
            "ResNet-4",
            [
                accuracy("resnet4"),
                Picture("accuracy-resnet4", "Test accuracy of ResNet-4 after each epoch"),
                Picture("kernels-resnet4", "A convolution kernel evolving"),
            ],
        ),
        Section("ResNet-10", [accuracy("resnet10")]),
        Section(
            "Where it ran",
            [
                "These images are JPEG copies of CIFAR-10: compare methods with each other here.",
                Table(
                    ("what", "value"),
                    [
                        ("machine", "2 cores"),
                        ("versions", "python 3.11.7, torch 2.13.0+cpu, lightning 2.6.6"),
                        ("git revision", "71ff37220b0a56810fe6840c60ed69ea1fc665da"),
                        ("seeds", "0, 1, 2, 3, 4"),
                    ],
                ),
            ],
        ),
    ],
)


def draw(folder: Path) -> dict[str, str]:
    """SVG sources of the report's pictures, drawn in a folder."""
    curves = {
        method: [
            [
                row.average / 100 * (1 - 0.8 * math.exp(-epoch / 9)) + 0.003 * seed
                for epoch in range(60)
            ]
            for seed in range(3)
        ]
        for method, row in PAPER["resnet4"].items()
    }
    accuracy_curves(curves, folder / "accuracy-resnet4.svg")
    times = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    kernel = torch.linspace(-1, 1, 9).reshape(1, 3, 3)
    moved = torch.stack([kernel[0] * (1 - 0.5 * time) for time in times])
    kernel_evolution({"anodev2-1": (times, moved)}, folder / "kernels-resnet4.svg")
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.svg"))}
