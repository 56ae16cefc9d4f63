"""What the paper's claims are judged by."""

from dataclasses import dataclass

from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.timing import Seconds

CONFIGURATIONS = {"anodev2-1": "configuration 1", "anodev2-2": "configuration 2"}


@dataclass(frozen=True)
class Evidence:
    """What the claims are judged by.

    Args:
        runs: finished ones.
        seconds: of training steps, by network and kind.
    """

    runs: Collection
    seconds: Seconds
