"""Autocast as a value: captured where a block runs, restored where it runs again."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class Precision:
    """The autocast state of one device type.

    It is restored with the cast cache off. The cache would hold one bfloat16 copy of a
    weight for all steps and so sum the steps' gradients in bfloat16; without it they are
    summed in the weight's own dtype, with and without recomputation alike.
    """

    device_type: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def capture(cls, device: torch.device) -> "Precision":
        """The state in force now on the device's type."""
        kind = device.type
        if not torch.amp.is_autocast_available(kind):
            return cls(kind, False, torch.float32)
        return cls(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))

    def restore(self) -> AbstractContextManager[object]:
        """A context in which this state is in force."""
        if not torch.amp.is_autocast_available(self.device_type):
            return nullcontext()
        return torch.autocast(
            self.device_type, dtype=self.dtype, enabled=self.enabled, cache_enabled=False
        )


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast, for arithmetic that half precision would spoil."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def widened(x: Tensor, *others: Tensor) -> Tensor:
    """x in float32 at least, and no narrower than the others."""
    return x.to(reduce(torch.promote_types, (y.dtype for y in (x, *others)), torch.float32))
