"""The paper's training recipe: appendix "Model Configuration", Training details.

SGD with momentum 0.9, weight decay 5e-4, batches of 256, rate 0.1; the ResNets train for 350
epochs with drops by 10 at 150 and 300 (78.1 % expected of ResNet-4 with configuration 1),
AlexNet for 120 with drops at 40, 80 and 100 (88.8 %); random crops with padding 4 and flips;
the same for every method. Two things were added because runs died without them: a linear
warm-up over the first epoch, and clipping of the gradient's norm at 1. One was found best, as
docs/recipe.md tells: what moves the weights learns at three times their rate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from anodev2.experiment.spelling import split, values
from anodev2.usage import UsageError, check_choice


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: passes over the training images.
        drops: epochs, fractional ones too, at which the rate falls by 10.
        learning_rate, momentum, weight_decay: of SGD.
        p_rate: learning rate of what moves the weights, p and the memory's parameters, in terms
            of that of all others.
        p_decay: weight decay of what moves the weights, None for that of all others.
        batch_size: images a step.
        warmup: epochs over which the rate rises linearly from zero; 0 starts at the full rate.
        clip: largest norm of the gradient of all parameters together, None for any.
        padding: zero pixels around an image before it is cropped to its size again.
        initialization: of convolutions; "torch", the module's own, uniform of variance
            1 / (3 fan_in), or "he", normal of variance 2 / fan_out.

    Raises:
        ValueError: a number out of range.
    """

    epochs: int
    drops: tuple[float, ...]
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    p_rate: float = 3.0
    p_decay: float | None = None
    batch_size: int = 256
    warmup: float = 1.0
    clip: float | None = 1.0
    padding: int = 4
    initialization: str = "torch"

    def __post_init__(self) -> None:
        check_choice("initialization", self.initialization, ["torch", "he"])
        for name in ("learning_rate", "p_rate", "clip", "batch_size"):
            self._check(name, "positive", lambda value: 0 < value < inf)
        for name in ("momentum", "weight_decay", "p_decay", "warmup", "padding"):
            self._check(name, "at least 0", lambda value: 0 <= value < inf)

    def _check(self, name: str, expected: str, valid: Callable[[float], bool]) -> None:
        value = getattr(self, name)
        if value is not None and not valid(value):
            raise UsageError(f"recipe: {name} must be {expected}, got {value}")

    def rate_factor(self, step: int, steps_per_epoch: int) -> float:
        """The factor on `learning_rate` at a step, counted from 0."""
        rise = (step + 1) / (self.warmup * steps_per_epoch) if self.warmup else 1.0
        passed = sum(step >= drop * steps_per_epoch for drop in self.drops)
        return float(min(1.0, rise) * 0.1**passed)


PAPER_RECIPES = {
    "alexnet": Recipe(epochs=120, drops=(40, 80, 100)),
    "resnet4": Recipe(epochs=350, drops=(150, 300)),
    "resnet10": Recipe(epochs=350, drops=(150, 300)),
}
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"warmup": 0.0, "clip": None, "p_rate": 1.0},
}
"""What differs from `PAPER_RECIPES` by name; "paper" is the paper's plain reading."""


def recipe_for(model: str, epochs: int, spelled: str = "default") -> Recipe:
    """The model's recipe over that many epochs, its drops scaled with them.

    Args:
        model: one of the paper's networks.
        epochs: passes over the training images.
        spelled: one of `RECIPES` with options, as in `default:warmup=2:p_decay=0`.

    Raises:
        ValueError: fewer than one epoch, an unknown name or option, or a number out of range.
    """
    if epochs < 1:
        raise UsageError(f"epochs must be at least 1, got {epochs}")
    name, options = split("recipe", spelled)
    check_choice("recipe", name, RECIPES)
    given = RECIPES[name] | values("recipe", Recipe, options)
    full = PAPER_RECIPES[model]
    drops = tuple(drop * epochs / full.epochs for drop in full.drops)
    return replace(full, epochs=epochs, drops=drops, **given)
