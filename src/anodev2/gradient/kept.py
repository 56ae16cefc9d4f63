"""A state kept for later, with all that the steps from there depend on besides weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from anodev2.gradient.program import State
from anodev2.solver import Activations


@dataclass(frozen=True)
class Kept:
    """z, the state of the random number generators, and copies of the buffers."""

    z: Activations
    rng: Tensor
    device_ids: list[int]
    device_rng: list[Tensor]
    copies: State

    @classmethod
    def capture(cls, z: Sequence[Tensor], buffers: State) -> "Kept":
        """Buffers are copied, since steps may write them, and batch norm does so in silence.

        z leaves its graph but not the fact that it requires a gradient.
        """
        leaves = tuple(x.detach().requires_grad_(x.requires_grad) for x in z)
        copies = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        return cls(leaves, torch.get_rng_state(), *get_device_states(*z), copies)

    @property
    def device_type(self) -> str:
        """Of the generators besides the CPU's."""
        return self.z[0].device.type if self.device_ids else "cuda"

    def buffers(self) -> State:
        """The buffers as they were, as copies that steps may write."""
        return {name: copy.clone() for name, copy in self.copies.items()}

    def restore_generators(self) -> None:
        """Put the random number generators back as they were."""
        torch.set_rng_state(self.rng)
        set_device_states(self.device_ids, self.device_rng, device_type=self.device_type)
