"""Fields that act on a tuple of tensors."""

import re
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import Frozen
from anodev2.gradient import Checkpoint, Direct, GradientStrategy
from anodev2.solver import Solver
from cases import SOLVERS, STRATEGIES

Pair = tuple[Tensor, Tensor]
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
with_and_without_shortcut = pytest.mark.parametrize("residual", [False, True])


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


@every_solver
@every_strategy
@with_and_without_shortcut
def test_every_strategy_gives_direct_gradients_of_tuples_to_the_bit(
    residual: bool, strategy: GradientStrategy, solver: Solver
) -> None:
    direct = exchange(residual=residual, solver=solver, gradient=Direct())
    again = deepcopy(direct)
    again.gradient = strategy
    assert all(torch.equal(a, b) for a, b in zip(run(again), run(direct), strict=True))


@every_solver
@with_and_without_shortcut
def test_a_materialized_block_computes_the_bits_of_the_block_on_tuples(residual, solver):
    block = exchange(residual=residual, solver=solver)
    found, expected = block.materialize()(pair()), block(pair())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


class Returning(Exchange):
    """Returns something else made of the two rates."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def forward(self, z: Pair):
        return self.change(*super().forward(z))


@every_solver
def test_a_tuple_of_independent_parts_is_solved_as_each_part_alone(solver):
    class Apart(nn.Module):
        def __init__(self, fields: list[nn.Module]) -> None:
            super().__init__()
            self.fields = nn.ModuleList(fields)

        def forward(self, z: Pair) -> Pair:
            return tuple(field(x) for field, x in zip(self.fields, z, strict=True))

    fields = [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh()) for _ in range(2)]
    found = CoupledODE(Apart(fields), solver=solver)(pair())
    expected = [
        CoupledODE(field, solver=solver)(x) for field, x in zip(fields, pair(), strict=True)
    ]
    torch.testing.assert_close(list(found), expected)


def test_one_step_of_a_residual_module_is_the_module_to_the_bit():
    module = Exchange()
    block = CoupledODE(module, residual=True, coupling=configuration_1(1), evolution=Frozen)
    assert all(torch.equal(a, b) for a, b in zip(block(pair()), module(pair()), strict=True))


@every_strategy
def test_a_field_may_return_a_list(strategy):
    torch.manual_seed(0)
    block = CoupledODE(Returning(lambda *rates: list(rates)), gradient=strategy)
    torch.manual_seed(0)
    again = CoupledODE(Exchange())
    assert all(torch.equal(a, b) for a, b in zip(run(block), run(again), strict=True))


class Single(nn.Module):
    """A field on a tuple of one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, z: tuple[Tensor]) -> tuple[Tensor]:
        return (self.inner(z[0]),)


@every_strategy
def test_a_tuple_of_one_stays_one_and_has_the_bits_of_its_tensor(strategy):
    inner = nn.Conv2d(3, 3, 3, padding=1)
    z0 = pair()[0]
    found = CoupledODE(Single(inner), gradient=strategy)((z0,))
    assert isinstance(found, tuple) and len(found) == 1
    assert torch.equal(found[0], CoupledODE(inner)(z0))


REFUSED = {
    "one part less": (lambda fine, coarse: fine, "(2, 3, 6, 6)"),
    "one part more": (
        lambda fine, coarse: (fine, coarse, fine),
        "(2, 3, 6, 6) and (2, 3, 4, 4) and (2, 3, 6, 6)",
    ),
    "parts exchanged": (
        lambda fine, coarse: (coarse, fine),
        "(2, 3, 4, 4) and (2, 3, 6, 6)",
    ),
    "a part that would broadcast": (
        lambda fine, coarse: (fine[:1], coarse),
        "(1, 3, 6, 6) and (2, 3, 4, 4)",
    ),
}


@every_strategy
@pytest.mark.parametrize(("change", "returned"), REFUSED.values(), ids=REFUSED)
def test_a_field_that_does_not_keep_the_parts_is_refused_with_both_shapes(
    change, returned, strategy
):
    message = re.escape(f"Returning maps (2, 3, 6, 6) and (2, 3, 4, 4) to {returned}; dz/dt")
    with pytest.raises(ValueError, match=message):
        CoupledODE(Returning(change), gradient=strategy)(pair())


NO_TENSORS = {
    "dict": lambda fine, coarse: {"fine": fine},
    "NoneType": lambda *rates: None,
    "tuple of Tensor, NoneType": lambda fine, coarse: (fine, None),
}


@pytest.mark.parametrize(("kind", "change"), NO_TENSORS.items(), ids=NO_TENSORS)
def test_a_field_that_returns_no_tensors_is_refused_by_type(kind, change):
    with pytest.raises(ValueError, match=f"a tensor or a tuple of tensors, not a {kind}"):
        CoupledODE(Returning(change))(pair())


def test_a_field_that_changes_any_part_in_place_is_refused():
    class Changes(Exchange):
        def forward(self, z: Pair) -> Pair:
            return super().forward((z[0], z[1].add_(1)))

    with pytest.raises(RuntimeError, match="field Changes changes its input in place"):
        CoupledODE(Changes())(pair())


STATE = 4 * 2 * 3 * (36 + 16)  # float32, batch 2, 3 channels, both parts


def test_the_memory_report_counts_both_parts_of_a_state():
    assert exchange().memory_report(pair()).state == STATE


def test_a_segment_keeps_both_parts_of_a_state():
    one, two = (exchange(gradient=Checkpoint(n)).memory_report(pair()).kept for n in (1, 2))
    assert two - one == STATE


class Bare(nn.Module):
    """A field on a tuple of one that returns a bare tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, z: tuple[Tensor]) -> Tensor:
        return self.inner(z[0]).tanh()


def test_a_materialized_block_takes_a_bare_tensor_for_a_tuple_of_one_as_the_block_does():
    block = CoupledODE(Bare())
    z0 = (torch.randn(2, 3, 5, 5),)
    assert torch.equal(block.materialize()(z0)[0], block(z0)[0])


def test_an_empty_tuple_is_refused():
    with pytest.raises(ValueError, match="z0 is an empty tuple"):
        exchange()(())


@every_strategy
def test_parts_made_in_inference_mode_have_the_gradients_of_their_copies(strategy):
    block = exchange(gradient=strategy)
    with torch.inference_mode():
        made = pair()
    found = []
    for z in (made, (made[0].clone(), made[1]), tuple(x.clone() for x in made)):
        loss = sum(x.square().sum() for x in block(z))
        found.append(torch.autograd.grad(loss, list(block.parameters())))
    assert all(torch.equal(a, c) and torch.equal(b, c) for a, b, c in zip(*found, strict=True))
