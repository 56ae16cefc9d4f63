"""The arrows of the coupling diagram."""

from fractions import Fraction
from itertools import pairwise

import pytest
from matplotlib.text import Annotation
from torch import nn

from anodev2.block import CoupledODE
from anodev2.coupling import Coupling, configuration_1, configuration_2
from anodev2.experiment.figures.coupling import (
    W,
    block_diagram,
    coupling_figure,
    diagram,
)
from anodev2.solver import RK4, Euler, Midpoint, Solver

COUPLINGS = {
    "configuration 1": configuration_1(5),
    "configuration 2": configuration_2(),
    "given read times": Coupling(3, 10, (0.0, 0.3, 1.0)),
    "10 x 20 steps": Coupling(10, 20),
}


@pytest.mark.parametrize("solver", [Euler(), Midpoint(), RK4()])
@pytest.mark.parametrize("name", COUPLINGS)
def test_the_arrows_are_the_reads_of_the_coupling(name: str, solver: Solver) -> None:
    reads = COUPLINGS[name].reads(solver.tableau.c)
    drawn = diagram(COUPLINGS[name], solver)
    found = [(a.step, a.stage, a.time) for a in drawn.arrows]
    assert found == [
        (i, s, Fraction(point, reads.w_steps))
        for i, points in enumerate(reads.index)
        for s, point in enumerate(points)
    ]
    assert (drawn.z_steps, drawn.w_steps) == (COUPLINGS[name].z_steps, reads.w_steps)


def test_configuration_1_reads_each_fifth_and_configuration_2_the_ends() -> None:
    assert [a.time for a in diagram(configuration_1(5), Euler()).arrows] == [
        Fraction(i, 5) for i in range(5)
    ]
    assert [a.time for a in diagram(configuration_2(), Euler()).arrows] == [0, 1]


def test_the_stages_of_rk4_read_the_start_the_middle_twice_and_the_end_of_their_step() -> None:
    arrows = diagram(configuration_1(2), RK4()).arrows
    assert [a.time for a in arrows if a.step == 1] == [
        Fraction(1, 2),
        Fraction(3, 4),
        Fraction(3, 4),
        1,
    ]


def test_a_block_is_drawn_by_its_own_coupling_and_solver() -> None:
    block = CoupledODE(
        nn.Conv2d(2, 2, 3, padding=1), coupling=configuration_2(3, 4), solver=Midpoint()
    )
    assert block_diagram(block) == diagram(configuration_2(3, 4), Midpoint())


@pytest.mark.parametrize("solver", [Euler(), RK4()])
@pytest.mark.parametrize("name", COUPLINGS)
def test_each_drawn_arrow_goes_from_its_theta_into_the_box_of_its_step(
    name: str, solver: Solver
) -> None:
    drawn = diagram(COUPLINGS[name], solver)
    (axes,) = coupling_figure({name: drawn}).axes
    lines = [text for text in axes.texts if isinstance(text, Annotation)]
    assert len(lines) == len(drawn.arrows)
    for line, arrow in zip(lines, drawn.arrows, strict=True):
        assert line.get_position() == (float(arrow.time), pytest.approx(W, abs=0.1))
        assert arrow.step < line.xy[0] * drawn.z_steps < arrow.step + 1


def test_no_two_stages_stand_closer_than_their_names_are_wide() -> None:
    for steps in ((5, 5), (10, 20), (1, 1)):
        figure = coupling_figure({"": diagram(Coupling(*steps), RK4())})
        places = sorted(t.xy[0] for t in figure.axes[0].texts if isinstance(t, Annotation))
        inches = figure.get_size_inches()[0] - 1.5
        assert min(b - a for a, b in pairwise(places)) * inches > 0.25


def test_of_many_times_few_are_written() -> None:
    (axes,) = coupling_figure({"": diagram(configuration_1(100), Euler())}).axes
    assert len(axes.get_xticks()) == 20
