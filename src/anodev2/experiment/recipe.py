"""The paper's training recipe: appendix "Model Configuration", Training details.

SGD with momentum 0.9, weight decay 5e-4, batches of 256, rate 0.1; the ResNets train for 350
epochs with drops by 10 at 150 and 300 (78.1 % expected of ResNet-4 with configuration 1),
AlexNet for 120 with drops at 40, 80 and 100 (88.8 %); random crops with padding 4 and flips;
the same for every method. Two things were added because runs died without them: a linear
warm-up over the first epoch, and clipping of the gradient's norm at 1.
"""

from dataclasses import dataclass

from anodev2.usage import UsageError


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: passes over the training images.
        drops: epochs, fractional ones too, at which the rate falls by 10.
        learning_rate, momentum, weight_decay: of SGD.
        batch_size: images a step.
        warmup: epochs over which the rate rises linearly from zero.
        clip: largest norm of the gradient of all parameters together.
        padding: zero pixels around an image before it is cropped to its size again.
    """

    epochs: int
    drops: tuple[float, ...]
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 256
    warmup: float = 1.0
    clip: float = 1.0
    padding: int = 4

    def rate_factor(self, step: int, steps_per_epoch: int) -> float:
        """The factor on `learning_rate` at a step, counted from 0."""
        rise = min(1.0, (step + 1) / (self.warmup * steps_per_epoch))
        passed = sum(step >= drop * steps_per_epoch for drop in self.drops)
        return float(rise * 0.1**passed)


PAPER_RECIPES = {
    "alexnet": Recipe(epochs=120, drops=(40, 80, 100)),
    "resnet4": Recipe(epochs=350, drops=(150, 300)),
    "resnet10": Recipe(epochs=350, drops=(150, 300)),
}


def recipe_for(model: str, epochs: int) -> Recipe:
    """The model's recipe over that many epochs, its drops scaled with them.

    Raises:
        ValueError: fewer than one epoch.
    """
    if epochs < 1:
        raise UsageError(f"epochs must be at least 1, got {epochs}")
    full = PAPER_RECIPES[model]
    return Recipe(epochs, tuple(drop * epochs / full.epochs for drop in full.drops))
