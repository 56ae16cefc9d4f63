"""From a table's name to its report: plan, run what is left, write."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from signal import SIGTERM, default_int_handler, signal
from threading import current_thread, main_thread
from time import perf_counter, sleep

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.failure import kept_failure, written_or_failed
from anodev2.experiment.folder import Busy, claimed, run_state
from anodev2.experiment.reproduction.collection import check_settings, collect
from anodev2.experiment.reproduction.engine import Engine, Outcome
from anodev2.experiment.reproduction.plan import Plan, duration, epochs_left, steps_of
from anodev2.experiment.reproduction.publication import check_folder, make_folder, publish
from anodev2.experiment.reproduction.step_times import read_seconds
from anodev2.experiment.reproduction.table import rows_of, runs_of
from anodev2.experiment.reproduction.timing import lacks_times, timed_steps
from anodev2.experiment.result import Result
from anodev2.experiment.training.run import check_fit
from anodev2.models import MODELS
from anodev2.usage import check_choice

POLL = 10.0
"""Seconds between looks at runs that another process has."""


@dataclass(frozen=True)
class Work:
    """A table to be made in a folder.

    Args:
        table: one of `TABLES`, or "all".
        models: networks.
        methods: rows to keep; None keeps all.
        seeds: one run of each for each.
        data, epochs, order, precision, recipe: of every run; see `RunConfig`.
        out: the folder.
    """

    table: str
    models: Sequence[str]
    methods: Sequence[str] | None
    seeds: Sequence[int]
    data: str
    epochs: int | None
    order: str
    precision: str
    recipe: str
    out: Path

    def configs(self) -> list[RunConfig]:
        """The runs.

        Raises:
            ValueError: something in one that is not valid.
        """
        for model in self.models:
            check_choice("model", model, MODELS)
        return runs_of(
            rows_of(self.table, self.methods),
            self.models,
            self.seeds,
            data=self.data,
            epochs=self.epochs,
            order=self.order,
            precision=self.precision,
            recipe=self.recipe,
        )


def reproduce(work: Work, engine: Engine) -> int:
    """Carry out the runs of a table that are not finished, and write the report of its folder.

    Returns:
        Exit status: 0, or 1 if a run failed.

    Raises:
        ValueError: bad input, or a folder whose runs have another configuration; found before
            anything is trained.
    """
    check_folder(work.out)
    configs = work.configs()
    for config in configs:
        run_state(work.out, config)
    failed = False
    with _terminable(), written_or_failed(work.out):
        if configs:
            data = load_data(work.data)
            check_settings(collect([work.out], begun=True), configs, data)
            for config in dict.fromkeys(replace(config, seed=0) for config in configs):
                check_fit(data, config)
            make_folder(work.out)
            plan = _plan(work.out, configs, data, engine)
            print(plan, flush=True)
            failed = any(o.state == "failed" for o in _carry_out(plan, engine, work.out))
        publish(work.out, collect([work.out], begun=True), read_seconds(work.out / "timings.json"))
    return 1 if failed else 0


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a request to end interrupt, as Ctrl-C does, where signals come to this thread."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal(SIGTERM, default_int_handler)
    try:
        yield
    finally:
        signal(SIGTERM, before)


def _plan(out: Path, configs: Sequence[RunConfig], data: ImageData, engine: Engine) -> Plan:
    runs = {config: epochs_left(out, config) for config in configs}
    known = read_seconds(out / "timings.json")
    names = dict.fromkeys(config.model for config in configs)
    of = {name: [config for config in configs if config.model == name] for name in names}
    models = [m for m in of if any(map(runs.get, of[m])) or lacks_times(known, of[m])]
    if models:
        print(f"timing training steps of {', '.join(models)}", flush=True)
    timed = [config for model in models for config in of[model]]
    seconds = timed_steps(timed, data, out / "timings.json", threads=engine.threads)
    steps = {config.model: steps_of(config, data) for config in configs}
    return Plan(runs, seconds, steps, engine.side_by_side)


def _carry_out(plan: Plan, engine: Engine, out: Path) -> list[Outcome]:
    """Carry out what is left, and tell of each run as it ends."""
    begun, outcomes = perf_counter(), list[Outcome]()
    for outcome in _outcomes(plan.todo, engine, out):
        outcomes.append(outcome)
        passed, left = plan.progress(out, [o.config for o in outcomes if o.state == "failed"])
        left *= (perf_counter() - begun) / passed if passed > 0 else nan
        told = f", {duration(left)} left" if isfinite(left) else ""
        print(f"[{len(outcomes)}/{len(plan.todo)}] {_told(outcome, out)}{told}", flush=True)
    return outcomes


def _outcomes(todo: Sequence[RunConfig], engine: Engine, out: Path) -> Iterator[Outcome]:
    """What became of each run; what another process has is waited for, and taken if it stops.

    A run that fails there meanwhile is not tried again, as it would not be had it failed here.
    """
    folders = {config: out / "runs" / config.name for config in todo}
    before = {config: kept_failure(folder) for config, folder in folders.items()}
    busy: list[RunConfig] = []
    while todo:
        for outcome in engine.run(todo, out):
            if outcome.state == "busy":
                busy.append(outcome.config)
            else:
                yield outcome
        if busy:
            names = ", ".join(config.name for config in busy[:3])
            print(
                f"waiting for {counted(len(busy), 'run')} of another process: {names}", flush=True
            )
        todo = []
        while busy and not todo:
            for config in _free(out, busy):
                busy.remove(config)
                failure = kept_failure(folders[config])
                if failure and failure != before[config]:
                    yield Outcome(config, "failed", failure.reason)
                else:
                    todo.append(config)
            if busy and not todo:
                sleep(POLL)


def _free(out: Path, configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Those of the runs that no process trains at the moment."""
    free = []
    for config in configs:
        with suppress(Busy), claimed(out / "runs" / config.name):
            free.append(config)
    return free


def _told(outcome: Outcome, out: Path) -> str:
    name = outcome.config.name
    if outcome.state == "failed":
        return f"{name}: failed, {outcome.reason}"
    result = Result.read(out / "runs" / name / "result.json")
    return f"{name}: test accuracy {100 * result.accuracy:.2f} %"
