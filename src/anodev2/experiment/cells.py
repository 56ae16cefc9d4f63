"""What the reports of comparisons and of the paper's tables say in the same words."""

from collections.abc import Sequence
from statistics import mean

from anodev2.experiment.result import Result

JPEG_COPIES = (
    "These images are JPEG copies of CIFAR-10: compare methods with each other here, and with the "
    "paper's accuracies only with that in mind."
)


def is_jpeg_copy(result: Result) -> bool:
    """Whether a run's images are CIFAR-10's, but not to the bit."""
    return bool(result.data["is_cifar10"] and result.data["encoding"] == "JPEG")


def per_cent(share: float) -> str:
    """A share in per cent to three digits, hundreds and more without an exponent."""
    rounded = float(f"{100 * share:.3g}")
    return f"{rounded:,.0f} %" if abs(rounded) >= 100 else f"{rounded:g} %"


def counted(count: int, what: str) -> str:
    """As in 1 epoch, 2 epochs."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def motion_cells(runs: Sequence[Result]) -> list[str]:
    """How many numbers move the weights, and how far on average; empty for weights at rest."""
    motions = [run.motion for run in runs if run.motion]
    distances = [motion["distance"] for motion in motions if motion["distance"] is not None]
    moved = f"{100 * mean(distances):.1f} %" if distances else ""
    return [f"{motions[0]['p']:,}" if motions else "", moved]
