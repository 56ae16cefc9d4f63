"""The paper's numbers, for the tables beside ours.

Accuracy on CIFAR-10 in per cent, five runs [tables Nt_5_results, Nt_10_theta_results,
ablation_study]; parameters in thousands [table parameter_size].
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One method of one network: accuracies in per cent, parameters in thousands."""

    least: float
    most: float
    average: float
    parameters: float


NAMES = {"alexnet": "AlexNet", "resnet4": "ResNet-4", "resnet10": "ResNet-10"}
"""Of the networks, as the paper writes them."""
PAPER: dict[str, dict[str, PaperRow]] = {
    "alexnet": {
        "baseline": PaperRow(86.84, 87.15, 87.03, 1756.68),
        "neural-ode": PaperRow(74.54, 76.78, 75.67, 1757.13),
        "anode": PaperRow(87.86, 88.14, 88.02, 1757.13),
        "anodev2-1": PaperRow(88.59, 88.96, 88.78, 1757.51),
        "anodev2-2": PaperRow(88.10, 88.33, 88.26, 1757.13),
    },
    "resnet4": {
        "baseline": PaperRow(76.47, 77.35, 76.95, 7.71),
        "neural-ode": PaperRow(44.73, 49.91, 47.37, 7.96),
        "anode": PaperRow(76.92, 77.45, 77.30, 7.96),
        "anodev2-1": PaperRow(77.27, 78.58, 78.11, 8.23),
        "anodev2-2": PaperRow(77.23, 78.28, 77.73, 7.99),
    },
    "resnet10": {
        "baseline": PaperRow(87.79, 88.52, 88.10, 44.19),
        "neural-ode": PaperRow(64.70, 70.06, 67.94, 44.95),
        "anode": PaperRow(88.48, 88.75, 88.60, 44.95),
        "anodev2-1": PaperRow(88.67, 89.39, 89.04, 45.77),
        "anodev2-2": PaperRow(88.65, 89.19, 88.93, 45.05),
    },
}
