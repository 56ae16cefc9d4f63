"""How often the field runs with each strategy, as exact counts."""

import pytest
import torch
from torch import Tensor, nn
from twins import STEPS, convolution, coupled, images

from anodev2.gradient import Checkpoint, Direct, GradientStrategy
from anodev2.solver import Solver
from cases import SOLVERS, STRATEGIES

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


class Counted(nn.Module):
    """A convolution that counts its evaluations, and those with a tape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolution()
        self.evaluations = 0
        self.taped = 0

    def forward(self, z: Tensor) -> Tensor:
        self.evaluations += 1
        self.taped += torch.is_grad_enabled()
        return self.inner(z).tanh()


def counts(strategy: GradientStrategy, solver: Solver) -> tuple[int, int]:
    """Evaluations of the forward and of the backward pass, in steps."""
    field = Counted()
    output = coupled(field, solver=solver, gradient=strategy)(images(4))
    forward = field.evaluations
    output.sum().backward()
    stages = len(solver.tableau.b)
    return forward // stages, (field.evaluations - forward) // stages


@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
def test_direct_evaluates_every_stage_once(solver: Solver) -> None:
    assert counts(Direct(), solver) == (STEPS, 0)


@pytest.mark.parametrize("solver", [solver for solver, _ in SOLVERS], ids=str)
@pytest.mark.parametrize("segments", [1, 2, STEPS, STEPS + 1])
def test_checkpoint_evaluates_every_stage_twice(segments: int, solver: Solver) -> None:
    assert counts(Checkpoint(segments), solver) == (STEPS, STEPS)


@pytest.mark.parametrize("segments", [1, 2, STEPS])
def test_a_recomputing_forward_pass_makes_no_tape(segments: int) -> None:
    field = Counted()
    coupled(field, gradient=Checkpoint(segments))(images(4))
    assert field.taped == 0


@every_strategy
def test_without_gradients_nothing_is_evaluated_twice(strategy: GradientStrategy) -> None:
    field = Counted()
    block = coupled(field, gradient=strategy).eval()
    with torch.no_grad():
        block(images(4))
    assert (field.evaluations, field.taped) == (STEPS, 0)


@every_strategy
def test_a_block_that_nothing_trains_is_evaluated_once(strategy: GradientStrategy) -> None:
    field = Counted()
    block = coupled(field, gradient=strategy).requires_grad_(False)
    assert not block(images(4)).requires_grad
    assert field.evaluations == STEPS


@pytest.mark.parametrize("segments", [1, 2, STEPS])
def test_a_second_backward_pass_evaluates_every_step_again(segments: int) -> None:
    field = Counted()
    output = coupled(field, gradient=Checkpoint(segments))(images(4)).sum()
    output.backward(retain_graph=True)
    output.backward()
    assert field.evaluations == 3 * STEPS
