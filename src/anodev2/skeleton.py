"""Modules hung on a bare tree that repeats the paths of another module.

A module at path `a.b` of the tree has the parameters that the original's `a.b` has, under
the same names, so one dictionary of names serves both.
"""

from collections.abc import Mapping
from copy import deepcopy

from torch import nn


def skeleton(modules: Mapping[str, nn.Module]) -> nn.Module:
    """A tree with each module at its dotted path; the path "" is the tree itself."""
    if "" in modules:
        return modules[""]
    root = nn.Module()
    for path, module in modules.items():
        *parents, leaf = path.split(".")
        node = root
        for name in parents:
            if name not in dict(node.named_children()):
                node.add_module(name, nn.Module())
            node = node.get_submodule(name)
        node.add_module(leaf, module)
    return root


def step_copies(
    field: nn.Module, per_step: tuple[type[nn.Module], ...], steps: int
) -> nn.ModuleList:
    """Copies of the field's modules of the given types for the steps after the first.

    What they share among themselves, the copies of one step share too.
    """
    chosen = {path: m for path, m in field.named_modules() if isinstance(m, per_step)}
    copies = range(steps - 1 if chosen else 0)
    return nn.ModuleList(skeleton(deepcopy(chosen)) for _ in copies)
