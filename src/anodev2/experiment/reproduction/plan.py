"""What is still to be done for a table, and how long it will take."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.folder import epochs_done, run_state
from anodev2.experiment.reproduction.step_times import Times
from anodev2.usage import UsageError

EVALUATION = 1.1
"""Time of an epoch with its evaluation, relative to its training steps."""


@dataclass(frozen=True)
class Plan:
    """The runs of a table in a folder.

    Args:
        runs: all of them, with how many epochs each has left.
        seconds: of training steps, by network.
        steps: of an epoch, by network.
        side_by_side: how many runs go at once, None if that is not known.
    """

    runs: dict[RunConfig, int]
    seconds: Mapping[str, Times]
    steps: dict[str, int]
    side_by_side: int | None

    @property
    def todo(self) -> list[RunConfig]:
        """The runs that are not finished."""
        return [config for config, left in self.runs.items() if left]

    def time_left(self, configs: Sequence[RunConfig]) -> float:
        """Seconds that these runs still take, one after another."""
        return sum(
            self.runs[c] * self.steps[c.model] * median(self.seconds[c.model][c.kind]) * EVALUATION
            for c in configs
            if self.runs[c]
        )

    def progress(self, out: Path, failed: Container[RunConfig]) -> tuple[float, float]:
        """What has been done of the plan, by the metrics of its runs, and what is still left.

        Args:
            out: the folder of the runs.
            failed: those that do not go on.

        Returns:
            Two times in seconds, of runs one after another.
        """
        now = replace(self, runs={c: self._left_now(out, c) for c in self.todo})
        left = now.time_left([c for c in self.todo if c not in failed])
        return self.time_left(self.todo) - now.time_left(self.todo), left

    def _left_now(self, out: Path, config: RunConfig) -> int:
        try:
            return epochs_left(out, config)
        except (UsageError, OSError):  # what is wrong with the run, it tells itself
            return self.runs[config]

    def __str__(self) -> str:
        """A line for each network and method, and the sum."""
        kinds: dict[tuple[str, str], list[RunConfig]] = {}
        for config in self.runs:
            kinds.setdefault((config.model, config.kind), []).append(config)
        lines = [f"{'network':10}{'method':28}{'runs':>5}{'done':>6}{'s / step':>10}{'left':>12}"]
        for (model, label), configs in kinds.items():
            done = sum(not self.runs[config] for config in configs)
            left = self.time_left(configs)
            step = f"{median(self.seconds[model][label]):.3f}" if left else ""
            spelled = duration(left) if left else ""
            lines.append(f"{model:10}{label:28}{len(configs):>5}{done:>6}{step:>10}{spelled:>12}")
        todo = self.todo
        started = sum(0 < self.runs[c] < c.epochs for c in todo)
        done = len(self.runs) - len(todo)
        lines.append(
            f"{counted(len(self.runs), 'run')}: {done} done, {started} unfinished, "
            f"{len(todo) - started} to start{self._about()}"
        )
        return "\n".join(lines)

    def _about(self) -> str:
        todo = self.todo
        if not todo:
            return ""
        total = self.time_left(todo)
        if self.side_by_side is None:
            return f", about {duration(total)} on machines like this one, shared among them"
        together = min(self.side_by_side, len(todo))
        return f", about {duration(total / together)} with {self.side_by_side} at a time"


def epochs_left(out: Path, config: RunConfig) -> int:
    """How many epochs a run in a folder still needs, by its metrics.

    Raises:
        ValueError: the folder holds another run.
    """
    state = run_state(out, config)
    if state == "finished":
        return 0
    if state == "absent":
        return config.epochs
    return max(1, config.epochs - epochs_done(out / "runs" / config.name))


def steps_of(config: RunConfig, data: ImageData) -> int:
    """Training steps of an epoch."""
    return -(-len(data.train) // config.trained_by.batch_size)


def duration(seconds: float) -> str:
    """As in 2 d 03 h, 5 h 20 min, 12 min or 40 s."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours = minutes // 60
    return (
        f"{hours} h {minutes % 60:02} min" if hours < 48 else f"{hours // 24} d {hours % 24:02} h"
    )
