"""What makes a run, and the names it goes by."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch

from anodev2.experiment.recipe import PAPER_RECIPES, Recipe, recipe_for
from anodev2.experiment.spelling import DEFAULT, SPELLED, moving
from anodev2.models import MODELS, ORDERS, Moving, find_method
from anodev2.usage import UsageError, check_choice, check_count

PRECISIONS: dict[str, Literal["bf16-mixed", "32-true"]] = {
    "bfloat16": "bf16-mixed",
    "float32": "32-true",
}
"""By the names they have here, those that Lightning gives them."""
SHARED = ("data", "epochs", "order", "precision", "recipe")
"""What the runs of a table have in common: options of every command that trains."""
DIGITS_EPOCHS = 15
"""Epochs on the embedded digits unless given: seconds, where the paper's 350 take minutes."""


@dataclass(frozen=True)
class RunConfig:
    """What makes a run: two runs of one configuration have one result.

    `precision` is a key of `PRECISIONS`; `p_rate` is None where it is the recipe's.
    """

    model: str
    method: str
    order: str
    data: str
    epochs: int
    seed: int
    precision: str
    evolution: str = DEFAULT[0]
    memory: str = DEFAULT[1]
    regularization: str = DEFAULT[2]
    p_rate: float | None = None
    recipe: str = "default"
    devices: int = 1
    num_nodes: int = 1

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        label = re.sub(r"[^\w.+-]+", "-", self.label)
        return f"{self.model}-{label}-seed{self.seed}"

    @property
    def label(self) -> str:
        """The method, with what differs from the default in how it moves and is trained."""
        return " ".join([self.kind, *([self.recipe] if self.recipe != "default" else [])])

    @property
    def kind(self) -> str:
        """The label without the recipe."""
        spelled = (self.evolution, self.memory, self.regularization)
        others = [text for text, usual in zip(spelled, DEFAULT, strict=True) if text != usual]
        moves = find_method(self.method).moves
        rate = [f"p-rate={self.p_rate:g}"] if self.p_rate is not None and moves else []
        shared = {"devices": self.devices, "num-nodes": self.num_nodes}
        counts = [f"{name}={count}" for name, count in shared.items() if count != 1]
        return " ".join([self.method, *others, *rate, *counts])

    @property
    def trained_by(self) -> Recipe:
        """The recipe's numbers, with the run's own rate of p if it has one."""
        recipe = recipe_for(self.model, self.epochs, self.recipe)
        return recipe if self.p_rate is None else replace(recipe, p_rate=self.p_rate)

    @property
    def processes(self) -> int:
        """How many processes share each batch."""
        return self.devices * self.num_nodes

    @property
    def moving(self) -> Moving:
        """How its weights move."""
        return moving(self.evolution, self.memory, self.regularization)


def run_config(*, model: str, data: str, epochs: int | None, **rest: Any) -> RunConfig:
    """A configuration with its defaults filled in and its names checked.

    The precision "auto" becomes the one that this machine has in hardware, so that the run keeps
    it wherever it goes on.

    Raises:
        ValueError: an unknown name or a number out of range.
    """
    check_choice("model", model, MODELS)
    spelled = [rest.get(key, usual) for key, usual in zip(SPELLED, DEFAULT, strict=True)]
    method = find_method(rest["method"], moving(*spelled))
    if rest.get("p_rate") is not None and not method.moves:
        raise UsageError(f"the weights of {rest['method']!r} stay at rest: it has no p for p_rate")
    check_choice("order", rest["order"], ORDERS)
    check_choice("precision", rest["precision"], ["auto", *PRECISIONS])
    if rest["precision"] == "auto":
        rest["precision"] = fast_precision()
    if not 0 <= rest["seed"] < 2**32:
        raise UsageError(f"seed must be at least 0 and below 2^32, got {rest['seed']}")
    if epochs is None:
        epochs = DIGITS_EPOCHS if data == "digits" else PAPER_RECIPES[model].epochs
    recipe = recipe_for(model, epochs, rest.get("recipe", "default"))
    if rest.get("p_rate") == recipe.p_rate:
        rest["p_rate"] = None
    config = RunConfig(model=model, data=data, epochs=epochs, **rest)
    _check_shares(config.trained_by.batch_size, config)
    return config


def recipe_numbers(recipe: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """What a name of a recipe stands for, as far as it tells in a run.

    Epochs are settings of their own, numbers of p tell only where weights move, and not where the
    run has a rate of p of its own.

    Args:
        recipe: as in a result or a checkpoint; those of older versions lack the rate of p, 1.
        config: the run.
    """
    usual = {f.name: f.default for f in fields(Recipe)} | {"p_rate": 1.0}
    silent = {"epochs", "drops"} | ({"p_rate"} if config.p_rate is not None else set())
    if not find_method(config.method).moves:
        silent |= {"p_rate", "p_decay"}
    return {name: recipe.get(name, value) for name, value in usual.items() if name not in silent}


def recipe_mismatch(recipe: Mapping[str, Any], config: RunConfig) -> str | None:
    """How the numbers of a run's recipe have changed since, as in "had warmup 2.0, not 1.0"."""
    now = recipe_numbers(asdict(config.trained_by), config)
    for name, value in recipe_numbers(recipe, config).items():
        if value != now[name]:
            return (
                f"trained when the recipe {config.recipe!r} had {name} {value!r}, not {now[name]!r}"
            )
    return None


def _check_shares(batch_size: int, config: RunConfig) -> None:
    check_count("devices", config.devices)
    check_count("num_nodes", config.num_nodes)
    count = config.processes
    if batch_size % count:
        nearest = max(1, round(batch_size / count)) * count
        raise UsageError(
            f"a batch of {batch_size} images in equal shares for {count} processes "
            f"({config.devices} devices x {config.num_nodes} nodes): expected a multiple of "
            f"{count}, such as batch_size={nearest} in the recipe"
        )


def fast_precision() -> Literal["bfloat16", "float32"]:
    """bfloat16 where this machine computes it in hardware, float32 elsewhere."""
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    has = torch.cpu.get_capabilities()
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"
