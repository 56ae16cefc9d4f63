"""What a training step takes, for plans and for the paper's claims about cost.

All networks of a kind take turns in one process, so that what slows the machine for a while
slows each of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from filelock import FileLock
from torch.nn.functional import cross_entropy

from anodev2.experiment.config import SHARED, RunConfig
from anodev2.experiment.damaged import Damaged, set_aside
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.environment import processor_name
from anodev2.experiment.reproduction.step_times import (
    Conditions,
    Rounds,
    Times,
    read_times,
    times_of,
    write_times,
)
from anodev2.experiment.reproduction.table import rows_of, runs_of
from anodev2.experiment.spelling import DEFAULT
from anodev2.experiment.threads import torch_threads
from anodev2.experiment.training.run import network

WARM_UP = 6
"""The first steps of a process pay for page faults."""
ROUNDS, LEAST, BUDGET = 25, 6, 60.0
"""Turns that each network gets, fewer, but enough for an interval, after that many seconds."""


def timed_steps(
    configs: Sequence[RunConfig], data: ImageData, path: Path, *, threads: int
) -> dict[str, Times]:
    """Seconds of training steps of each network, by kind, kept in a file.

    With those asked for, the kinds that the paper's claims about cost compare are timed. Where
    one of a network is missing, all of the network are timed again, in turns, those that the
    file has too.

    Args:
        configs: runs; those of one network and kind are timed once.
        data: the images; only their shape and classes matter.
        path: the JSON file that keeps them, a record for each set of conditions.
        threads: of the processor.

    A file that is not one of these is set aside.

    Raises:
        ValueError: the file cannot be read at all.
    """
    found: dict[str, Times] = {}
    with FileLock(path.with_name(f".{path.name}.lock")):  # another that times waits
        try:
            read_times(path)
        except Damaged as damaged:
            set_aside(damaged)
        for model in dict.fromkeys(config.model for config in configs):
            wanted = _wanted([config for config in configs if config.model == model])
            found[model] = _seconds(wanted, data, path, threads)
    return found


def lacks_times(seconds: Sequence[Times], configs: Sequence[RunConfig]) -> bool:
    """Whether a report of runs of one network would miss the times of one of its kinds."""
    wanted = _wanted(configs)
    batch_size = configs[0].trained_by.batch_size
    return not all(times_of(seconds, c, batch_size, wanted) for c in wanted.values())


def _wanted(configs: Sequence[RunConfig]) -> dict[str, RunConfig]:
    """What is timed of a network, by kind: what claims compare, and what is asked for."""
    return {config.kind: config for config in (*_compared(configs[0]), *configs)}


def _seconds(wanted: Mapping[str, RunConfig], data: ImageData, path: Path, threads: int) -> Times:
    """Of one network; they become the last record of the file."""
    first = next(iter(wanted.values()))
    conditions, records = _conditions(first, threads), read_times(path)
    rounds: Rounds = next((r.rounds for r in records if r.conditions == conditions), {})
    if not wanted.keys() <= rounds.keys():
        again = {c.kind: c for c in _of_tables(first) if c.kind in rounds}
        rounds = _time([*(again | dict(wanted)).values()], data, threads)
    times = Times(conditions, rounds)
    latest = [*(r for r in records if r.conditions != conditions), times]
    if latest != records:
        write_times(path, latest)
    return times


def _conditions(config: RunConfig, threads: int) -> Conditions:
    return Conditions(
        model=config.model,
        order=config.order,
        batch_size=config.trained_by.batch_size,
        precision=config.precision,
        threads=threads,
        processor=processor_name(),
    )


def _compared(config: RunConfig) -> list[RunConfig]:
    """The baseline, the network without block, and both configurations moving and frozen."""
    evolution, memory, regularization = DEFAULT
    plain = replace(config, memory=memory, regularization=regularization, p_rate=None)
    return [
        replace(plain, method=method, evolution=q)
        for method, ways in {
            "baseline": (evolution,),
            "without-block": (evolution,),
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
