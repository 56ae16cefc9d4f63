"""How often the field runs with each strategy, as exact counts."""

import pytest
import torch
from torch import Tensor, nn
from twins import RECOMPUTING, STEPS, convolution, coupled, images

from anodev2.gradient import Binomial, Checkpoint, Direct, Evaluations, GradientStrategy
from anodev2.solver import Solver
from cases import SOLVERS, STRATEGIES

recomputing = pytest.mark.parametrize("strategy", RECOMPUTING, ids=str)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
every_solver = pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)

UNTAPED = {
    **{(5, 1): 3, (5, 3): 1, (5, 4): 0},
    **{(12, 1): 20, (12, 3): 8, (12, 4): 7},
    **{(20, 1): 50, (20, 3): 22, (20, 4): 15},
}
"""P(steps, slots + 1) of the design; `test_schedule` finds it by brute force."""


class Counted(nn.Module):
    """A convolution that counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolution()
        self.evaluations = 0

    def forward(self, z: Tensor) -> Tensor:
        self.evaluations += 1
        return self.inner(z).tanh()


def counts(strategy: GradientStrategy, solver: Solver, steps: int = STEPS) -> tuple[int, int]:
    """Evaluations of the forward and of the backward pass."""
    field = Counted()
    output = coupled(field, steps=steps, solver=solver, gradient=strategy)(images(4))
    forward = field.evaluations
    output.sum().backward()
    return forward, field.evaluations - forward


def stages(solver: Solver) -> int:
    return len(solver.tableau.b)


@every_solver
def test_direct_evaluates_every_stage_once(solver: Solver) -> None:
    assert counts(Direct(), solver) == (STEPS * stages(solver), 0)


@every_solver
@pytest.mark.parametrize("segments", [1, 2, STEPS, STEPS + 1])
def test_checkpoint_evaluates_every_stage_twice(segments: int, solver: Solver) -> None:
    evaluations = STEPS * stages(solver)
    assert counts(Checkpoint(segments), solver) == (evaluations, evaluations)


@every_solver
@pytest.mark.parametrize(("steps", "slots"), UNTAPED)
def test_binomial_evaluates_again_the_optimum_and_once_more_for_the_tape_of_each_step(
    steps: int, slots: int, solver: Solver
) -> None:
    again = UNTAPED[steps, slots] + steps
    expected = (steps * stages(solver), again * stages(solver))
    assert counts(Binomial(slots), solver, steps) == expected


@every_solver
@pytest.mark.parametrize("slots", [STEPS, STEPS + 1])
def test_binomial_with_as_many_slots_as_steps_evaluates_nothing_again(
    slots: int, solver: Solver
) -> None:
    assert counts(Binomial(slots), solver) == (STEPS * stages(solver), 0)


@every_solver
@every_strategy
def test_a_block_counts_the_evaluations_of_its_field(
    strategy: GradientStrategy, solver: Solver
) -> None:
    field = Counted()
    block = coupled(field, solver=solver, gradient=strategy)
    output = block(images(4))
    forward = field.evaluations
    output.sum().backward()
    assert block.evaluations == Evaluations(forward, field.evaluations - forward)


def test_a_block_counts_the_evaluations_of_its_last_forward_pass_alone() -> None:
    block = coupled(Counted(), gradient=Checkpoint(1))
    for _ in range(2):
        block(images(4)).sum().backward()
    assert block.evaluations == Evaluations(STEPS, STEPS)


@every_strategy
def test_without_gradients_nothing_is_evaluated_twice(strategy: GradientStrategy) -> None:
    field = Counted()
    block = coupled(field, gradient=strategy).eval()
    with torch.no_grad():
        block(images(4))
    assert field.evaluations == STEPS


@every_strategy
def test_a_block_that_nothing_trains_is_evaluated_once(strategy: GradientStrategy) -> None:
    field = Counted()
    block = coupled(field, gradient=strategy).requires_grad_(False)
    assert not block(images(4)).requires_grad
    assert field.evaluations == STEPS


def evaluations_of_two_backward_passes(strategy: GradientStrategy) -> tuple[int, int]:
    field = Counted()
    output = coupled(field, gradient=strategy)(images(4)).sum()
    field.evaluations = 0
    output.backward(retain_graph=True)
    first = field.evaluations
    output.backward()
    return first, field.evaluations - first


@pytest.mark.parametrize("segments", [1, 2, STEPS])
def test_a_second_backward_pass_evaluates_every_step_again(segments: int) -> None:
    assert evaluations_of_two_backward_passes(Checkpoint(segments)) == (STEPS, STEPS)


@pytest.mark.parametrize("slots", [1, 3, 4])
def test_a_second_backward_pass_of_binomial_first_sweeps_forward_again(slots: int) -> None:
    """The first one freed the states that the forward pass had left."""
    first, second = evaluations_of_two_backward_passes(Binomial(slots))
    assert (first, second) == (UNTAPED[STEPS, slots] + STEPS, STEPS + first)


class Tail(nn.Module):
    """Changes the sign, for which a tape saves nothing, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluations = 0

    def forward(self, z: Tensor) -> Tensor:
        self.evaluations += 1
        return -z


@pytest.mark.parametrize(
    ("strategy", "again"),
    [(Checkpoint(1), STEPS - 1), (Checkpoint(2), STEPS - 2), (Checkpoint(STEPS), 0)]
    + [(Binomial(slots), UNTAPED[STEPS, slots]) for slots in (1, 3, 4)],
    ids=str,
)
def test_a_replay_stops_where_the_tape_of_its_last_step_is_complete(
    strategy: GradientStrategy, again: int
) -> None:
    tail = Tail()
    block = coupled(nn.Sequential(convolution(), nn.Tanh(), tail), gradient=strategy)
    block(images(4)).sum().backward()
    assert tail.evaluations == STEPS + again
