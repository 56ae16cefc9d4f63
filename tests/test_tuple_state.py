"""Fields that act on a tuple of tensors."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.gradient import Direct, GradientStrategy
from anodev2.solver import Solver
from cases import SOLVERS, STRATEGIES

Pair = tuple[Tensor, Tensor]


class Exchange(nn.Module):
    """Two images of other sizes that move each other."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, 3, 3, padding=1)
        self.coarse = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, z: Pair) -> Pair:
        fine, coarse = z
        return self.fine(fine).tanh() + coarse.mean(), self.coarse(coarse).tanh() * fine.mean()


def pair() -> Pair:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, n, n, generator=generator) for n in (6, 4))


def exchange(**settings) -> CoupledODE:
    torch.manual_seed(0)
    block = CoupledODE(Exchange(), coupling=configuration_1(4), **settings)
    for p in block.evolution.parameters():
        nn.init.normal_(p, std=0.1)
    return block


def test_a_tuple_takes_the_euler_steps_that_a_person_writes():
    block = exchange()
    theta = block.weight_trajectory()
    fine, coarse = pair()
    for i in range(4):
        weights = {name.removeprefix("field."): w[i] for name, w in theta.items()}
        f, g = torch.func.functional_call(block.field, weights, ((fine, coarse),))
        fine, coarse = torch.add(fine, f, alpha=0.25), torch.add(coarse, g, alpha=0.25)
    found = block(pair())
    assert torch.equal(found[0], fine)
    assert torch.equal(found[1], coarse)


def run(block: CoupledODE) -> list[Tensor]:
    z0 = tuple(x.requires_grad_() for x in pair())
    z1 = block(z0)
    sum(x.square().sum() for x in z1).backward()
    return [*z1, *(x.grad for x in z0), *(p.grad for p in block.parameters())]


@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_every_strategy_gives_direct_gradients_of_tuples_to_the_bit(
    strategy: GradientStrategy, solver: Solver
) -> None:
    direct = exchange(solver=solver, gradient=Direct())
    again = deepcopy(direct)
    again.gradient = strategy
    assert all(torch.equal(a, b) for a, b in zip(run(again), run(direct), strict=True))


def test_a_materialized_block_computes_the_bits_of_the_block_on_tuples():
    block = exchange()
    found, expected = block.materialize()(pair()), block(pair())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_field_that_loses_a_part_is_refused_with_both_shapes():
    class Loses(Exchange):
        def forward(self, z: Pair) -> Tensor:
            return super().forward(z)[0]

    message = r"maps \(2, 3, 6, 6\) and \(2, 3, 4, 4\) to \(2, 3, 6, 6\)"
    with pytest.raises(ValueError, match=message):
        CoupledODE(Loses())(pair())


def test_the_memory_report_counts_both_parts_of_a_state():
    assert exchange().memory_report(pair()).state == 4 * 2 * 3 * (36 + 16)
