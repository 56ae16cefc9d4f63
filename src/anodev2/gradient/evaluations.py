"""How often a block evaluated its field."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Evaluations:
    """Evaluations of f in one forward pass, and again in its backward passes so far.

    Each stage of a solver's step is one. An evaluation that is made again for its tape may
    stop as soon as the tape is complete; it counts.
    """

    forward: int = 0
    backward: int = 0
    _backward: bool = field(default=False, repr=False, compare=False)

    def count(self) -> None:
        """One more, of the pass that is going on."""
        if self._backward:
            self.backward += 1
        else:
            self.forward += 1

    @contextmanager
    def in_backward(self) -> Iterator[None]:
        """What is counted inside belongs to the backward pass."""
        self._backward = True
        try:
            yield
        finally:
            self._backward = False
