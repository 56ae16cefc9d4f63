"""Runs on the digits, seconds each, and what of them must be the same wherever they run."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.training.checkpoints import model_weights


def table(epochs: int) -> list[RunConfig]:
    """Two methods of the paper."""
    return [digits_run(method, epochs) for method in ("baseline", "anodev2-2")]


def digits_run(method: str, epochs: int, **changes: object) -> RunConfig:
    settings: dict[str, object] = {"order": "pre", "data": "digits", "seed": 0}
    settings |= {"precision": "float32"} | changes
    return run_config(model="resnet4", method=method, epochs=epochs, **settings)  # type: ignore[arg-type]


def what_came_out(out: Path, config: RunConfig) -> dict[str, object]:
    """The result's JSON without times, and without versions and threads."""
    result = json.loads((out / "runs" / config.name / "result.json").read_text())
    del result["environment"], result["seconds_per_step"]
    for row in result["epochs"]:
        del row["seconds"], row["seconds_per_step"]
    return result


def same_weights(config: RunConfig, out: Path, other: Path) -> bool:
    ours, theirs = (
        model_weights(folder / "runs" / config.name / "checkpoints/last.ckpt")
        for folder in (out, other)
    )
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def epochs_done(out: Path, config: RunConfig) -> list[str]:
    """The lines of its `metrics.csv`, once the last of them is in its checkpoint too."""
    folder = out / "runs" / config.name
    metrics, last = folder / "metrics.csv", folder / "checkpoints/last.ckpt"
    if not (metrics.exists() and last.exists()):
        return []
    lines = metrics.read_text().splitlines()[1:]
    return lines if last.stat().st_mtime_ns >= metrics.stat().st_mtime_ns else lines[:-1]


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread beside the block; its exception is the block's."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join()
    if raised:
        raise raised[0]
