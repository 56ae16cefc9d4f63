"""What a training step takes, for plans and for the paper's claims about cost.

All networks of a kind take turns in one process, so that what slows the machine for a while
slows each of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from anodev2.experiment.config import RunConfig, fast_precision
from anodev2.experiment.images import ImageData
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.run import network
from anodev2.experiment.whole_file import whole_file
from anodev2.usage import UsageError

WARM_UP = 6
"""The first steps of a process pay for page faults."""
ROUNDS, LEAST, BUDGET = 15, 3, 60.0
"""Turns that each network gets, fewer, but at least so many, after that many seconds."""
Seconds = dict[str, dict[str, float]]
"""Of a training step, by network and kind."""


def timed_steps(
    configs: Sequence[RunConfig], data: ImageData, path: Path, *, threads: int
) -> Seconds:
    """Seconds of a training step of each network and kind, kept in a file.

    Args:
        configs: runs; those of one network and kind are timed once.
        data: the images; only their shape and classes matter.
        path: the JSON file that keeps them; what it holds for the same conditions, threads and
            recipe, is not timed again, and what it holds for others is dropped.
        threads: of the processor.

    Raises:
        ValueError: the file is not one of these.
    """
    conditions = {"threads": threads, "recipes": sorted({config.recipe for config in configs})}
    found = read_seconds(path, conditions) if configs else {}
    todo = {(c.model, c.kind): c for c in configs if c.kind not in found.get(c.model, {})}
    for model in dict.fromkeys(model for model, _ in todo):
        mine = [config for (m, _), config in todo.items() if m == model]
        found.setdefault(model, {}).update(_time(mine, data, threads))
        with whole_file(path) as file:
            file.write_text(json.dumps({**conditions, "seconds": found}, indent=2) + "\n")
    return found


def read_seconds(path: Path, conditions: Mapping[str, Any] | None = None) -> Seconds:
    """What the file holds, nothing where it is missing or for other conditions.

    Raises:
        ValueError: the file is not one of these.
    """
    try:
        held = json.loads(path.read_text())
        seconds: Seconds = {
            str(model): {str(label): float(s) for label, s in by_label.items()}
            for model, by_label in held["seconds"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"'{path}' cannot be read: expected times of training steps; move it away"
        ) from error
    same = conditions is None or all(held.get(key) == v for key, v in conditions.items())
    return seconds if same else {}


def _time(configs: Sequence[RunConfig], data: ImageData, threads: int) -> dict[str, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with torch.random.fork_rng(devices=[]):
        steps = {config.kind: _step(config, data) for config in configs}
        first = next(iter(steps.values()))
        for _ in range(WARM_UP):
            first()
        for step in steps.values():
            step()
        rounds: list[dict[str, float]] = []
        begun = perf_counter()
        while len(rounds) < ROUNDS and (len(rounds) < LEAST or perf_counter() - begun < BUDGET):
            rounds.append({label: _timed(step) for label, step in steps.items()})
    torch.set_num_threads(before)
    return {label: median(times[label] for times in rounds) for label in steps}


def _step(config: RunConfig, data: ImageData) -> Callable[[], None]:
    """One training step of the configured network on random images."""
    recipe = recipe_for(config.model, config.epochs, config.recipe)
    precision = fast_precision() if config.precision == "auto" else config.precision
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(config, data).to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=recipe.momentum)
    images = torch.randn(recipe.batch_size, *data.train.images.shape[1:])
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(len(data.classes), (recipe.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
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
