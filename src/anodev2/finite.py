"""An opt-in check that weights and activations stay finite, naming where they do not."""

from collections.abc import Iterable

import torch
from torch import Tensor


def require_finite(block: str, step: int, steps: int, values: Iterable[tuple[str, Tensor]]) -> None:
    """Raise unless the values that belong to a step of a block are finite.

    Args:
        block: the name that errors give the block.
        step, steps: number of the step, from 0, and how many there are.
        values: each with what an error calls it.

    Raises:
        FloatingPointError: names block, step, the step's time and the value.
    """
    for name, value in values:
        inexact = value.is_floating_point() or value.is_complex()
        if inexact and not torch.isfinite(value).all():
            kind = "nan" if value.isnan().any() else "infinite"
            raise FloatingPointError(
                f"{name} of block {block!r} is not finite (it holds {kind} values) in step "
                f"{step + 1} of {steps}, from t = {step / steps:g} to {(step + 1) / steps:g}"
            )
