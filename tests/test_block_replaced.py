"""Parts of a block that are replaced after it was built."""

import torch
from torch import Tensor, nn

from anodev2 import CoupledODE
from anodev2.evolution import Frozen
from anodev2.memory import MemoryKernel


class Start(MemoryKernel):
    """theta(t) = w(0)."""

    def forward(self, w: list[Tensor], dt: float) -> Tensor:
        return w[0]


def moving() -> CoupledODE:
    block = CoupledODE(nn.Conv2d(3, 3, 3, padding=1))
    for p in block.evolution.parameters():
        nn.init.constant_(p, 0.2)
    return block


def at_rest(block: CoupledODE) -> bool:
    theta = block.weight_trajectory()["field.weight"]
    return all(torch.equal(read, block.field.weight) for read in theta)


def test_a_memory_kernel_put_in_later_is_used():
    block = moving()
    assert not at_rest(block)
    block.memory = Start()
    assert at_rest(block)


def test_an_evolution_put_in_later_is_used():
    block = moving()
    block.evolution.weight = Frozen(block.field.weight.shape)
    assert at_rest(block)
