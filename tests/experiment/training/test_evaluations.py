"""Exact counts of field evaluations of networks, forward and backward."""

import pytest
import torch
from torch import Tensor

from anodev2.experiment.training.evaluations import count_field_evaluations
from anodev2.models import build_model

# Of resnet4, forward and backward; its one block is the field.
RESNET4 = {
    "baseline": (1, 0),
    "anode": (2, 2),
    "anode-5": (5, 5),
    "anodev2-1": (5, 0),
    "anodev2-2": (2, 0),
    "neural-ode": (2, 2),
    "neural-ode-5": (5, 5),
    "neural-ode-3-rk4": (3 * 4, 3 * 4),
}
BLOCKS_OF_RESNET10 = 2
RESIDUAL_BLOCKS_OF_RESNET10 = 1


def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("method", "counts"), RESNET4.items())
def test_the_block_of_resnet4_evaluates_its_field_once_a_stage_in_each_pass(method, counts):
    found = count_field_evaluations(build_model("resnet4", method=method), images())
    assert found == dict(zip(("forward", "backward"), counts, strict=True))


@pytest.mark.parametrize(("method", "counts"), RESNET4.items())
def test_resnet10_counts_its_two_blocks_and_the_residual_block_before_them(method, counts):
    forward, backward = (BLOCKS_OF_RESNET10 * count for count in counts)
    found = count_field_evaluations(build_model("resnet10", method=method), images())
    assert found == {"forward": forward + RESIDUAL_BLOCKS_OF_RESNET10, "backward": backward}


@pytest.mark.parametrize("method", ["anodev2-1", "anode"])
def test_counting_leaves_the_model_as_it_is(method):
    model = build_model("resnet4", method=method)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count_field_evaluations(model, images())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
