"""Parts of a block that are replaced after it was built, and those that are fixed."""

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_2
from anodev2.evolution import Frozen
from anodev2.memory import MemoryKernel
from anodev2.solver import RK4


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


@pytest.mark.parametrize(("part", "value"), [("coupling", configuration_2()), ("solver", RK4())])
def test_what_norms_and_reads_were_made_for_cannot_be_replaced(part, value):
    block = moving()
    before = getattr(block, part)
    with pytest.raises(AttributeError, match=f"{part}.*of 'CoupledODE' object has no setter"):
        setattr(block, part, value)
    assert getattr(block, part) is before
