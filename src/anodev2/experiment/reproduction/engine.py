"""Where runs run: an engine is a file and a line in `ENGINES`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import torch

from anodev2.experiment.config import RunConfig
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import Busy
from anodev2.experiment.run import train_run
from anodev2.usage import UsageError


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Args:
        config: the run.
        state: "done", its result is in its folder; "failed"; "busy", another process has it.
        reason: why it is not done.
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
    def side_by_side(self) -> int:
        """How many runs go at once."""

    @abstractmethod
    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        """Carry out every run.

        Args:
            configs: the runs.
            out: the folder that `runs` lies in, the same for all that share the work.

        Returns:
            One outcome a run, as each ends.
        """


def carry_out(config: RunConfig, out: Path, threads: int) -> Outcome:
    """Carry out one run in this process, with that many threads.

    Threads are part of what a run is: sums are ordered by them.
    """
    torch.set_num_threads(threads)
    try:
        train_run(config, out, resume=None)
    except Busy as busy:
        return Outcome(config, "busy", str(busy))
    except (RunFailure, UsageError) as error:
        return Outcome(config, "failed", str(error))
    return Outcome(config, "done")


@dataclass(frozen=True)
class Local(Engine):
    """Processes of this machine.

    Args:
        processes: how many runs go side by side.
        threads: of each.
    """

    processes: int
    threads: int

    @property
    def side_by_side(self) -> int:
        return self.processes

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        with ProcessPoolExecutor(
            self.processes, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as pool:
            futures = {pool.submit(carry_out, c, out, self.threads): c for c in configs}
            try:
                for future in as_completed(futures):
                    yield _outcome(futures[future], future)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _outcome(config: RunConfig, future: "Future[Outcome]") -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(config, "failed", "its process was killed")
