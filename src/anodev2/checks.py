"""Checks of whole models that are off unless asked for."""

from torch import nn

from anodev2.block import CoupledODE


def check_finite(model: nn.Module, *, enabled: bool = True) -> nn.Module:
    """Make every block of a model raise where a weight or an activation is not finite.

    Each step then reads theta and z once more, a small part of what its field costs.

    Args:
        model: a network, or a block. Errors name each block by its path in it.
        enabled: False takes the check off again.

    Returns:
        The model; its blocks raise a FloatingPointError that names block, step and time.
    """
    for path, module in model.named_modules():
        if isinstance(module, CoupledODE):
            module.check_finite = (path or type(module).__name__) if enabled else None
    return model
