"""How often a network evaluates its fields, counted while it does."""

from copy import deepcopy

import torch
from torch import Tensor, nn


def count_field_evaluations(model: nn.Module, images: Tensor) -> dict[str, int]:
    """Evaluations of f by all ODE and residual blocks with a `field`, for one batch.

    Args:
        model: the network; a copy is run, so it stays as it is.
        images: a batch of at least two images, in float.

    Returns:
        `forward`: in a forward pass; `backward`: again in the backward pass, by strategies
        that recompute.
    """
    copy = deepcopy(model)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for block in copy.modules():
        field = getattr(block, "field", None)
        if isinstance(field, nn.Module):
            field.register_forward_pre_hook(count)
    loss = copy(images).float().sum()
    forward = calls
    torch.autograd.backward(loss)
    return {"forward": forward, "backward": calls - forward}
