"""Finished runs, gathered from folders of one or several machines."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anodev2.experiment.cells import counted
from anodev2.experiment.config import RunConfig, recipe_numbers
from anodev2.experiment.damaged import Damaged
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.failure import kept_failure
from anodev2.experiment.folder import epochs_done, mismatch, read_config
from anodev2.experiment.paper import NAMES
from anodev2.experiment.result import SHOWN, Result, describe_data
from anodev2.models import METHODS, find_method
from anodev2.usage import UsageError

Key = tuple[str, str]
"""A network and the label of a method on it, without the recipe where its runs have one."""
IMAGES = ("train_images", "test_images", "encoding")
"""What a result says of its data that all runs of a network in a report have in common."""


@dataclass(frozen=True)
class Collection:
    """Runs that belong into one report.

    Args:
        results: of finished runs.
        folders: the runs' folders, by name.
        unfinished: what became of the others so far, by name.
    """

    results: tuple[Result, ...]
    folders: Mapping[str, Path] = field(default_factory=dict)
    unfinished: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> dict[Key, list[Result]]:
        """The runs of each network and label, by size, in the paper's order, by seed."""
        found: dict[Key, list[Result]] = {}
        models = {model: place for place, model in enumerate(self.models)}
        methods = {method: place for place, method in enumerate(METHODS)}

        def order(run: tuple[RunConfig, Result]) -> tuple[int, int, str, int]:
            config = run[0]
            place = methods.get(config.kind, len(methods))
            return models[config.model], place, config.label, config.seed

        runs = [(RunConfig(**result.config), result) for result in self.results]
        for config, result in sorted(runs, key=order):
            label = self.label(config.model, config.kind, config.recipe)
            found.setdefault((config.model, label), []).append(result)
        return found

    def label(self, model: str, kind: str, recipe: str) -> str:
        """The label of a kind of method under a recipe, which is named if runs differ in it."""
        named = recipe != "default" and len(self._recipes[model]) > 1
        return f"{kind} {recipe}" if named else kind

    @cached_property
    def _recipes(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for result in self.results:
            config = RunConfig(**result.config)
            found.setdefault(config.model, set()).add(config.recipe)
        return found

    def folders_of(self, model: str, label: str) -> list[Path]:
        """The folders of the runs of a network and label."""
        names = [RunConfig(**result.config).name for result in self.by_key.get((model, label), [])]
        return [self.folders[name] for name in names if name in self.folders]

    @property
    def models(self) -> list[str]:
        """The networks, from the smallest on."""
        smallest = {
            model: min(r.parameters for r in self.results if r.config["model"] == model)
            for model in {r.config["model"] for r in self.results}
        }
        return sorted(smallest, key=lambda model: smallest[model])

    def is_cifar10(self, model: str) -> bool:
        """Whether the paper's figures can stand beside a network's."""
        return all(r.data["is_cifar10"] for r in self.results if r.config["model"] == model)

    @property
    def has_cifar10(self) -> bool:
        """Whether they can beside any."""
        return any(map(self.is_cifar10, self.models))

    def accuracies(self, model: str, label: str) -> list[float]:
        """Test accuracies in per cent, one a seed; none where no such run is finished."""
        return [100 * value for value in self.last("test_accuracy", model, label)]

    def last(self, name: str, model: str, label: str) -> list[float]:
        """A figure of the last epoch, one a seed; see `Result.curve`."""
        return [result.curve(name)[-1] for result in self.by_key.get((model, label), [])]


def configuration_of(result: Result) -> RunConfig:
    """What made a run, with the precision that "auto" of older versions came to."""
    return replace(RunConfig(**result.config), precision=result.precision)


def collect(folders: Sequence[Path], *, begun: bool = False) -> Collection:
    """Every `runs/*/result.json` in folders; a run found twice is taken from the first.

    A file that is no result of a network here, or not of the run whose folder it lies in, is left
    out, with a line on standard error.

    Args:
        folders: with `runs` in them.
        begun: whether a folder may have no result yet.

    Raises:
        ValueError: a folder without results, or runs of a network under different settings or
            on different images.
    """
    found: list[tuple[Path, Result]] = []
    unfinished: dict[str, str] = {}
    for folder in folders:
        before = len(found)
        for path in sorted(folder.glob("runs/*/result.json")):
            try:
                found.append((path, _read(path)))
            except Damaged as damaged:
                print(f"anodev2: {damaged}; left out", file=sys.stderr)
        if not (begun or folder.is_dir()):
            what = "is a file" if folder.exists() else "does not exist"
            raise UsageError(f"'{folder}' {what}: expected a folder with runs/*/result.json")
        if len(found) == before and not begun:
            raise UsageError(
                f"'{folder}' holds no finished runs: expected a folder with runs/*/result.json"
            )
    _check_alike(found)
    first: dict[str, tuple[Path, Result]] = {}
    for path, result in found:
        first.setdefault(RunConfig(**result.config).name, (path, result))
    finished = {*first, *(path.parent.name for path, _ in found)}
    for folder in folders:
        for path in sorted(folder.glob("runs/*/config.yaml")):
            if path.parent.name not in finished:
                unfinished.setdefault(path.parent.name, _state(path.parent))
    places = {name: path.parent for name, (path, _) in first.items()}
    return Collection(tuple(result for _, result in first.values()), places, unfinished)


def _read(path: Path) -> Result:
    """A result that a report can be made of.

    Raises:
        Damaged: it lacks something, is of a network or method that is not known here, or of
            another run than that of its folder.
    """
    result = Result.read(path)
    try:
        config = RunConfig(**result.config)
        find_method(config.method, config.moving)
        known = config.model in NAMES and {"name", *IMAGES, "is_cifar10"} <= result.data.keys()
        for name in (*SHOWN, "seconds"):
            result.curve(name)
    except (TypeError, ValueError, IndexError) as error:
        raise Damaged(path, f"is no result for a report ({error})") from error
    if not known:
        raise Damaged(path, "is no result for a report: it is of another version")
    _check_folder(path, config)
    return result


def _check_folder(path: Path, config: RunConfig) -> None:
    """Raise Damaged where a result is of another run than the folder that it lies in."""
    folder, own = path.parent, path.with_name("config.yaml")
    if not own.exists():
        if folder.name != config.name:
            raise Damaged(path, f"is not the result of its folder's run, but of '{config.name}'")
        return
    try:
        other = mismatch(read_config(own), config)
    except UsageError as error:
        raise Damaged(own, "is not the configuration of a run") from error
    if other:
        raise Damaged(path, f"is not the result of its folder's run, {other}")


def _state(folder: Path) -> str:
    """How far an unfinished run has come, and why it ended if it failed."""
    failure = kept_failure(folder)
    reason = f", {failure.reason}" if failure else ""
    return f"{counted(epochs_done(folder), 'epoch')} so far{reason}"


Setting = tuple[str, str | None, str]
"""A network, the recipe if it is one of its numbers, and the setting's name."""


def _settings(
    config: RunConfig, data: Mapping[str, Any], recipe: Mapping[str, Any]
) -> dict[Setting, Any]:
    """What all runs of a network in a report have in common, and all of one recipe of it."""
    shared = {"epochs": config.epochs, "order": config.order, "precision": config.precision}
    shared |= {key: data[key] for key in IMAGES}
    numbers = recipe_numbers(recipe, config)
    return {(config.model, None, name): value for name, value in shared.items()} | {
        (config.model, config.recipe, name): value for name, value in numbers.items()
    }


def _settings_of(result: Result) -> dict[Setting, Any]:
    return _settings(configuration_of(result), result.data, result.recipe)


def _check_alike(runs: Iterable[tuple[Path, Result]]) -> None:
    first: dict[Setting, tuple[Path, Any]] = {}
    for path, result in runs:
        for setting, value in _settings_of(result).items():
            other, expected = first.setdefault(setting, (path, value))
            if value != expected:
                name = setting[-1].replace("_", " ")
                raise UsageError(
                    f"'{path}' has {name} {value}, '{other}' {expected}: expected runs of a "
                    "network under the same settings"
                )


def check_settings(runs: Collection, configs: Sequence[RunConfig], data: ImageData) -> None:
    """Refuse runs that could not stand in one report with those that are finished.

    Args:
        runs: finished ones.
        configs: of the runs to come.
        data: their images.

    Raises:
        ValueError: other epochs, order, precision, images or numbers of the recipe, with the
            value that the others have.
    """
    known: dict[Setting, Any] = {}
    for result in runs.results:
        known = _settings_of(result) | known
    images = describe_data(data)
    for config in configs:
        now = _settings(config, images, asdict(config.trained_by))
        for (model, recipe, name), value in now.items():
            expected = known.get((model, recipe, name), value)
            if value != expected:
                under = f" by the recipe {recipe!r}" if recipe else ""
                raise UsageError(
                    f"{name.replace('_', ' ')} {value} for {model}{under}, whose finished runs "
                    f"here have {expected}: choose another --out"
                )
