"""What a run does over its epochs, kept with its checkpoints so that it survives a stop."""

import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from anodev2.experiment.whole_file import whole_file

Row = dict[str, float | int | None]

UNTIMED_STEPS = 6
"""The first training steps of a process pay for page faults and are not timed."""


class History(Callback):
    """One row of figures an epoch, in memory, in the checkpoint and in `metrics.csv`.

    A row has `epoch` (from 1), `train_loss`, `train_accuracy`, `test_loss`, `test_accuracy`
    (accuracies from 0 to 1), `learning_rate` of the step that comes next, `seconds_per_step`
    (median over the epoch's steps) and `seconds` of the epoch with its evaluation.

    Args:
        path: the CSV file, written whole at the end of every epoch.
        environment: of this process; see `describe_environment`.

    Attributes:
        earlier_environments: of processes that trained the run before, where they differ.
    """

    def __init__(self, path: Path, environment: dict[str, Any]) -> None:
        self.path = path
        self.environment = environment
        self.earlier_environments: list[dict[str, Any]] = []
        self.rows: list[Row] = []
        self._steps_in_process = 0
        self._durations: list[float] = []
        self._epoch_started = self._step_started = 0.0

    def state_dict(self) -> dict[str, Any]:
        environments = [*self.earlier_environments, self.environment]
        return {"rows": self.rows, "environments": environments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = list(state["rows"])
        earlier = state.get("environments", [])  # older versions did not keep them
        self.earlier_environments = [where for where in earlier if where != self.environment]

    def seconds_per_step(self) -> float | None:
        """Median over the epochs of the seconds of a training step, None if none was timed."""
        timed = [row["seconds_per_step"] for row in self.rows if row["seconds_per_step"]]
        return median(timed) if timed else None

    def on_train_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._durations = []
        self._epoch_started = self._step_started = perf_counter()

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, *_: Any) -> None:
        now = perf_counter()
        self._steps_in_process += 1
        if self._steps_in_process > UNTIMED_STEPS:
            self._durations.append(now - self._step_started)
        self._step_started = now

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        metrics = trainer.callback_metrics
        self.rows.append(
            {
                "epoch": trainer.current_epoch + 1,
                "train_loss": _figure(metrics, "train_loss_epoch"),
                "train_accuracy": _figure(metrics, "train_accuracy_epoch"),
                "test_loss": _figure(metrics, "test_loss"),
                "test_accuracy": _figure(metrics, "test_accuracy"),
                "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
                "seconds_per_step": median(self._durations) if self._durations else None,
                "seconds": perf_counter() - self._epoch_started,
            }
        )
        if trainer.is_global_zero:
            write_rows(self.path, self.rows)


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write rows with equal keys as CSV."""
    with whole_file(path) as file, file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _figure(metrics: Mapping[str, Any], name: str) -> float:
    return float(metrics[name])
