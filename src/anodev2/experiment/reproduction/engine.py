"""Where runs run: an engine is a file and a line in `ENGINES`."""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from threading import Thread
from typing import Literal

import torch

from anodev2.experiment.config import RunConfig
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import Busy
from anodev2.experiment.run import train_run
from anodev2.experiment.source import first_line
from anodev2.usage import UsageError, check_count


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
    def side_by_side(self) -> int:
        """How many runs go at once."""

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


@dataclass(frozen=True)
class Local(Engine):
    """Processes of this machine, one a run; a run whose process is killed is tried again once.

    Args:
        processes: how many runs go side by side.
        threads: of each.
    """

    processes: int
    threads: int

    @property
    def side_by_side(self) -> int:
        return self.processes

    def __post_init__(self) -> None:
        check_count("processes", self.processes)
        check_count("threads", self.threads)

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        waiting = deque(configs)
        killed: set[RunConfig] = set()
        running: dict[Connection, _Worker] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.processes:
                    worker = self._start(waiting.popleft(), out)
                    running[worker.receiver] = worker
                for receiver in wait(list(running)):
                    assert isinstance(receiver, Connection)
                    worker = running.pop(receiver)
                    outcome, status = worker.end()
                    if outcome is None and worker.config not in killed:
                        killed.add(worker.config)
                        waiting.appendleft(worker.config)
                        tell_retry(worker.config, f"its process was killed ({status})")
                        continue
                    reason = f"its process was killed ({status}), and again when it went on"
                    yield outcome or Outcome(worker.config, "failed", reason)
        finally:
            for worker in running.values():
                worker.process.kill()
            for worker in running.values():
                worker.end()

    def _start(self, config: RunConfig, out: Path) -> "_Worker":
        spawn = get_context("spawn")
        receiver, sender = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=_work,
            args=(sender, config, out, self.threads, self.processes > 1),
            name=config.name,
            daemon=True,
        )
        # Ctrl-C in a terminal reaches all its processes; this one answers for the others, which
        # inherit what it blocks. The tracker, if it starts in between, would unblock.
        resource_tracker.ensure_running()
        before = pthread_sigmask(SIG_BLOCK, {SIGINT})
        try:
            process.start()
        finally:
            pthread_sigmask(SIG_SETMASK, before)
        sender.close()
        return _Worker(config, process, receiver)


@dataclass(frozen=True)
class _Worker:
    config: RunConfig
    process: BaseProcess
    receiver: Connection

    def end(self) -> tuple[Outcome | None, str]:
        """Wait for the process; its outcome, None if it was killed before, and exit status."""
        outcome: Outcome | None = None
        with suppress(EOFError, OSError):
            outcome = self.receiver.recv()
        self.receiver.close()
        self.process.join()
        return outcome, f"exit status {self.process.exitcode}"


def _work(sender: Connection, config: RunConfig, out: Path, threads: int, beside: bool) -> None:
    """A process's whole life: it ends with its parent, even if that is killed."""
    Thread(target=_end_with_parent, daemon=True).start()
    if beside:
        sys.stderr = _Lines(sys.stderr.buffer, line_buffering=True)
    with suppress(KeyboardInterrupt):  # Lightning's answer to SIGTERM
        sender.send(carry_out(config, out, threads))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Lines(TextIOWrapper):
    """A stream for lines, also on a terminal: bars of several processes overwrite each other."""

    def isatty(self) -> bool:
        return False
