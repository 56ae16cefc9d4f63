"""Which operators run together: those that differ in parameters and buffers alone."""

from functools import partial

import numpy as np
import pytest
import torch
from test_trajectory import run, stirred, weight
from torch import Tensor, nn

from anodev2.evolution import Evolution, ReactionDiffusionAdvection

LINEAR = partial(ReactionDiffusionAdvection, activation=None)


class Tabled(Evolution):
    """w grows by a rate from a table, which is no part of the state."""

    def __init__(self, table: Tensor, *, buffer: bool) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))
        if buffer:
            self.register_buffer("table", table, persistent=False)
        else:
            self.table = table

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        return w * self.table[1000] + self.shift


def test_operators_that_differ_in_sigma_each_keep_their_own_when_shapes_are_equal():
    w = weight((2, 2, 3, 3))
    evolutions = {"linear": LINEAR(w.shape), "curbed": ReactionDiffusionAdvection(w.shape)}
    theta = run({"linear": w, "curbed": w}, evolutions, w_steps=1, points=(1,))
    assert torch.equal(theta["linear"][0], w)
    assert torch.equal(theta["curbed"][0], w.tanh())


def test_operators_that_differ_in_layout_each_keep_their_own_when_shapes_are_equal():
    w = weight((2, 2, 3, 3))
    evolutions = {
        n: stirred(LINEAR(w.shape, coefficients=n), i)
        for i, n in enumerate(("layer", "channel", "filter"))
    }
    theta = run(dict.fromkeys(evolutions, w), evolutions)
    for n, operator in evolutions.items():
        alone = run({n: w}, {n: operator})
        torch.testing.assert_close(theta[n][-1], alone[n][-1])


@pytest.mark.parametrize("buffer", [True, False])
def test_operators_that_differ_in_a_tensor_outside_their_state_each_keep_their_own(buffer):
    tables = {n: torch.ones(2001) for n in "ab"}
    tables["b"][1000] = 5
    evolutions = {n: Tabled(table, buffer=buffer) for n, table in tables.items()}
    theta = run(dict.fromkeys("ab", torch.ones(2)), evolutions, w_steps=1, points=(1,))
    assert [theta[n][0][0].item() for n in "ab"] == [1, 5]


class Masked(Evolution):
    """w + dt p mask, with the mask in an attribute of some type."""

    def __init__(self, mask: object) -> None:
        super().__init__()
        self.mask = mask
        self.p = nn.Parameter(torch.ones(()))

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        mask = self.mask[0] if isinstance(self.mask, list) else self.mask
        return w + dt * self.p * torch.as_tensor(mask, dtype=w.dtype)


def striped(row: int) -> np.ndarray:
    mask = np.zeros((40, 40))
    mask[row] = 1
    return mask


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (striped(10), striped(11)),
        ([torch.tensor(0.10001)], [torch.tensor(0.10004)]),
        (0.1, np.nextafter(0.1, 1)),
    ],
    ids=["arrays", "tensors in a list", "a number and the next"],
)
def test_operators_whose_settings_print_alike_each_keep_their_own(one, other):
    evolutions = {"one": Masked(one), "other": Masked(other)}
    w = torch.zeros(40, 40, dtype=torch.float64)
    theta = run(dict.fromkeys(evolutions, w), evolutions, w_steps=1, points=(1,))
    for name, operator in evolutions.items():
        assert torch.equal(theta[name][0], operator(w, 0.0, 1.0))


class Counting(Masked):
    """Counts its steps in a buffer, in place or by assigning it anew."""

    def __init__(self, *, anew: bool) -> None:
        super().__init__(1.0)
        self.anew = anew
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        if self.anew:
            self.steps = self.steps + 1
        else:
            self.steps += 1
        return super().forward(w, t, dt)


@pytest.mark.parametrize("anew", [True, False])
def test_an_operator_that_changes_a_buffer_is_refused_where_weights_run_together(anew):
    evolutions = {name: Counting(anew=anew) for name in "ab"}
    with pytest.raises(RuntimeError, match="Counting changes 'steps' as it runs"):
        run(dict.fromkeys("ab", torch.ones(2)), evolutions)
