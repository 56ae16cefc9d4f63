"""Fixed numbers of an operator, exact in every precision."""

import torch
from torch import Tensor, nn

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
"""Integers as wide as a precision."""


class Table(nn.Module):
    """A tensor that moves with its module to another device but is never rounded twice.

    It is kept as the bits of its float32 and of its float64 values, because a module's
    `.to(dtype)` rounds buffers of numbers, and coming back would not restore them.

    Args:
        values: in float64, of any shape.
    """

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        for dtype, bits in BITS.items():
            stored = values.to(dtype).contiguous().view(bits)
            self.register_buffer(_buffer(dtype), stored, persistent=False)

    def forward(self, dtype: torch.dtype) -> Tensor:
        """The values in float32 or float64."""
        return self.get_buffer(_buffer(dtype)).view(dtype)


def _buffer(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
