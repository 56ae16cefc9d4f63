"""What a training step takes, for plans and for the paper's claims about cost.

All networks of a kind take turns in one process, so that what slows the machine for a while
slows each of them.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from filelock import FileLock
from torch.nn.functional import cross_entropy

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig
from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.environment import processor_name
from anodev2.experiment.paper import NAMES
from anodev2.experiment.reproduction.table import rows_of, runs_of
from anodev2.experiment.spelling import DEFAULT
from anodev2.experiment.threads import torch_threads
from anodev2.experiment.training.run import network
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

WARM_UP = 6
"""The first steps of a process pay for page faults."""
ROUNDS, LEAST, BUDGET = 25, 6, 60.0
"""Turns that each network gets, fewer, but enough for an interval, after that many seconds."""
SHARED = ("data", "epochs", "order", "precision", "recipe")
"""What the runs of a table have in common."""
CONDITIONS = {"processor": str, "threads": int, "precision": str}
"""What `Times` say of themselves, as in a record of the file."""
Rounds = dict[str, list[float]]
"""Seconds of a training step in each round, by kind; all kinds take their turn in a round."""


@dataclass(frozen=True)
class Times(Mapping[str, list[float]]):
    """The rounds of a network, by kind, and what they were timed on.

    Args:
        rounds: of training steps.
        processor: its name, or that of the accelerator.
        threads: of the processor.
        precision: as in `RunConfig`.
    """

    rounds: Rounds
    processor: str
    threads: int
    precision: str

    def __getitem__(self, kind: str) -> list[float]:
        return self.rounds[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def conditions(self) -> str:
        """As in "AMD EPYC, 1 thread, bfloat16"."""
        return f"{self.processor}, {counted(self.threads, 'thread')}, {self.precision}"


Seconds = dict[str, Times]
"""By network."""


def timed_steps(
    configs: Sequence[RunConfig], data: ImageData, path: Path, *, threads: int
) -> Seconds:
    """Seconds of training steps of each network and kind, kept in a file.

    With those asked for, the kinds that the paper's claims about cost compare are timed. Where
    one of a network is missing, all of the network are timed again, in turns, those that the
    file has too.

    Args:
        configs: runs; those of one network and kind are timed once.
        data: the images; only their shape and classes matter.
        path: the JSON file that keeps them, a record for each network and set of conditions.
        threads: of the processor.

    A file that is not one of these is set aside.

    Raises:
        ValueError: the file cannot be read at all.
    """
    found: Seconds = {}
    with FileLock(path.with_name(f".{path.name}.lock")):  # another that times waits
        try:
            _records(path)
        except Damaged as damaged:
            set_aside(damaged)
        for model in dict.fromkeys(config.model for config in configs):
            wanted = {config.kind: config for config in configs if config.model == model}
            found[model] = _seconds(wanted, data, path, threads)
    return found


def _seconds(wanted: Mapping[str, RunConfig], data: ImageData, path: Path, threads: int) -> Times:
    """Of one network; they become the last record of the file, which a report takes."""
    first = next(iter(wanted.values()))
    conditions, records = _conditions(first, threads), _records(path)
    held: Rounds = next((r["seconds"] for r in records if _fits(r, conditions)), {})
    if not wanted.keys() <= held.keys():
        again = {c.kind: c for c in _of_tables(first) if c.kind in held}
        compared = {config.kind: config for config in _compared(first)}
        held = _time([*(compared | again | dict(wanted)).values()], data, threads)
    others = [record for record in records if not _fits(record, conditions)]
    latest = [*others, {**conditions, "seconds": held}]
    if latest != records:
        with whole_file(path) as file:
            file.write_text(json.dumps({"records": latest}, indent=2) + "\n")
    return _times(latest[-1])


def read_seconds(path: Path) -> Seconds:
    """The latest times of each network in the file, none where it is missing.

    A file that is not one of these is left out, with a line on standard error.

    Raises:
        ValueError: the file cannot be read at all.
    """
    try:
        return {record["model"]: _times(record) for record in _records(path)}
    except Damaged as damaged:
        print(f"anodev2: {damaged}; left out", file=sys.stderr)
        return {}


def timed_on(seconds: Seconds) -> list[str]:
    """A sentence on what steps were timed on, by network where that differs; none of no times."""
    networks: dict[str, list[str]] = {}
    for model, times in seconds.items():
        networks.setdefault(times.conditions, []).append(NAMES.get(model, model))
    listed = [f"{what} ({', '.join(names)})" for what, names in networks.items()]
    told = "; ".join(listed if len(listed) > 1 else networks)
    return [f"Steps were timed on {told}."] if told else []


def _times(record: Mapping[str, Any]) -> Times:
    return Times(record["seconds"], **{name: record[name] for name in CONDITIONS})


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        return [_checked(record) for record in json.loads(path.read_text())["records"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, "does not hold times of training steps") from error


def _checked(record: Mapping[str, Any]) -> dict[str, Any]:
    rounds = [sum(times) for times in zip(*record["seconds"].values(), strict=True)]
    kinds = {"model": str, **CONDITIONS}
    if not (rounds and all(isinstance(record[name], kind) for name, kind in kinds.items())):
        raise ValueError(record)
    return dict(record)


def _conditions(config: RunConfig, threads: int) -> dict[str, Any]:
    """What times depend on, apart from the method."""
    return {
        "model": config.model,
        "order": config.order,
        "recipe": config.recipe,
        "precision": config.precision,
        "threads": threads,
        "processor": processor_name(),
    }


def _fits(record: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    return all(record.get(key) == value for key, value in conditions.items())


def _compared(config: RunConfig) -> list[RunConfig]:
    """The baseline, and both configurations with their weights moving and frozen."""
    evolution, memory, regularization = DEFAULT
    plain = replace(config, memory=memory, regularization=regularization, p_rate=None)
    return [
        replace(plain, method=method, evolution=q)
        for method, ways in {
            "baseline": (evolution,),
            "anodev2-1": (evolution, "frozen"),
            "anodev2-2": (evolution, "frozen"),
        }.items()
        for q in ways
    ]


def _of_tables(config: RunConfig) -> list[RunConfig]:
    """A run of each row of the paper's tables, otherwise like the given one."""
    shared = {name: getattr(config, name) for name in SHARED}
    return runs_of(rows_of("all", None), [config.model], [config.seed], **shared)


def _time(configs: Sequence[RunConfig], data: ImageData, threads: int) -> Rounds:
    with torch_threads(threads), torch.random.fork_rng(devices=[]):
        steps = {config.kind: _step(config, data) for config in configs}
        first = next(iter(steps.values()))
        for _ in range(WARM_UP):
            first()
        for step in steps.values():
            step()
        begun, done, order = perf_counter(), 0, list(steps)
        rounds: Rounds = {kind: [] for kind in steps}
        while done < ROUNDS and (done < LEAST or perf_counter() - begun < BUDGET):
            for kind in order:
                rounds[kind].append(_timed(steps[kind]))
            order.reverse()  # so that no kind always follows the same
            done += 1
    return rounds


def _step(config: RunConfig, data: ImageData) -> Callable[[], None]:
    """One training step of the configured network on random images."""
    recipe = config.trained_by
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(config, data).to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=recipe.momentum)
    images = torch.randn(recipe.batch_size, *data.train.images.shape[1:])
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(len(data.classes), (recipe.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            loss = cross_entropy(model(images).float(), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def _timed(step: Callable[[], None]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start
