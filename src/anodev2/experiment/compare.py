"""Methods side by side: a run for each method and seed, and one report."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anodev2.experiment.comparison import write_report
from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.failure import RunFailure, written_or_failed
from anodev2.experiment.folder import mismatch, read_config, run_state, write_config
from anodev2.experiment.result import Result
from anodev2.experiment.spelling import DEFAULT, SPELLED, moving, parse_numbers
from anodev2.experiment.training.run import check_fit, train_run
from anodev2.models import find_method
from anodev2.usage import UsageError

OWN = ("method", "seed", "evolution", "memory", "regularization", "p_rate")
"""What the runs of a comparison differ in."""


def compare_methods(
    *,
    model: str,
    methods: Sequence[str],
    seeds: Sequence[str],
    data: str,
    epochs: int | None,
    out: Path,
    order: str,
    precision: str,
    evolutions: Sequence[str] = DEFAULT[:1],
    memory: str = DEFAULT[1],
    regularization: str = DEFAULT[2],
    p_rates: Sequence[str] | None = None,
    recipe: str = "default",
) -> int:
    """Train each method with each seed under one recipe and write `out/report.md`.

    Methods that move are trained with each evolution and each factor on the rate of p.

    A run whose result is in `out` is kept, one that was stopped goes on, and one that
    diverges leaves its reason in the report while the others are trained. To each method
    whose weights move, ANODE at as many steps is added, which tells what the steps earn from
    what the motion does.

    Returns:
        Exit status: 0, or 1 if a run diverged.

    Raises:
        ValueError: bad input, or a folder whose runs have another configuration; found
            before anything is trained.
    """
    ways = ways_to_move(methods, evolutions, memory, regularization, p_rates)
    configs = [
        run_config(
            model=model, method=method, order=order, data=data, epochs=epochs, seed=seed,
            precision=precision, recipe=recipe, **way,
        )
        for seed in parse_numbers("seeds", seeds, int, "whole numbers as in 0,1,2")
        for method in with_companions(methods)
        for way in (ways if find_method(method).moves else [{}])
    ]  # fmt: skip
    for config in configs:
        run_state(out, config)
    images = load_data(data)
    for config in configs:
        check_fit(images, config)
    _check_shared(out, configs[0])
    results, failures = _train(configs, out, images)
    with written_or_failed(out):
        report = write_report(out, results, failures)
    print(f"{report.read_text()}\nreport: {report}")
    return 1 if failures else 0


def _train(
    configs: Sequence[RunConfig], out: Path, images: ImageData
) -> tuple[list[Result], dict[str, str]]:
    """The results of the runs that end, and why each other does not, by name."""
    results: list[Result] = []
    failures: dict[str, str] = {}
    for config in configs:
        try:
            results.append(train_run(config, out, resume=None, data=images))
        except RunFailure as failure:
            print(f"anodev2: {config.name}: {failure}", file=sys.stderr)
            failures[config.name] = str(failure)
    return results, failures


def _check_shared(out: Path, config: RunConfig) -> None:
    """Keep a comparison's folder to one model, data set and recipe, or refuse it."""
    if (out / "report.html").exists():
        raise UsageError(
            f"'{out}' is the folder of `anodev2 reproduce`, which has a report.md of its own: "
            "choose another --out"
        )
    settings, path = asdict(config), out / "comparison.yaml"
    own = {key: settings.pop(key) for key in OWN}
    if path.exists():
        other = mismatch({**read_config(path), **own}, config)
        if other:
            raise UsageError(f"'{out}' holds a comparison {other}: choose another --out")
        return
    write_config(path, settings)


def with_companions(methods: Sequence[str]) -> list[str]:
    """The methods, and for each that moves ANODE at as many steps, once each.

    Raises:
        ValueError: an unknown method, with the nearest one, or none at all.
    """
    given = [name.strip() for name in methods]
    companions = [method.at_rest for method in map(find_method, given) if method.at_rest]
    return list(dict.fromkeys([*given, *companions]))


def ways_to_move(
    methods: Sequence[str],
    evolutions: Sequence[str],
    memory: str,
    regularization: str,
    p_rates: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """The settings of `RunConfig` that say how weights move, one for each run of a method.

    Raises:
        ValueError: one that is not valid, or any where no method moves its weights.
    """
    rates: list[float | None] = [None]
    if p_rates is not None:
        rates = [*parse_numbers("p_rates", p_rates, float, "numbers as in 1,3,10")]
    ways: list[dict[str, Any]] = [
        {"evolution": q, "memory": memory, "regularization": regularization, "p_rate": rate}
        for q in dict.fromkeys(name.strip() for name in evolutions)
        for rate in rates
    ]
    for q in evolutions:
        moving(q.strip(), memory, regularization)
    usual = [{**dict(zip(SPELLED, DEFAULT, strict=True)), "p_rate": None}]
    if ways != usual and not any(find_method(name.strip()).moves for name in methods):
        raise UsageError(
            f"the weights of {', '.join(methods)} stay at rest: evolutions, memory, regularization "
            "and p_rates are for methods that move them, such as anodev2-1"
        )
    return ways
