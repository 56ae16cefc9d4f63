"""`timings.json`: what training steps take, and which of its records tell of a run."""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig
from anodev2.experiment.damaged import Damaged
from anodev2.experiment.paper import NAMES
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

Rounds = dict[str, list[float]]
"""Seconds of a training step in each round, by kind; all kinds take their turn in a round."""


@dataclass(frozen=True)
class Conditions:
    """What a training step takes its time for, apart from the method.

    Args:
        model, order, precision: as in `RunConfig`.
        batch_size: images a step.
        threads: of the processor.
        processor: its name, or that of the accelerator.
    """

    model: str
    order: str
    batch_size: int
    precision: str
    threads: int
    processor: str

    def fit(self, config: RunConfig, batch_size: int) -> bool:
        """Whether a run in batches of that size has such steps, wherever it ran."""
        own = (config.model, config.order, batch_size, config.precision)
        return own == (self.model, self.order, self.batch_size, self.precision)

    @property
    def told(self) -> str:
        """As in "AMD EPYC, 1 thread, bfloat16, batches of 256"."""
        threads = counted(self.threads, "thread")
        return f"{self.processor}, {threads}, {self.precision}, batches of {self.batch_size}"


@dataclass(frozen=True)
class Times(Mapping[str, list[float]]):
    """The rounds of a network, by kind, and the conditions that they were timed under."""

    conditions: Conditions
    rounds: Rounds

    def __getitem__(self, kind: str) -> list[float]:
        return self.rounds[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)


def times_of(
    seconds: Sequence[Times], config: RunConfig, batch_size: int, kinds: Collection[str]
) -> Times | None:
    """The times that have a run's kind: of several, those of the most of a report's, then the last.

    A later command that times fewer kinds, or on another machine, so takes nothing away.

    Args:
        seconds: as they are in the file, the latest last.
        config: the run.
        batch_size: its images a step.
        kinds: what the report shows.
    """
    fitting = [
        times
        for times in reversed(seconds)
        if config.kind in times and times.conditions.fit(config, batch_size)
    ]
    return max(fitting, key=lambda times: len(times.keys() & set(kinds)), default=None)


def timed_on(seconds: Sequence[Times]) -> list[str]:
    """A sentence on what steps were timed on, by network where that differs; none of no times."""
    networks: dict[str, list[str]] = {}
    for times in seconds:
        model = times.conditions.model
        networks.setdefault(times.conditions.told, []).append(NAMES.get(model, model))
    listed = [f"{what} ({', '.join(names)})" for what, names in networks.items()]
    told = "; ".join(listed if len(listed) > 1 else networks)
    return [f"Steps were timed on {told}."] if told else []


def read_seconds(path: Path) -> list[Times]:
    """The times in the file, the latest last, none where it is missing.

    A file that is not one of these is left out, with a line on standard error.

    Raises:
        ValueError: the file cannot be read at all.
    """
    try:
        return read_times(path)
    except Damaged as damaged:
        print(f"anodev2: {damaged}; left out", file=sys.stderr)
        return []


def read_times(path: Path) -> list[Times]:
    """The times in the file, the latest last, none where it is missing.

    Raises:
        Damaged: it is not one of these.
        ValueError: it cannot be read at all.
    """
    try:
        return [_checked(record) for record in json.loads(path.read_text())["records"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, "does not hold times of training steps") from error


def write_times(path: Path, seconds: Sequence[Times]) -> None:
    """Write the file, whole or not at all."""
    records = [{**asdict(times.conditions), "seconds": times.rounds} for times in seconds]
    with whole_file(path) as file:
        file.write_text(json.dumps({"records": records}, indent=2) + "\n")


def _checked(record: Mapping[str, Any]) -> Times:
    rounds = [sum(times) for times in zip(*record["seconds"].values(), strict=True)]
    kinds = get_type_hints(Conditions)
    if not (rounds and all(isinstance(record[name], kind) for name, kind in kinds.items())):
        raise ValueError(record)
    return Times(Conditions(**{name: record[name] for name in kinds}), record["seconds"])
