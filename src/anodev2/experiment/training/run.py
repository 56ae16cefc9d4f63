"""One training run in its folder: start, stop, resume, result.

DIR/runs/MODEL-METHOD-seedK/   config.yaml, metrics.csv, checkpoints/, tensorboard/,
                               and at the end result.json
"""

import logging
import signal
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from anodev2.experiment.config import PRECISIONS, RunConfig
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.environment import describe_environment
from anodev2.experiment.failure import failure_kept, written_or_failed
from anodev2.experiment.folder import claimed, run_state, set_aside_result, write_config
from anodev2.experiment.result import Result, describe_data
from anodev2.experiment.training.checkpoints import (
    WholeCheckpointIO,
    checkpoint_callbacks,
    checkpoint_to_resume,
)
from anodev2.experiment.training.evaluations import count_field_evaluations
from anodev2.experiment.training.history import History
from anodev2.experiment.training.initialization import initialize
from anodev2.experiment.training.motion import describe_motion
from anodev2.experiment.training.processes import (
    Shares,
    Stops,
    check_processes,
    companions,
    following,
    is_first,
)
from anodev2.experiment.training.progress import Bar, EpochLines
from anodev2.experiment.training.reversal import reversal_error
from anodev2.experiment.training.task import Classification
from anodev2.models import IMAGE_SIZE, build_model
from anodev2.usage import UsageError


def train_run(
    config: RunConfig, out: Path, *, resume: bool | None, data: ImageData | None = None
) -> Result:
    """Train, or go on training, in `out/runs/NAME`, and write the result there.

    Args:
        config: the run.
        out: folder that `runs` lies in.
        resume: continue what is in the folder; False wants no such folder yet; None does what
            is left to do, be it all or nothing.
        data: the images, where the caller has loaded them already.

    Returns:
        The result, as it is in `result.json`.

    With several processes the command line of this one is run again for each of the others,
    which end up here too: they train along and write nothing.

    Raises:
        ValueError: bad input, or a folder in a state that does not fit; nothing is changed.
        Busy: another process is training this run.
        RunFailure: the loss was not finite, or a file could not be written; the last good
            checkpoint is there.
        KeyboardInterrupt: stopped; `resume` continues after the last finished epoch.
    """
    folder = out / "runs" / config.name
    if not is_first(config):
        if run_state(out, config) == "finished":
            return Result.read(folder / "result.json")
        with following():
            return _fit(config, folder, data or load_data(config.data))
    if _state_that_fits(config, out, resume) == "finished":
        return Result.read(folder / "result.json")
    check_processes(config)
    data = data or load_data(config.data)
    check_fit(data, config)
    with claimed(folder), written_or_failed(folder):
        if _state_that_fits(config, out, resume) == "finished":  # by another process, meanwhile
            return Result.read(folder / "result.json")
        set_aside_result(folder, config)
        write_config(folder / "config.yaml", asdict(config))
        with failure_kept(folder):
            result = _fit(config, folder, data)
        result.write(folder / "result.json")
    return result


def _state_that_fits(config: RunConfig, out: Path, resume: bool | None) -> str:
    """The state of the run's folder, if `resume` allows it."""
    state, folder = run_state(out, config), out / "runs" / config.name
    if state != "absent" and resume is False:
        found = "a finished run:" if state == "finished" else "an unfinished run: --resume it, or"
        raise UsageError(f"'{folder}' holds {found} choose another --out")
    if state == "absent" and resume:
        raise UsageError(f"nothing to resume: no run in '{folder}'; start it without --resume")
    return state


def check_fit(data: ImageData, config: RunConfig) -> None:
    """Refuse images that the network cannot take or tell apart, and weights that cannot move so."""
    if len(data.classes) < 2:
        raise UsageError(f"'{data.name}' has one class: expected at least two to tell apart")
    if min(len(data.train), len(data.test)) < config.processes:
        raise UsageError(
            f"'{data.name}' has {len(data.train)} training and {len(data.test)} test images: "
            f"expected at least one for each of {config.processes} processes"
        )
    height, width = data.train.images.shape[-2:]
    if (height, width) != (IMAGE_SIZE, IMAGE_SIZE):
        raise UsageError(
            f"the images of '{data.name}' are {height}x{width}: "
            f"{config.model} takes {IMAGE_SIZE}x{IMAGE_SIZE}"
        )
    with torch.random.fork_rng(devices=[]):
        network(config, data)


def network(config: RunConfig, data: ImageData) -> nn.Module:
    """The configured network, untrained."""
    model = build_model(
        config.model,
        method=config.method,
        moving=config.moving,
        order=config.order,
        num_classes=len(data.classes),
        in_channels=data.train.images.shape[1],
    )
    initialize(model, config.trained_by.initialization, config.seed)
    return model


def _fit(config: RunConfig, folder: Path, data: ImageData) -> Result:
    _quieten()
    seed_everything(config.seed, verbose=False)
    task = Classification(network(config, data), data, config.trained_by, config.seed)
    images = torch.zeros(2, *data.train.images.shape[1:])
    evaluations = count_field_evaluations(task.model, images)
    # Until all processes have done an epoch together none of them can change the checkpoints.
    checkpoint = checkpoint_to_resume(
        folder / "checkpoints", config, task.state_dict(), claimed=is_first(config)
    )
    history = History(folder / "metrics.csv", describe_environment(torch.get_num_threads()))
    trainer = _trainer(config, folder, history)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with companions(trainer):
            trainer.fit(task, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as stop:  # Lightning's answer to Ctrl-C, which it ignores from then on
        signal.signal(signal.SIGINT, on_interrupt)
        raise KeyboardInterrupt(config.name) from stop
    return Result(
        config=asdict(config),
        recipe=asdict(config.trained_by),
        data=describe_data(data),
        parameters=sum(p.numel() for p in task.model.parameters()),
        field_evaluations=evaluations,
        motion=describe_motion(task.model),
        reversal=reversal_error(task.model, next(iter(task.val_dataloader()))[0]),
        seconds_per_step=history.seconds_per_step(),
        precision=config.precision,
        epochs=history.rows,
        environment=history.environment,
        earlier_environments=history.earlier_environments,
    )


def _trainer(config: RunConfig, folder: Path, history: History) -> Trainer:
    first = is_first(config)
    terminal = sys.stderr.isatty() and first
    progress = Bar(config.name) if terminal else EpochLines(config.name)
    # History asks for the epoch's figures in all processes, so it comes before who may not.
    shown = [history, progress] if first else [history]
    stops = [Stops()] if config.processes > 1 else []
    return Trainer(
        max_epochs=config.epochs,
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=config.devices,
        num_nodes=config.num_nodes,
        strategy=Shares() if config.processes > 1 else "auto",
        precision=PRECISIONS[config.precision],
        callbacks=[*shown, *stops, *checkpoint_callbacks(folder / "checkpoints")],
        logger=TensorBoardLogger(folder, name="", version="tensorboard"),
        plugins=[WholeCheckpointIO(config)],
        default_root_dir=folder,
        num_sanity_val_steps=0,
        log_every_n_steps=1 if config.data == "digits" else 50,
        enable_progress_bar=terminal,
        enable_model_summary=False,
    )


def _quieten() -> None:
    """Keep Lightning's remarks on hardware, loaders and folders off the terminal."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
