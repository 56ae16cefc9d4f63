"""The processes of a run that several devices or nodes share.

Lightning starts the run's own command line again for each further device, with LOCAL_RANK in
the environment; a node's first process is started by hand, by torchrun or by Slurm. The first
process of all owns the folder and speaks; the others train along.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import TimeoutExpired
from threading import Thread

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from anodev2.experiment.config import RunConfig
from anodev2.experiment.failure import RunFailure
from anodev2.usage import UsageError

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
SECONDS_TO_END = 60
"""What the others may take to end after the last epoch."""


def is_first(config: RunConfig) -> bool:
    """Whether this process is the first of its run, the one that writes and speaks."""
    return config.processes == 1 or not any(int(os.environ.get(name, 0)) for name in RANKS)


def check_processes(config: RunConfig) -> None:
    """Refuse more GPUs than there are, and nodes that nothing brings together.

    Raises:
        UsageError: either.
    """
    found = torch.cuda.device_count()
    if found and config.devices > found:
        raise UsageError(f"devices {config.devices}: this machine has {found} GPUs; take {found}")
    if config.num_nodes > 1 and not {"MASTER_ADDR", "SLURM_NTASKS"} & os.environ.keys():
        raise UsageError(
            f"{config.num_nodes} nodes, but no MASTER_ADDR in the environment: expected "
            "MASTER_ADDR, MASTER_PORT and each node's NODE_RANK, or num_nodes=1"
        )


class Stops(Callback):
    """A request to end goes to the first process as an interruption; it ends the others.

    Lightning's own way has every process announce a SIGTERM to the others from wherever it is,
    which can leave them waiting for each other.
    """

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        ends = signal.default_int_handler if trainer.local_rank == 0 else signal.SIG_IGN
        signal.signal(signal.SIGTERM, ends)


class Launcher(_SubprocessScriptLauncher):
    """Lightning's, but the processes it starts leave Ctrl-C to the one that starts them."""

    def _call_children_scripts(self) -> None:
        heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which they inherit
        try:
            super()._call_children_scripts()
        finally:
            signal.signal(signal.SIGINT, heeded)


class Shares(DDPStrategy):
    """Averages gradients over processes; see `Classification` for batch norm's statistics.

    DDP would share those at each batch, and wait for ever where one process has a test batch
    more than another.
    """

    def __init__(self) -> None:
        super().__init__(broadcast_buffers=False)

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = Launcher(self.cluster_environment, self.num_processes, self.num_nodes)


@contextmanager
def companions(trainer: Trainer) -> Iterator[None]:
    """Leave none of the processes behind that Lightning starts from this one meanwhile.

    Raises:
        RunFailure: one of them died.
    """
    launcher = trainer.strategy.launcher
    try:
        yield
    except RuntimeError as error:
        # One that died is seen to be dead a moment after its connections close.
        died = [status for status in _end(launcher, seconds=1) if status]
        if isinstance(error, RunFailure) or not died:
            raise
        raise RunFailure(
            f"a process of the run ended with status {died[0]}; --resume goes on after the last "
            "finished epoch"
        ) from error
    except BaseException:
        _end(launcher, seconds=0)
        raise
    _end(launcher, seconds=SECONDS_TO_END)


def _end(launcher: object, *, seconds: float) -> list[int]:
    """Kill the started processes that do not end in time; the status of those that did."""
    if not isinstance(launcher, Launcher):
        return []
    processes = list(launcher.procs)
    launcher.procs.clear()  # Lightning watches the list, to kill this process if one ends badly
    statuses = []
    for process in processes:
        try:
            statuses.append(process.wait(seconds))
        except TimeoutExpired:
            process.kill()
            process.wait()
    return statuses


@contextmanager
def following() -> Iterator[None]:
    """What this process does meanwhile it does for another process of its run.

    One that was started by another process of this machine ends with that one, and ends in
    silence when the run fails, because that one says so.
    """
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        yield
        return
    Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    try:
        yield
    except RunFailure:
        sys.exit(0)  # any other status has Lightning kill the process that explains the failure
    except RuntimeError:
        time.sleep(1)  # a dead process's connections close before it is seen to be dead
        raise


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
