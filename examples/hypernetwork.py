"""A HyperNetwork as one evolution step: theta = w0 + q(w0; p), read at its end.

    python examples/hypernetwork.py

A small network writes the change of a convolution's kernels, all filters alike, and is trained
with them to shift images by one pixel.
"""

import torch
from torch import nn

from anodev2 import CoupledODE, Coupling
from anodev2.evolution import NetworkEvolution


def hypernetwork(field: nn.Module) -> CoupledODE:
    """One z-step that reads theta(1) after one w-step, with a network as q."""
    return CoupledODE(field, coupling=Coupling(1, 1, (1.0,)), evolution=NetworkEvolution)


def main(steps: int = 300) -> tuple[float, float]:
    """Train; the loss at the start and at the end."""
    torch.manual_seed(0)
    block = hypernetwork(nn.Conv2d(1, 1, 5, padding=2))
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        images = torch.randn(64, 1, 5, 5)
        shifted = torch.roll(images, 1, dims=-1)
        loss = (block(images) - shifted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    theta = block.weight_trajectory()["field.weight"][0, 0, 0]
    w0 = block.field.weight[0, 0]
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {steps} steps")
    print(f"the network moved the kernel by {(theta - w0).norm() / w0.norm():.2f} of its norm")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
