"""What a person sees while a run trains: a bar on a terminal, a line an epoch elsewhere."""

import sys
from time import perf_counter
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar


class TimeLeft:
    """Estimates how long the run still takes from the steps done since it started."""

    def __init__(self) -> None:
        self._started: tuple[float, int] | None = None

    def start(self, trainer: Trainer) -> None:
        self._started = (perf_counter(), trainer.global_step)

    def text(self, trainer: Trainer) -> str:
        """As in 0:03:20, or ? before the first step."""
        if self._started is None or trainer.global_step == self._started[1]:
            return "?"
        began, step = self._started
        each = (perf_counter() - began) / (trainer.global_step - step)
        seconds = round(each * (int(trainer.estimated_stepping_batches) - trainer.global_step))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class Bar(TQDMProgressBar):
    """Lightning's bar with loss, accuracy and the time left of the whole run.

    Args:
        run: name of the run, shown before the epoch.
    """

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run
        self._left = TimeLeft()

    def on_train_start(self, *args: Any) -> None:
        super().on_train_start(*args)
        self._left.start(self.trainer)

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        super().on_train_epoch_start(trainer, *args)
        epoch = f"{trainer.current_epoch + 1}/{trainer.max_epochs}"
        self.train_progress_bar.set_description(f"{self._run} epoch {epoch}")

    def get_metrics(
        self, trainer: Trainer, task: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        shown = super().get_metrics(trainer, task)
        names = {
            "loss": "train_loss_step",
            "accuracy": "train_accuracy_step",
            "test": "test_accuracy",
        }
        known = {short: shown[name] for short, name in names.items() if name in shown}
        return {**known, "left": self._left.text(trainer)}


class EpochLines(Callback):
    """One line an epoch on standard error, for logs.

    Args:
        run: name of the run, at the start of each line.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._left = TimeLeft()

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._left.start(trainer)

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        metrics = trainer.callback_metrics
        print(
            f"{self._run} epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: "
            f"loss {metrics['train_loss_epoch']:.4f}, "
            f"test accuracy {100 * metrics['test_accuracy']:.2f} %, "
            f"{self._left.text(trainer)} left",
            file=sys.stderr,
            flush=True,
        )
