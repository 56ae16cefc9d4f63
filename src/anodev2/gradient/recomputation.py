"""Fields that torch.utils.checkpoint is to run again in the backward pass, which must not be.

Theta has left its place in the field by then: it would be run with w(0), to other gradients.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

MODULE = "torch.utils.checkpoint"


def refuse_checkpointed(field: nn.Module, of: Iterable[Tensor], to: Iterable[Tensor]) -> None:
    """Raise if torch.utils.checkpoint has a part in the graph of a field's value.

    Args:
        field: the module.
        of: its value.
        to: what that was computed from, at which the graph ends.

    Raises:
        RuntimeError: it has.
    """
    if torch.compiler.is_compiling():  # it is compiled with its tensors then
        return
    seen: set[Node] = {t.grad_fn for t in to if t.grad_fn is not None}
    ahead = [t.grad_fn for t in of if t.grad_fn is not None]
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        if _is_marked(node):
            raise RuntimeError(
                f"the field {type(field).__name__} has torch.utils.checkpoint run parts of it "
                "again in the backward pass, when theta has left it: leave that out, and build "
                "the block with gradient=Checkpoint()"
            )
        seen.add(node)
        ahead += [other for other, _ in node.next_functions if other is not None]


def _is_marked(node: Node) -> bool:
    """Whether it is a checkpoint (use_reentrant=True), or one holds what it saves (False)."""
    if type(node).__name__ == "CheckpointFunctionBackward":
        return True
    saved: list[Any] = []
    for name in _saved_names(type(node)):
        value = getattr(node, name)
        saved += value if isinstance(value, tuple | list) else [value]
    holders = any(type(getattr(x, "data", None)).__module__ == MODULE for x in saved)
    return holders and not _block_is_checkpointed()


def _block_is_checkpointed() -> bool:
    """Whether what is saved now is held by a checkpoint around the block, which may be."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and hooks[0].__module__ == MODULE


@cache
def _saved_names(kind: type[Node]) -> list[str]:
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]
