"""The weights that training starts from."""

import torch
from torch import nn
from torch.nn.init import kaiming_normal_
from torch.nn.utils.parametrize import is_parametrized


@torch.no_grad()
def initialize(model: nn.Module, name: str, seed: int) -> None:
    """Draw a network's convolution kernels anew, in place.

    Args:
        model: the network.
        name: "torch" leaves what its modules drew, uniform of variance 1 / (3 fan_in); "he"
            draws from a normal of variance 2 / fan_out, as He's residual networks start.
        seed: of the draws.
    """
    if name == "torch":
        return
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            drawn = torch.empty(module.weight.shape)
            kaiming_normal_(drawn, mode="fan_out", nonlinearity="relu", generator=generator)
            if is_parametrized(module, "weight"):
                module.weight = drawn
            else:
                module.weight.copy_(drawn)
