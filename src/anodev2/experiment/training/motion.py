"""How the weights of a network move, in numbers."""

import torch
from torch import nn

from anodev2.block import CoupledODE


@torch.no_grad()
def describe_motion(model: nn.Module) -> dict[str, float | None] | None:
    """What the motion of a network's weights takes and does; None where none can move.

    Args:
        model: the network.

    Returns:
        `p`: how many numbers move them, those of the evolutions and of the memory kernels;
        `distance`: |theta(1) - theta(0)| / |theta(0)| over all evolved weights together; None
        where theta(0) is zero, as it is with a raw memory kernel.
    """
    blocks = [module for module in model.modules() if isinstance(module, CoupledODE)]
    p = sum(x.numel() for b in blocks for m in (b.evolution, b.memory) for x in m.parameters())
    if not p:
        return None
    ends = [theta for b in blocks for theta in b.weight_trajectory([0.0, 1.0]).values()]
    start = torch.cat([theta[0].flatten() for theta in ends])
    end = torch.cat([theta[1].flatten() for theta in ends])
    distance = ((end - start).norm() / start.norm()).item() if start.any() else None
    return {"p": p, "distance": distance}
