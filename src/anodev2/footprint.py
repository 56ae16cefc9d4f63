"""What a block keeps in memory, measured tensor by tensor."""

import weakref
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anodev2.field import parts
from anodev2.solver import Z


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one forward and backward pass of a block, in bytes.

    Attributes:
        state: size of z(0), which is there before the block and not counted below.
        kept: what waits between the two passes for the second, z(1) aside: states or tapes,
            theta, and copies of buffers.
        peak: the most that is alive at any time, with z(1), gradients and temporaries.
    """

    state: int
    kept: int
    peak: int

    def __str__(self) -> str:
        kept, peak = (f"{_spelled(size)}{self._in_states(size)}" for size in (self.kept, self.peak))
        return f"keeps {kept}, peak {peak}; a state is {_spelled(self.state)}"

    def _in_states(self, size: int) -> str:
        return f" ({size / self.state:.1f} states)" if self.state else ""


def measure_memory(block: nn.Module, z0: Z) -> MemoryReport:
    """Run a copy of the block forward and backward, and count the bytes of live tensors."""
    copy = deepcopy(block)
    start = [part.detach().requires_grad_() for part in parts(z0)]
    before = [*start, *copy.parameters(), *copy.buffers()]
    devices = sorted({part.get_device() for part in start if part.is_cuda})
    with torch.random.fork_rng(devices), torch.enable_grad(), _Ledger(before) as ledger:
        z1 = copy(start[0] if isinstance(z0, Tensor) else tuple(start))
        ends = [z1] if isinstance(z1, Tensor) else list(z1)
        kept = ledger.alive - _bytes(ends)
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
    return MemoryReport(state=_bytes(start), kept=kept, peak=ledger.peak)


def _spelled(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of storages that operations inside it make, while they live."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = 0
        self.peak = 0
        self.seen = weakref.WeakSet(tensor.untyped_storage() for tensor in known)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._enter(tensor.untyped_storage())
        return result

    def _enter(self, storage: torch.UntypedStorage) -> None:
        if storage in self.seen:
            return
        self.seen.add(storage)
        size = storage.nbytes()
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._leave, size)

    def _leave(self, size: int) -> None:
        self.alive -= size
