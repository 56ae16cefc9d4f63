"""theta over the grid: every evolution and memory kernel, alone and run together."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from anodev2.evolution import Evolution, Frozen, ReactionDiffusionAdvection
from anodev2.evolution.spectral import SpectralAxes
from anodev2.evolution.trajectory import Trajectory
from anodev2.memory import Dirac, MemoryKernel
from cases import EVOLUTIONS, MEMORY_KERNELS, SHAPES

every_evolution = pytest.mark.parametrize(
    "build", EVOLUTIONS, ids=[f"evolution{i}" for i in range(len(EVOLUTIONS))]
)
every_memory = pytest.mark.parametrize("kernel", MEMORY_KERNELS)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
TENTHS = tuple(range(11))
LINEAR = partial(ReactionDiffusionAdvection, activation=None)


class Doubling(Evolution):
    """w doubles in each step; it notes the times it is called with."""

    def __init__(self, shape) -> None:
        super().__init__()
        self.calls: list[tuple[float, float]] = []

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        self.calls.append((t, dt))
        return 2 * w


class Affine(Evolution):
    """An evolution as a user writes one: no stepper of its own, a rate that depends on t."""

    def __init__(self, shape) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(()))

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        return w + dt * (1 + t) * self.rate * w


def stirred(operator: Evolution, seed: int) -> Evolution:
    """The operator with random parameters."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in operator.parameters():
            p.copy_(0.4 * torch.rand(p.shape, generator=source) - 0.2)
    return operator


def weight(shape, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(weights, evolutions, *, memory: MemoryKernel | None = None, w_steps=10, points=TENTHS):
    """theta at the points, by weight."""
    memory = Dirac() if memory is None else memory
    paths = Trajectory(evolutions, memory, w_steps=w_steps, points=points).solve(weights)
    return {name: path.theta for name, path in paths.items()}


@torch.no_grad()
@every_evolution
@every_shape
def test_weights_of_equal_shape_run_together_to_the_values_of_each_alone(build, shape):
    names = ["a", "b", "c"]
    weights = {n: weight(shape, i).double() for i, n in enumerate(names)}
    evolutions = {n: stirred(build(shape), i).double() for i, n in enumerate(names)}
    together = run(weights, evolutions)
    for n in names:
        alone = run({n: weights[n]}, {n: evolutions[n]})
        for found, expected in zip(together[n], alone[n], strict=True):
            torch.testing.assert_close(
                found, expected, rtol=0, atol=1e-14 * max(1, expected.abs().max())
            )


def test_an_operator_shared_by_two_weights_gets_the_sum_of_their_gradients():
    operator = stirred(ReactionDiffusionAdvection((2, 2, 3, 3)), 0).double()
    weights = {n: weight((2, 2, 3, 3), i).double() for i, n in enumerate("ab")}

    def gradient(names: str) -> Tensor:
        theta = run({n: weights[n] for n in names}, dict.fromkeys(names, operator))
        return torch.autograd.grad(sum(t[-1].square().sum() for t in theta.values()), operator.d)[0]

    torch.testing.assert_close(gradient("ab"), gradient("a") + gradient("b"), rtol=1e-12, atol=0)


@every_evolution
@every_shape
def test_w0_is_never_written(build, shape):
    w0 = {n: weight(shape, i) for i, n in enumerate("ab")}
    before = {n: w.clone() for n, w in w0.items()}
    run(w0, {n: stirred(build(shape), i) for i, n in enumerate("ab")})
    for n in w0:
        assert torch.equal(w0[n], before[n])


@torch.no_grad()
@every_evolution
def test_the_first_read_at_time_0_is_w0_to_the_bit(build):
    w = weight((3, 3, 3, 3))
    assert torch.equal(run({"w": w}, {"w": stirred(build(w.shape), 1)})["w"][0], w)


@torch.no_grad()
@every_evolution
@every_shape
def test_a_stepper_takes_the_same_step_as_the_operator(build, shape):
    operator, w = stirred(build(shape), 1), weight(shape)
    assert torch.equal(operator.stepper(0.25)(w, 0.5), operator(w, 0.5, 0.25))


@torch.no_grad()
@every_evolution
@every_shape
def test_a_step_keeps_shape_and_dtype(build, shape):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        step = build(shape)(weight(shape).to(dtype), 0.0, 0.1)
        assert (step.shape, step.dtype) == (torch.Size(shape), dtype)


@torch.no_grad()
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_are_rounded_once_after_all_ten_steps(half):
    w, operator = weight((4, 4, 3, 3)).to(half), stirred(LINEAR((4, 4, 3, 3)), 1)
    (found,) = run({"w": w}, {"w": operator}, points=(10,))["w"]
    (wide,) = run({"w": w.float()}, {"w": operator}, points=(10,))["w"]
    rounded_often = w
    for m in range(10):
        rounded_often = operator(rounded_often, m / 10, 0.1)
    assert torch.equal(found, wide.to(half))
    assert not torch.equal(found, rounded_often)


@torch.no_grad()
def test_autocast_changes_no_bit_of_a_trajectory():
    weights = {n: weight((3, 3, 3, 3), i) for i, n in enumerate("ab")}
    evolutions = {n: stirred(LINEAR((3, 3, 3, 3)), i) for i, n in enumerate("ab")}
    outside = run(weights, evolutions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run(weights, evolutions)
    for n in weights:
        assert torch.equal(torch.stack(inside[n]), torch.stack(outside[n]))


@every_evolution
def test_parameters_that_no_read_depends_on_get_zeros(build):
    w = weight((3, 3, 3, 3)).requires_grad_()
    operator = stirred(build(w.shape), 1)
    (theta,) = run({"w": w}, {"w": operator}, points=(0,))["w"]
    theta.sum().backward()
    assert torch.equal(w.grad, torch.ones_like(w))
    for p in operator.parameters():
        assert torch.equal(p.grad, torch.zeros_like(p))


@every_evolution
def test_every_parameter_that_a_read_depends_on_gets_a_gradient(build):
    w = weight((3, 3, 3, 3)).requires_grad_()
    operator = stirred(build(w.shape), 1)
    theta = run({"w": w}, {"w": operator})["w"]
    (torch.stack(theta) * weight((len(theta), *w.shape), 7)).sum().backward()
    assert all(p.grad.abs().min() > 0 for p in (w, *operator.parameters()))


@pytest.mark.parametrize("count", [1, 3])
def test_the_propagator_is_made_once_for_all_steps_and_weights_of_a_shape(count, monkeypatch):
    made = []
    make = SpectralAxes.matrix
    monkeypatch.setattr(
        SpectralAxes, "matrix", lambda self, f, c: made.append(len(c)) or make(self, f, c)
    )
    weights = {str(i): weight((3, 3, 3, 3), i) for i in range(count)}
    run(weights, {n: ReactionDiffusionAdvection(w.shape) for n, w in weights.items()})
    assert made == [3 * count]


def test_frozen_returns_w0_itself():
    w = weight((3, 3, 3, 3))
    assert all(read is w for read in run({"w": w}, {"w": Frozen(w.shape)})["w"])


def test_only_the_steps_up_to_the_last_read_are_taken_each_at_its_own_time():
    operator = Doubling((2,))
    theta = run({"w": torch.ones(2)}, {"w": operator}, w_steps=8, points=(1, 3))
    assert operator.calls == [(m / 8, 1 / 8) for m in range(3)]
    assert [read[0].item() for read in theta["w"]] == [2, 8]


def test_an_evolution_that_depends_on_time_is_run_at_the_times_of_the_grid():
    operator = Affine(())
    nn.init.constant_(operator.rate, 0.5)
    weights = {n: torch.tensor(x, dtype=torch.float64) for n, x in (("a", 1.0), ("b", -2.0))}
    theta = run(weights, {n: operator.double() for n in weights}, w_steps=4, points=(4,))
    growth = 1.0
    for m in range(4):
        growth *= 1 + 0.25 * (1 + m / 4) * 0.5
    assert theta["a"][0].item() == pytest.approx(growth, rel=1e-15)
    assert theta["b"][0].item() == pytest.approx(-2 * growth, rel=1e-15)


@torch.no_grad()
@every_memory
def test_at_rest_theta_is_w0_to_the_bit(kernel):
    w = weight((3, 3, 3, 3))
    theta = run({"w": w}, {"w": Frozen(w.shape)}, memory=kernel())["w"]
    assert all(torch.equal(read, w) for read in theta)


@torch.no_grad()
@every_memory
def test_theta_depends_on_the_past_of_w_alone(kernel):
    w = weight((3, 3, 3, 3))
    operator = stirred(LINEAR(w.shape), 1)
    whole = run({"w": w}, {"w": operator}, memory=kernel())["w"]
    (cut,) = run({"w": w}, {"w": operator}, memory=kernel(), points=(4,))["w"]
    assert torch.equal(cut, whole[4])


@torch.no_grad()
def test_dirac_has_no_memory():
    w = [weight((2, 2, 3), i) for i in range(4)]
    assert Dirac()(w, 0.25) is w[-1]
