"""The memory kernels: the integral they are, the limits they have, and what they never see."""

from collections.abc import Callable
from functools import partial
from math import erf, exp, log2, pi, sqrt

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.evolution import BasisEvolution, PiecewiseLinear
from anodev2.evolution.trajectory import Trajectory
from anodev2.memory import Dirac, Exponential, Gaussian, IntegralKernel, Learned, Uniform
from anodev2.usage import UsageError
from cases import MEMORY_KERNELS

Exact = Callable[[float], float]
RATE, WIDTH, WINDOW = 3.0, 0.3, 0.5

# int_0^t K(t - s) w(s) ds for w(s) = s and for w(s) = exp(s), on paper.
INTEGRALS: dict[str, tuple[Exact, Exact]] = {
    "exponential": (
        lambda t: t - (1 - exp(-RATE * t)) / RATE,
        lambda t: RATE / (RATE + 1) * (exp(t) - exp(-RATE * t)),
    ),
    "gaussian": (
        lambda t: t * _bell(t) - WIDTH * sqrt(2 / pi) * (1 - exp(-((t / WIDTH) ** 2) / 2)),
        lambda t: exp(t + WIDTH**2 / 2) * (_bell(t + WIDTH**2) - _bell(WIDTH**2)),
    ),
    "uniform": (
        lambda t: (t**2 - max(t - WINDOW, 0) ** 2) / 2 / WINDOW,
        lambda t: (exp(t) - exp(max(t - WINDOW, 0))) / WINDOW,
    ),
}
INTEGRANDS: tuple[Exact, Exact] = (lambda s: s, exp)


def _bell(x: float) -> float:
    return erf(x / WIDTH / sqrt(2))


def exponential_by_lags(n: int, t: float) -> Learned:
    """The exponential kernel as a number for each lag."""
    kernel = Learned(n + 1, normalize=False).double()
    lags = torch.arange(n + 1, dtype=torch.float64) * t / n
    kernel.k.data = RATE * (-RATE * lags).exp() * t / n
    return kernel


# A raw kernel on n steps up to t, beside the integral that it approaches.
RAW: dict[str, tuple[str, Callable[[int, float], IntegralKernel]]] = {
    "exponential": ("exponential", lambda n, t: Exponential(RATE, normalize=False)),
    "its rate learned": (
        "exponential",
        lambda n, t: Exponential(RATE, learn=True, normalize=False).double(),
    ),
    "gaussian": ("gaussian", lambda n, t: Gaussian(WIDTH, normalize=False)),
    "its width learned": (
        "gaussian",
        lambda n, t: Gaussian(WIDTH, learn=True, normalize=False).double(),
    ),
    "uniform": ("uniform", lambda n, t: Uniform(WINDOW, normalize=False)),
    "learned": ("exponential", exponential_by_lags),
}

# Integral kernels at settings that weigh several steps, built raw or normalised.
INTEGRAL: list[Callable[..., IntegralKernel]] = [
    Exponential,
    partial(Exponential, learn=True),
    Gaussian,
    partial(Gaussian, learn=True),
    Uniform,
    partial(Uniform, 0.25),
    lambda **settings: learned([1.5, 0.7, -0.2, 0.4], **settings),
]
every_integral = pytest.mark.parametrize("build", INTEGRAL)


def learned(values: list[float], **settings: bool) -> Learned:
    kernel = Learned(len(values), **settings)
    kernel.k.data = torch.tensor(values)
    return kernel


def sampled(w: Exact, t: float, n: int) -> list[Tensor]:
    return [torch.tensor(w(m * t / n), dtype=torch.float64) for m in range(n + 1)]


def noise(count: int, *shape: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return list(torch.randn(count, *shape, generator=source, dtype=torch.float64))


def factors(kernel: IntegralKernel, points: int, dt: float) -> Tensor:
    """c_im at the last of the points: theta of the unit vectors."""
    return kernel(list(torch.eye(points, dtype=torch.float64)), dt).detach()


def error(name: str, w: int, t: float, n: int) -> float:
    like, build = RAW[name]
    found = build(n, t)(sampled(INTEGRANDS[w], t, n), t / n).item()
    return found - INTEGRALS[like][w](t)


@pytest.mark.parametrize("t", [0.25, 1.0])
@pytest.mark.parametrize("w", [0, 1], ids=["t", "exp(t)"])
@pytest.mark.parametrize("name", [name for name in RAW if name != "uniform"])
def test_the_raw_integral_converges_at_order_2(name: str, w: int, t: float) -> None:
    for n in (16, 32):  # the next term of the error is dt^2 ~ 1e-3 of it
        slope = log2(error(name, w, t, n) / error(name, w, t, 2 * n))
        assert slope == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("t", [0.25, 1.0])
def test_the_uniform_kernel_converges_at_order_2_where_the_window_is_a_multiple_of_dt(t) -> None:
    assert abs(error("uniform", 0, t, 16)) < 1e-15  # the rule is exact for what is linear
    slope = log2(error("uniform", 1, t, 16) / error("uniform", 1, t, 32))
    assert slope == pytest.approx(2, abs=0.02)


def test_the_uniform_kernel_converges_at_order_1_where_the_window_is_no_multiple_of_dt() -> None:
    kernel = Uniform(1 / 3, normalize=False)  # a third of a step lies beyond the last point

    def gap(n: int) -> float:
        exact = 3 * (exp(1) - exp(2 / 3))
        return abs(kernel(sampled(exp, 1.0, n), 1 / n).item() - exact)

    assert log2(gap(1024) / gap(2048)) == pytest.approx(1, abs=0.01)


def test_the_uniform_kernel_keeps_order_2_where_its_window_begins_at_time_0() -> None:
    slope = log2(error("uniform", 1, WINDOW, 32) / error("uniform", 1, WINDOW, 64))
    assert slope == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("kernel", [Exponential(RATE), Gaussian(WIDTH)], ids=["rate", "width"])
def test_a_setting_that_is_not_learned_is_as_exact_as_the_weights(kernel: IntegralKernel) -> None:
    value = kernel.values(torch.zeros(1, dtype=torch.float64), 0.1).item()
    expected = RATE if isinstance(kernel, Exponential) else sqrt(2 / pi) / WIDTH
    assert value == pytest.approx(expected, rel=1e-15)


@every_integral
def test_raw_weights_are_the_kernel_times_the_trapezoidal_rule(build) -> None:
    kernel = build(normalize=False).double()
    lags = torch.arange(6, -1, -1, dtype=torch.float64) * 0.1
    q = torch.tensor([0.05, *[0.1] * 5, 0.05], dtype=torch.float64)
    expected = kernel.values(lags, 0.1).detach() * q
    torch.testing.assert_close(factors(kernel, 7, 0.1), expected, rtol=1e-15, atol=0)


@every_integral
@pytest.mark.parametrize("points", [2, 3, 7, 11])
def test_normalised_weights_are_the_raw_ones_over_their_sum(build, points: int) -> None:
    raw = factors(build(normalize=False).double(), points, 0.1)
    found = factors(build().double(), points, 0.1)
    torch.testing.assert_close(found, raw / raw.sum(), rtol=0, atol=4e-16)


@every_integral
@pytest.mark.parametrize("points", [1, 2, 11])
def test_normalised_weights_sum_to_one(build, points: int) -> None:
    total = factors(build().double(), points, 0.1).sum().item()
    assert total == pytest.approx(1, abs=points * 2.3e-16)


@pytest.mark.parametrize("kernel", MEMORY_KERNELS)
def test_normalised_theta_at_time_0_is_w0_to_the_bit(kernel) -> None:
    (w,) = noise(1, 3, 4)
    assert torch.equal(kernel()([w], 0.1), w)


@every_integral
def test_raw_theta_at_time_0_is_zero(build) -> None:
    assert torch.equal(build(normalize=False)(noise(1, 3, 4), 0.1), torch.zeros(3, 4).double())


@pytest.mark.parametrize("kernel", [Gaussian(0.005), Exponential(1000.0)], ids=repr)
def test_a_kernel_much_narrower_than_a_step_is_dirac_to_the_bit(kernel: IntegralKernel) -> None:
    w = noise(5, 3, 4)
    assert torch.equal(kernel(w, 0.1), Dirac()(w, 0.1))


@pytest.mark.parametrize("width", [0.08, 0.04])
def test_behind_a_ramp_theta_lags_in_proportion_to_the_width(width: float) -> None:
    ramp = sampled(lambda s: s, 1.0, 4000)
    exponential, gaussian = (k(ramp, 1 / 4000) for k in (Exponential(1 / width), Gaussian(width)))
    # dt^2 / width^2 < 4e-5 of the lag; the exponential kernel has exp(-1 / width) left at s = 0
    assert 1 - exponential.item() == pytest.approx(width, rel=1e-4)
    assert 1 - gaussian.item() == pytest.approx(width * sqrt(2 / pi), rel=1e-4)


def read(coefficients: Tensor, memory: nn.Module) -> list[Tensor]:
    """theta at the quarters of a path through random weights."""
    evolution = BasisEvolution((3, 2), basis=PiecewiseLinear(4)).double()
    evolution.c.data = coefficients
    trajectory = Trajectory({"w": evolution}, memory, w_steps=8, points=range(0, 9, 2))
    return trajectory.solve({"w": noise(1, 3, 2)[0]})["w"].theta


@torch.no_grad()
@pytest.mark.parametrize(
    "kernel", [*MEMORY_KERNELS, *(partial(b, normalize=False) for b in INTEGRAL)]
)
@pytest.mark.parametrize("knot", [1, 2, 3, 4])
def test_theta_never_reads_the_future(kernel, knot: int) -> None:
    c = torch.stack(noise(4, 3, 2))
    other = c.clone()
    other[knot - 1 :] += 1  # w is another one after the knot before this one
    found, changed = read(c, kernel()), read(other, kernel())
    assert all(torch.equal(found[i], changed[i]) for i in range(knot))
    assert not any(torch.equal(found[i], changed[i]) for i in range(knot, 5))


@pytest.mark.parametrize("points", [2, 3, 9])
@pytest.mark.parametrize("normalize", [True, False])
def test_learned_starts_as_dirac_to_the_bit(points: int, normalize: bool) -> None:
    w = noise(points, 3, 4)
    assert torch.equal(Learned(5, normalize=normalize)(w, 0.1), w[-1])


def test_learned_lags_beyond_the_count_are_zero() -> None:
    raw = factors(learned([1.0, 1.0, 1.0], normalize=False), 6, 0.5)
    assert raw.tolist() == [0, 0, 0, 1, 1, 0.5]


@pytest.mark.parametrize(("normalize", "expected"), [(False, 10 + 100.0), (True, 55.0)])
def test_learned_by_hand(normalize: bool, expected: float) -> None:
    w = [torch.tensor([x]) for x in (1.0, 10.0, 100.0)]  # c = 0/2, 1, 2/2
    assert learned([2.0, 1.0], normalize=normalize)(w, 0.25).item() == expected


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    "build", [b for b in INTEGRAL if any(True for _ in b(normalize=True).parameters())]
)
def test_kernel_parameters_and_w_have_the_gradients_of_finite_differences(build, normalize) -> None:
    kernel = build(normalize=normalize).double()
    inputs = [x.requires_grad_() for x in (*kernel.parameters(), *noise(6, 2))]
    assert torch.autograd.gradcheck(lambda p, *w: kernel(w, 0.2), inputs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize(
    ("name", "build"), [("rate", Exponential), ("width", Gaussian), ("window", Uniform)]
)
def test_a_kernel_without_extent_is_refused(name: str, build, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be positive, got {value}"):
        build(value)


@pytest.mark.parametrize("build", [Exponential, Gaussian, Uniform])
def test_an_infinite_extent_is_refused(build) -> None:
    with pytest.raises(UsageError):
        build(float("inf"))


@pytest.mark.parametrize("lags", [0, -2])
def test_fewer_than_one_lag_is_refused(lags: int) -> None:
    with pytest.raises(UsageError, match=f"lags must be at least 1, got {lags}"):
        Learned(lags)


def moving_block(memory: nn.Module) -> CoupledODE:
    """A block whose weights move, and a kernel that is not at its start."""
    torch.manual_seed(0)
    field = nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Tanh(), nn.Conv1d(2, 2, 3, padding=1))
    block = CoupledODE(field, coupling=configuration_1(4), evolution=BasisEvolution, memory=memory)
    for p in (*block.evolution.parameters(), *block.memory.parameters()):
        p.data += 0.3 * torch.randn_like(p)
    return block


@torch.no_grad()
@pytest.mark.parametrize("kernel", [*MEMORY_KERNELS, partial(Gaussian, normalize=False)])
def test_in_half_precision_theta_is_that_of_float32_rounded_once(kernel) -> None:
    block = moving_block(kernel()).bfloat16()
    half = block.weight_trajectory()
    for name, theta in block.float().weight_trajectory().items():
        assert half[name].dtype == torch.bfloat16
        assert torch.equal(half[name], theta.bfloat16())
