"""One training run in its folder: start, stop, resume, result.

DIR/runs/MODEL-METHOD-seedK/   config.yaml, metrics.csv, checkpoints/, tensorboard/,
                               and at the end result.json
"""

import logging
import re
import signal
import sys
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from anodev2.experiment.checkpoints import (
    WholeCheckpointIO,
    checkpoint_callbacks,
    read_checkpoint,
)
from anodev2.experiment.data import ImageData, load_data
from anodev2.experiment.evaluations import count_field_evaluations
from anodev2.experiment.history import History
from anodev2.experiment.motion import describe_motion
from anodev2.experiment.progress import Bar, EpochLines
from anodev2.experiment.recipe import PAPER_RECIPES, Recipe, recipe_for
from anodev2.experiment.result import Result, describe_data, describe_environment
from anodev2.experiment.spelled import DEFAULT, SPELLED, moving
from anodev2.experiment.task import Classification
from anodev2.experiment.whole_file import whole_file
from anodev2.models import IMAGE_SIZE, MODELS, ORDERS, Moving, build_model, find_method
from anodev2.usage import UsageError, check_choice

PRECISIONS = {"bfloat16": "bf16-mixed", "float32": "32-true"}
DIGITS_EPOCHS = 15
"""Epochs on the embedded digits unless given: seconds, where the paper's 350 take minutes."""


@dataclass(frozen=True)
class RunConfig:
    """What makes a run: two runs of one configuration have one result."""

    model: str
    method: str
    order: str
    data: str
    epochs: int
    seed: int
    precision: str
    evolution: str = DEFAULT[0]
    memory: str = DEFAULT[1]
    regularization: str = DEFAULT[2]
    p_rate: float = 1.0

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        label = re.sub(r"[^\w.+-]+", "-", self.label)
        return f"{self.model}-{label}-seed{self.seed}"

    @property
    def label(self) -> str:
        """The method, with what differs from the default in how its weights move."""
        spelled = (self.evolution, self.memory, self.regularization)
        others = [text for text, usual in zip(spelled, DEFAULT, strict=True) if text != usual]
        rate = [f"p-rate={self.p_rate:g}"] if self.p_rate != 1 else []
        return " ".join([self.method, *others, *rate])

    @property
    def moving(self) -> Moving:
        """How its weights move."""
        return moving(self.evolution, self.memory, self.regularization)


def run_config(*, model: str, data: str, epochs: int | None, **rest: Any) -> RunConfig:
    """A configuration with its defaults filled in and its names checked.

    Raises:
        ValueError: an unknown name or a number out of range.
    """
    check_choice("model", model, MODELS)
    spelled = [rest.get(key, usual) for key, usual in zip(SPELLED, DEFAULT, strict=True)]
    method = find_method(rest["method"], moving(*spelled))
    p_rate = rest.get("p_rate", 1.0)
    if not p_rate > 0:
        raise UsageError(f"p_rate must be positive, got {p_rate:g}")
    if p_rate != 1 and not method.moves:
        raise UsageError(f"the weights of {rest['method']!r} stay at rest: it has no p for p_rate")
    check_choice("order", rest["order"], ORDERS)
    check_choice("precision", rest["precision"], ["auto", *PRECISIONS])
    if not 0 <= rest["seed"] < 2**32:
        raise UsageError(f"seed must be at least 0 and below 2^32, got {rest['seed']}")
    if epochs is None:
        epochs = DIGITS_EPOCHS if data == "digits" else PAPER_RECIPES[model].epochs
    recipe_for(model, epochs)
    return RunConfig(model=model, data=data, epochs=epochs, **rest)


def fast_precision() -> Literal["bfloat16", "float32"]:
    """bfloat16 where this machine computes it in hardware, float32 elsewhere."""
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    has = torch.cpu.get_capabilities()
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"


def train_run(
    config: RunConfig, out: Path, *, resume: bool, data: ImageData | None = None
) -> Result:
    """Train, or go on training, in `out/runs/NAME`, and write the result there.

    Args:
        config: the run.
        out: folder of the comparison the run belongs to.
        resume: continue what is in the folder; otherwise the folder must not exist.
        data: the images, where the caller has loaded them already.

    Returns:
        The result, as it is in `result.json`.

    Raises:
        ValueError: bad input, or a folder in a state that does not fit; nothing is changed.
        RunFailure: the loss was not finite; the last good checkpoint is there.
        KeyboardInterrupt: stopped; `resume` continues after the last finished epoch.
    """
    folder = out / "runs" / config.name
    state = run_state(out, config)
    if state == "finished" and resume:
        return Result.read(folder / "result.json")
    if state != "absent" and not resume:
        found = "a finished run:" if state == "finished" else "an unfinished run: --resume it, or"
        raise UsageError(f"'{folder}' holds {found} choose another --out")
    if state == "absent" and resume:
        raise UsageError(f"nothing to resume: no run in '{folder}'; start it without --resume")
    check_readable(out, config)
    data = data or load_data(config.data)
    check_fit(data, config)
    last = folder / "checkpoints" / "last.ckpt"
    checkpoint = last if resume and last.exists() else None
    write_config(folder / "config.yaml", asdict(config))
    result = _fit(config, folder, data, checkpoint)
    result.write(folder / "result.json")
    return result


def read_config(path: Path) -> dict[str, Any]:
    """The configuration in a folder.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"'{path.parent}' is not the folder of a run: choose another --out")
    return found


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a configuration.

    Raises:
        ValueError: its folder cannot be made or written to.
    """
    try:
        with whole_file(path) as file:
            file.write_text(yaml.safe_dump(config, sort_keys=False))
    except OSError as error:
        raise UsageError(
            f"cannot write to '{path.parent}' ({error.strerror}): expected --out to be a folder, "
            "or a place for one"
        ) from error


def run_state(out: Path, config: RunConfig) -> Literal["absent", "unfinished", "finished"]:
    """What is in a run's folder.

    Raises:
        ValueError: a run of another configuration, or no run at all.
    """
    folder = out / "runs" / config.name
    if not folder.exists():
        return "absent"
    found = read_config(folder / "config.yaml")
    usual = {f.name: f.default for f in fields(config)}  # what older folders do not say
    other = {k: v for k, v in asdict(config).items() if found.get(k, usual[k]) != v}
    if other:
        key, value = next(iter(other.items()))
        raise UsageError(
            f"'{folder}' holds a run with {key} {found.get(key, usual[key])!r}, not {value!r}: "
            "choose another --out"
        )
    return "finished" if (folder / "result.json").exists() else "unfinished"


def check_readable(out: Path, config: RunConfig) -> None:
    """Refuse a run whose result or last checkpoint is there but cannot be read."""
    folder = out / "runs" / config.name
    if (folder / "result.json").exists():
        Result.read(folder / "result.json")
    elif (folder / "checkpoints" / "last.ckpt").exists():
        read_checkpoint(folder / "checkpoints" / "last.ckpt")


def check_fit(data: ImageData, config: RunConfig) -> None:
    """Refuse images that the network cannot take or tell apart, and weights that cannot move so."""
    if len(data.classes) < 2:
        raise UsageError(f"'{data.name}' has one class: expected at least two to tell apart")
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
    return build_model(
        config.model,
        method=config.method,
        moving=config.moving,
        order=config.order,
        num_classes=len(data.classes),
        in_channels=data.train.images.shape[1],
    )


def _fit(config: RunConfig, folder: Path, data: ImageData, checkpoint: Path | None) -> Result:
    recipe = recipe_for(config.model, config.epochs)
    precision = fast_precision() if config.precision == "auto" else config.precision
    _quieten()
    seed_everything(config.seed, verbose=False)
    task = Classification(network(config, data), data, recipe, config.seed, p_rate=config.p_rate)
    images = torch.zeros(2, *data.train.images.shape[1:])
    evaluations = count_field_evaluations(task.model, images)
    history = History(folder / "metrics.csv")
    trainer = _trainer(config, folder, recipe, PRECISIONS[precision], history)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(task, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as stop:  # Lightning's answer to Ctrl-C, which it ignores from then on
        signal.signal(signal.SIGINT, on_interrupt)
        raise KeyboardInterrupt(config.name) from stop
    return Result(
        config=asdict(config),
        recipe=asdict(recipe),
        data=describe_data(data),
        parameters=sum(p.numel() for p in task.model.parameters()),
        field_evaluations=evaluations,
        motion=describe_motion(task.model),
        seconds_per_step=history.seconds_per_step(),
        precision=precision,
        epochs=history.rows,
        environment=describe_environment(torch.get_num_threads()),
    )


def _trainer(
    config: RunConfig, folder: Path, recipe: Recipe, precision: Any, history: History
) -> Trainer:
    terminal = sys.stderr.isatty()
    progress = Bar(config.name) if terminal else EpochLines(config.name)
    return Trainer(
        max_epochs=recipe.epochs,
        devices=1,
        precision=precision,
        gradient_clip_val=recipe.clip,
        callbacks=[history, progress, *checkpoint_callbacks(folder / "checkpoints")],
        logger=TensorBoardLogger(folder, name="", version="tensorboard"),
        plugins=[WholeCheckpointIO()],
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
