"""The error of the continuous adjoint's gradient, as drawn."""

from math import log

import pytest
import torch

from anodev2.block import CoupledODE
from anodev2.experiment.figures import adjoint
from anodev2.experiment.figures.adjoint import (
    ACTIVATIONS,
    adjoint_figure,
    distance,
    errors,
    gradient,
    gradient_error,
    moving_block,
)
from anodev2.gradient import Binomial, Direct


def test_the_error_is_of_first_order_in_the_step() -> None:
    for name, (coarse, fine) in errors(gradient_error, (20, 40)).items():
        assert log(coarse / fine, 2) == pytest.approx(1, abs=0.05), name


def test_at_five_steps_more_than_a_tenth_of_the_gradient_is_wrong() -> None:
    for name, (error,) in errors(gradient_error, (5,)).items():
        assert 0.1 < error < 0.2, name


def test_an_exact_strategy_has_no_error() -> None:
    block = moving_block(torch.nn.Tanh, 5)
    assert distance(gradient(block, Binomial(2)), gradient(block, Direct())) < 1e-14


def test_weights_and_coefficients_are_the_same_for_any_steps() -> None:
    one, ten = (dict(moving_block(torch.nn.ReLU, n).named_parameters()) for n in (1, 10))
    assert all(torch.equal(parameter, ten[name]) for name, parameter in one.items())
    assert all(p.dtype == torch.float64 and p.abs().max() > 0 for p in one.values())


def test_the_lines_are_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjoint, "gradient_error", lambda block: 1 / (1 + block.coupling.z_steps))
    (axes,) = adjoint_figure((1, 3)).axes
    drawn = {str(line.get_label()): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {
        **{name: [0.5, 0.25] for name in ACTIVATIONS},
        "first order": [0.5, 0.5 / 3],
    }
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_one_thread_computes_errors_and_the_process_keeps_its_own() -> None:
    seen = []

    def note(_: CoupledODE) -> float:
        seen.append(torch.get_num_threads())
        return 0.0

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    errors(note, (1,))
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert seen == [1] * len(ACTIVATIONS)
    assert found == 3
