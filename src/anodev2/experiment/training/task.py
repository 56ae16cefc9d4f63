"""What Lightning trains: a network, its loss, its optimiser and its batches."""

from math import inf
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torchmetrics.classification import MulticlassAccuracy

from anodev2.block import CoupledODE
from anodev2.experiment.data.batches import Augmentation, Batches
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.recipe import Recipe


class Classification(LightningModule):
    """Image classification by the paper's recipe.

    Several processes share each batch of the recipe equally and average their gradients; each
    normalises its own share.

    Args:
        model: (batch, channels, height, width) -> logits (batch, classes).
        data: training and test images.
        recipe: optimiser, batches and epochs.
        seed: of the order and augmentation of every epoch, and of what the model draws.
    """

    def __init__(self, model: nn.Module, data: ImageData, recipe: Recipe, seed: int) -> None:
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.data = data
        self.recipe = recipe
        self.seed = seed
        self.blocks = [block for block in model.modules() if isinstance(block, CoupledODE)]
        classes = len(data.classes)
        self.train_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def train_dataloader(self) -> Batches:
        augmentation = Augmentation(padding=self.recipe.padding, flip=self.data.flips)
        return self._batches(train=True, augmentation=augmentation)

    def val_dataloader(self) -> Batches:
        return self._batches(train=False, augmentation=None)

    def configure_optimizers(self) -> Any:
        recipe = self.recipe
        optimizer = torch.optim.SGD(
            self._parameter_groups(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )
        steps = len(self.train_dataloader())
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: recipe.rate_factor(step, steps)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _parameter_groups(self) -> list[dict[str, Any]]:
        """All parameters, apart from p where it has a rate or a decay of its own."""
        recipe = self.recipe
        movers = [module for block in self.blocks for module in (block.evolution, block.memory)]
        p = list({id(x): x for module in movers for x in module.parameters()}.values())
        if not p or (recipe.p_rate == 1 and recipe.p_decay is None):
            return [{"params": list(self.parameters())}]
        moved = {id(x) for x in p}
        rest = [x for x in self.parameters() if id(x) not in moved]
        decay = recipe.weight_decay if recipe.p_decay is None else recipe.p_decay
        rate = recipe.p_rate * recipe.learning_rate
        return [{"params": rest}, {"params": p, "lr": rate, "weight_decay": decay}]

    def on_train_epoch_start(self) -> None:
        """What a network draws in an epoch depends on the seed and the epoch alone."""
        torch.manual_seed(self.seed + 1_000_003 * (self.current_epoch + 1) + self.global_rank)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        logits = self.model(images)
        loss = cross_entropy(logits.float(), labels)
        # The loss of the whole batch: if it is not finite, all processes end here together.
        mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
        self._require_finite("loss", mean, step=index + 1)
        self.train_accuracy(logits, labels)
        self.log("train_loss", mean, on_step=True, on_epoch=True, prog_bar=True)
        self.log("train_accuracy", self.train_accuracy, on_step=True, on_epoch=True, prog_bar=True)
        return sum((block.regularization() for block in self.blocks), start=loss)

    def on_validation_start(self) -> None:
        """Evaluate the network that is saved: batch norm's statistics are the first process's."""
        if self.trainer.world_size > 1:
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, src=0)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        logits = self.model(images)
        loss = cross_entropy(logits.float(), labels)
        self.test_accuracy(logits, labels)
        self.log("test_loss", loss, batch_size=len(labels), sync_dist=True)
        self.log("test_accuracy", self.test_accuracy, prog_bar=True)

    def on_validation_end(self) -> None:
        self._require_finite("test loss", self.trainer.callback_metrics["test_loss"])

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradient's norm, and end the run before a step along one that is not finite."""
        norm = clip_grad_norm_(self.parameters(), self.recipe.clip or inf)
        self._require_finite("gradient's norm", norm, step=self.trainer.fit_loop.batch_idx + 1)

    def _require_finite(self, what: str, value: Tensor, *, step: int | None = None) -> None:
        if not torch.isfinite(value):
            place = f"in epoch {self.current_epoch + 1}" + (f", step {step}" if step else "")
            raise RunFailure(f"the {what} is {value.item()} {place}")

    def _batches(self, *, train: bool, augmentation: Augmentation | None) -> Batches:
        return Batches(
            self.data.train if train else self.data.test,
            mean=self.data.mean,
            std=self.data.std,
            batch_size=self.recipe.batch_size // self.trainer.world_size,
            seed=self.seed,
            augment=augmentation,
            shuffle=train,
            epoch=lambda: self.current_epoch,
            rank=self.global_rank,
            world_size=self.trainer.world_size,
        )
