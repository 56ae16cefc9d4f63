"""Finished runs, gathered from folders of one or several machines."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from anodev2.experiment.config import RunConfig
from anodev2.experiment.damaged import Damaged
from anodev2.experiment.result import Result
from anodev2.usage import UsageError

Key = tuple[str, str]
"""A network and the label of a method on it, without the recipe where all runs have one."""
SHARED = ("epochs", "order", "precision")
"""Settings that runs of a network must share to stand in one table."""


@dataclass(frozen=True)
class Collection:
    """Finished runs that belong into one report.

    Args:
        results: one a run.
        folders: the runs' folders, by name.
    """

    results: tuple[Result, ...]
    folders: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> dict[Key, list[Result]]:
        """The runs of each network and label, by seed."""
        found: dict[Key, list[Result]] = {}
        runs = [(RunConfig(**result.config), result) for result in self.results]
        one_recipe = len({config.recipe for config, _ in runs}) == 1
        for config, result in sorted(runs, key=lambda run: run[0].seed):
            label = config.kind if one_recipe else config.label
            found.setdefault((config.model, label), []).append(result)
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

    @property
    def is_cifar10(self) -> bool:
        """Whether the paper's figures can stand beside them."""
        return all(result.data["is_cifar10"] for result in self.results)

    def accuracies(self, model: str, label: str) -> list[float]:
        """Test accuracies in per cent, one a seed; none where no such run is finished."""
        return [100 * result.accuracy for result in self.by_key.get((model, label), [])]


def collect(folders: Sequence[Path]) -> Collection:
    """Every `runs/*/result.json` in folders; a run found twice is taken from the first.

    A file that is no result is left out, with a line on standard error.

    Raises:
        ValueError: a folder without results, or runs of a network under different settings or on
            different images.
    """
    found: dict[str, tuple[Path, Result]] = {}
    for folder in folders:
        paths = sorted(folder.glob("runs/*/result.json"))
        if not paths:
            raise UsageError(
                f"'{folder}' holds no finished runs: expected a folder with runs/*/result.json"
            )
        for path in paths:
            try:
                found.setdefault(path.parent.name, (path, Result.read(path)))
            except Damaged as damaged:
                print(f"anodev2: {damaged}; left out", file=sys.stderr)
    _check_alike(found.values())
    places = {name: path.parent for name, (path, _) in found.items()}
    return Collection(tuple(result for _, result in found.values()), places)


def _check_alike(runs: Iterable[tuple[Path, Result]]) -> None:
    first: dict[str, tuple[Path, dict[str, object]]] = {}
    for path, result in runs:
        config = RunConfig(**result.config)
        settings = {name: getattr(config, name) for name in SHARED}
        settings |= {key: result.data[key] for key in ("train_images", "test_images", "encoding")}
        other, expected = first.setdefault(config.model, (path, settings))
        for name, value in settings.items():
            if value != expected[name]:
                raise UsageError(
                    f"'{path}' has {name.replace('_', ' ')} {value}, '{other}' {expected[name]}: "
                    "expected runs of a network under the same settings"
                )
