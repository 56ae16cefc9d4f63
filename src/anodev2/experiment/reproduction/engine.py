"""What carries out runs: an engine is a class here, a file of its own and a name in `engines`."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from anodev2.experiment.config import RunConfig
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import Busy
from anodev2.experiment.training.run import train_run
from anodev2.usage import UsageError, first_line


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Args:
        config: the run.
        state: "done", its result is in its folder; "failed"; "busy", another process has it.
        reason: why it is not done, one line.
    """

    config: RunConfig
    state: Literal["done", "failed", "busy"]
    reason: str = ""


class Engine(ABC):
    """Carries out runs in `out/runs`, each from its last checkpoint if it has one.

    Args:
        threads: of each run.
    """

    threads: int

    @property
    @abstractmethod
    def side_by_side(self) -> int | None:
        """How many runs go at once, None where that shows only then."""

    @abstractmethod
    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        """Carry out every run.

        No process is left when the iterator ends, is closed or raises: what is not done yet
        goes on from its last checkpoint the next time.

        Args:
            configs: the runs.
            out: the folder that `runs` lies in, the same for all that share the work.

        Returns:
            One outcome a run, as each ends.
        """


def carry_out(config: RunConfig, out: Path, threads: int, *, patience: float = 0.0) -> Outcome:
    """Carry out one run in this process.

    Args:
        config: the run.
        out: the folder that `runs` lies in.
        threads: of this process; part of what a run is, since sums are ordered by them.
        patience: seconds to wait for another process that has the run.

    Returns:
        What became of it, whatever happened.
    """
    torch.set_num_threads(threads)
    deadline = time.monotonic() + patience
    while True:
        try:
            train_run(config, out, resume=None)
        except Busy as busy:
            if time.monotonic() >= deadline:
                return Outcome(config, "busy", str(busy))
            time.sleep(1)
        except (RunFailure, UsageError) as error:
            return Outcome(config, "failed", str(error))
        except Exception as error:  # one run's trouble must not end the others
            return Outcome(config, "failed", f"{type(error).__name__}: {first_line(error)}")
        else:
            return Outcome(config, "done")


def tell_retry(config: RunConfig, why: str) -> None:
    """Say on standard error that a run is taken up again."""
    print(f"anodev2: {config.name}: {why}; it goes on from its last checkpoint", file=sys.stderr)
