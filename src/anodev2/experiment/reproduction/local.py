"""Runs in processes of this machine, one after another or side by side."""

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGINT, SIGTERM, pthread_sigmask
from threading import Thread

import torch

from anodev2.experiment.config import RunConfig
from anodev2.experiment.reproduction.engine import Engine, Outcome, carry_out, tell_retry
from anodev2.usage import check_count


@dataclass(frozen=True)
class Local(Engine):
    """Processes of this machine, one a run; a run whose process is killed is tried again once.

    On a machine with GPUs the processes take them in turn, so that as many runs as there are GPUs
    have one each.

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
        free = _places(self.processes)
        try:
            while waiting or running:
                while waiting and free:
                    worker = self._start(waiting.popleft(), out, free.popleft())
                    running[worker.receiver] = worker
                for receiver in wait(list(running)):
                    assert isinstance(receiver, Connection)
                    worker = running.pop(receiver)
                    free.append(worker.gpu)
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

    def _start(self, config: RunConfig, out: Path, gpu: str | None) -> "_Worker":
        spawn = get_context("spawn")
        receiver, sender = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=_work,
            args=(sender, config, out, self.threads, self.processes > 1, gpu),
            name=config.name,
            daemon=True,
        )
        # Ctrl-C in a terminal reaches all its processes; this one answers for the others, which
        # inherit what it blocks. A request to end waits until the process is known here. The
        # tracker, if it starts in between, would unblock.
        resource_tracker.ensure_running()
        before = pthread_sigmask(SIG_BLOCK, {SIGINT, SIGTERM})
        try:
            process.start()
        finally:
            pthread_sigmask(SIG_SETMASK, before)
        sender.close()
        return _Worker(config, process, receiver, gpu)


@dataclass(frozen=True)
class _Worker:
    config: RunConfig
    process: BaseProcess
    receiver: Connection
    gpu: str | None

    def end(self) -> tuple[Outcome | None, str]:
        """Wait for the process; its outcome, None if it was killed before, and exit status."""
        outcome: Outcome | None = None
        with suppress(EOFError, OSError):
            outcome = self.receiver.recv()
        self.receiver.close()
        self.process.join()
        return outcome, f"exit status {self.process.exitcode}"


def _places(count: int) -> "deque[str | None]":
    """The GPU of each of `count` processes, as CUDA_VISIBLE_DEVICES names it; None without any."""
    gpus = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(k) for k in range(gpus)]
    return deque(names[k % gpus] if gpus else None for k in range(count))


def _work(
    sender: Connection,
    config: RunConfig,
    out: Path,
    threads: int,
    beside: bool,
    gpu: str | None,
) -> None:
    """A process's whole life: it ends with its parent, even if that is killed."""
    Thread(target=_end_with_parent, daemon=True).start()
    pthread_sigmask(SIG_UNBLOCK, {SIGTERM})
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
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
