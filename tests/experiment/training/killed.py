"""A script: runs that are killed again and again, each against one that nobody killed.

Every process is a fork of this one, which has imported everything and started no thread. It
is killed by its parent after a random time, or kills itself at a given place in the writing
of a file. A run that ends before it was killed is compared, and the next one begins.

PYTHONPATH=tests/experiment python killed.py FOLDER prints, as JSON, the kills that happened and
what differed.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anodev2.experiment import config
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.result import Result
from anodev2.experiment.training.checkpoints import model_weights
from anodev2.experiment.training.run import train_run
from anodev2.experiment.whole_file import UNFINISHED
from tiny import tiny_config, tiny_data

CONFIG, DATA = tiny_config(epochs=6), tiny_data()
FOLDER = Path("runs") / CONFIG.name
WRITTEN = ("config.yaml", "metrics.csv", "best.ckpt", "last.ckpt", "result.json")
PLACES = ("half written", "before its renaming", "after its renaming")


@dataclass(frozen=True)
class Kill:
    """Where a process dies: at a place in writing a file, else after a part of a run's time."""

    file: str = ""
    place: str = ""
    time: int = 1
    after: float = 0.0

    def in_this_process(self) -> None:
        """Die at the first or second writing of the file from now on."""
        plain, seen = Path.replace, []

        def deadly(temporary: Path, target: Path) -> Path:
            seen.append(target.name)
            if target.name != self.file or seen.count(self.file) < self.time:
                return plain(temporary, target)
            if self.place == PLACES[0]:
                os.truncate(temporary, temporary.stat().st_size // 2)
            if self.place == PLACES[2]:
                plain(temporary, target)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        if self.file:
            Path.replace = deadly  # type: ignore[assignment, method-assign]


def chosen_kills() -> list[Kill]:
    """Each place in the writing of each file once, and twenty at random times.

    Those of the first and the last file that a run writes come first and last.
    """
    chance = random.Random(2)
    first, *others, last = ([Kill(file, place) for place in PLACES] for file in WRITTEN)
    between = [replace(kill, time=chance.choice((1, 2))) for kills in others for kill in kills]
    between += [Kill(after=chance.random()) for _ in range(20)]
    chance.shuffle(between)
    return [*first, *between, *last]


def train(out: Path, kill: Kill | None = None, *, seconds: float = 0.0) -> bool:
    """Train what is left of the run in a process of its own; whether it was killed."""
    process = os.fork()
    if not process:
        status = 1
        try:
            with (out.parent / f"{out.name}.err").open("a") as errors:
                os.dup2(errors.fileno(), 2)
            if kill:
                kill.in_this_process()
            train_run(CONFIG, out, resume=None, data=DATA)
            status = 0
        finally:
            os._exit(status)
    if kill and not kill.file:
        time.sleep(kill.after * seconds)
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError((out.parent / f"{out.name}.err").read_text())
    return status == -signal.SIGKILL


def differences(out: Path, through: Path) -> list[str]:
    """What tells a finished run's folder from that of one that nobody killed."""
    found = []
    for name in ("last.ckpt", "best.ckpt"):
        weights = model_weights(out / FOLDER / "checkpoints" / name)
        others = model_weights(through / FOLDER / "checkpoints" / name)
        if not all(torch.equal(weights[key], others[key]) for key in others):
            found.append(name)
    if untimed(out) != untimed(through):
        found.append("result.json")
    names, others = ({p.name for p in (x / FOLDER).glob("**/*")} for x in (out, through))
    found += [name for name in names ^ others if not name.startswith("events.out")]
    errors = (out.parent / f"{out.name}.err").read_text()
    return found + [word for word in ("set aside", "Traceback") if word in errors]


def untimed(out: Path) -> dict[str, Any]:
    """A result without times and environment."""
    result = Result.read(out / FOLDER / "result.json")
    rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in result.epochs]
    return asdict(replace(result, epochs=rows, seconds_per_step=None, environment={}))


def main(folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    train(folder / "through")
    seconds = time.monotonic() - began
    happened: list[str] = []
    differing: list[str] = []
    left = 0
    runs = 1
    kills = chosen_kills()
    most = len(kills)
    while kills and runs <= most:
        out = folder / f"run{runs}"
        if train(out, kills[0], seconds=seconds):
            kill = kills.pop(0)
            happened.append(f"{kill.file} {kill.place}" if kill.file else "at random")
            left += len(list(out.glob(f"**/{UNFINISHED}*")))
            if kills:
                continue
            train(out)
        elif not kills[0].file:  # it came too late: the machine is faster now
            kills[0] = replace(kills[0], after=kills[0].after / 2)
        differing += differences(out, folder / "through")
        runs += 1
    return {"kills": happened, "differing": differing, "runs": runs - 1, "left": left}


if __name__ == "__main__":
    torch.set_num_threads(1)
    config.recipe_for = lambda *a: replace(recipe_for(*a), batch_size=32)
    print(json.dumps(main(Path(sys.argv[1]))))
