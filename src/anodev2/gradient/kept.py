"""A state kept for later, with all that the steps from there depend on besides weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from anodev2.gradient.program import State


@dataclass(frozen=True)
class Kept:
    """z, the state of the random number generators, and copies of the buffers.

    Its tensors are one flat list, so that autograd can hold them and free them with the
    graph: `outline` leaves them out, `filled` puts them back.
    """

    device_ids: list[int]
    names: list[str]
    tensors: Sequence[Tensor]

    @classmethod
    def capture(cls, z: Tensor, buffers: State) -> "Kept":
        """Buffers are copied, since steps may write them, and batch norm does so in silence."""
        device_ids, device_rng = get_device_states(z)
        copies = [buffer.detach().clone() for buffer in buffers.values()]
        return cls(device_ids, list(buffers), [z, torch.get_rng_state(), *device_rng, *copies])

    def outline(self) -> "Kept":
        return replace(self, tensors=[])

    def filled(self, tensors: Iterator[Tensor]) -> "Kept":
        """The kept state with its tensors, taken from the front of `tensors`."""
        count = 2 + len(self.device_ids) + len(self.names)
        return replace(self, tensors=[next(tensors) for _ in range(count)])

    @property
    def z(self) -> Tensor:
        return self.tensors[0]

    def buffers(self) -> State:
        """The buffers as they were, as copies that steps may write."""
        copies = self.tensors[2 + len(self.device_ids) :]
        return {name: copy.clone() for name, copy in zip(self.names, copies, strict=True)}

    @contextmanager
    def generators(self) -> Iterator[None]:
        """The random number generators as they were; on exit as they are now."""
        kind = self.z.device.type if self.device_ids else "cuda"
        with torch.random.fork_rng(self.device_ids, device_type=kind):
            torch.set_rng_state(self.tensors[1])
            device_rng = self.tensors[2 : 2 + len(self.device_ids)]
            set_device_states(self.device_ids, device_rng, device_type=kind)
            yield
