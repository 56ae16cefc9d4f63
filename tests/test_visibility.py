"""What a block tells of itself: evaluations, memory, values that are not finite, its repr."""

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, check_finite, configuration_1
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy
from anodev2.models.residual import link
from cases import STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


def block(steps: int = 5, gradient: GradientStrategy = Direct()) -> CoupledODE:
    field = nn.Sequential(*link(4, order="pre"), *link(4, order="pre"))
    return CoupledODE(field, coupling=configuration_1(steps), gradient=gradient)


def images() -> Tensor:
    return torch.randn(4, 4, 16, 16)


def test_the_repr_shows_steps_strategy_evolved_weights_and_the_size_of_p():
    text = repr(block(3, Binomial(2)))
    for part in ("3 z-steps", "Binomial(slots=2)", "field.2.weight", "field.5.weight", "p: 40"):
        assert part in text


def test_direct_keeps_as_much_for_every_step():
    five, ten, twenty = (block(n).memory_report(images()).kept for n in (5, 10, 20))
    assert abs((twenty - ten) - 2 * (ten - five)) < 0.02 * twenty


@pytest.mark.parametrize("slots", [2, 4])
def test_the_peak_of_binomial_is_flat_beyond_twenty_steps(slots):
    z0 = torch.randn(16, 4, 64, 64)
    reports = [block(n, Binomial(slots)).memory_report(z0) for n in (20, 40)]
    assert reports[1].peak < 1.1 * reports[0].peak


def test_the_memory_report_leaves_block_and_random_numbers_alone():
    subject, z0 = block(2, Checkpoint(1)), images()
    buffers = {name: b.clone() for name, b in subject.named_buffers()}
    before = torch.get_rng_state()
    subject.memory_report(z0)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(b, buffers[name]) for name, b in subject.named_buffers())
    assert all(p.grad is None for p in subject.parameters())


@every_strategy
def test_a_weight_that_is_not_finite_is_named_with_block_step_and_time(strategy):
    model = check_finite(nn.Sequential(nn.Identity(), block(5, strategy)))
    with torch.no_grad():
        model[1].field[2].weight[0, 0, 0, 0] = torch.nan
    told = r"weight 'field.2.weight' of block '1' .* nan .* step 1 of 5, from t = 0 to 0.2"
    with pytest.raises(FloatingPointError, match=told):
        model(images())


@every_strategy
def test_an_activation_that_is_not_finite_is_named_with_block_step_and_time(strategy):
    subject = check_finite(block(5, strategy))
    with torch.no_grad():
        subject.norms[1].get_submodule("3").bias.fill_(torch.inf)
    told = r"z of block 'CoupledODE' is not finite .* step 3 of 5, from t = 0.4 to 0.6"
    with pytest.raises(FloatingPointError, match=told):
        subject(images())


def test_the_check_is_off_by_default_and_can_be_taken_off():
    for subject in (block(), check_finite(check_finite(block()), enabled=False)):
        subject(images() * torch.nan)
