"""What the benchmarks compare: ResNet-4's block by this library, by hand and by its peers.

A contender is one job, a forward and a backward pass from a fixed z(0) of 16 channels of
32x32. No peer has more to do than the library: its blocks move their weights and have norms of
their own for each step, while torchdiffeq and diffrax integrate one field with one set of each.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from anodev2 import CoupledODE, configuration_1
from anodev2.gradient import Binomial, Checkpoint, ContinuousAdjoint, Direct, GradientStrategy
from anodev2.models import build_model

Job = Callable[[], None]
CHANNELS, SIZE = 16, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Work:
    """How much every contender has to do, and in which precision and layout."""

    steps: int
    batch: int = 256
    dtype: torch.dtype = torch.float32
    channels_last: bool = True

    def z0(self) -> Tensor:
        z0 = torch.randn(self.batch, CHANNELS, SIZE, SIZE, device=DEVICE, dtype=self.dtype)
        return z0.contiguous(memory_format=self.layout).requires_grad_()

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def job(self, block: nn.Module) -> Job:
        """Forward under autocast if the precision is not float32, and backward from ones."""
        block = block.to(device=DEVICE, memory_format=self.layout)
        z0 = self.z0()
        ones = torch.ones_like(z0)

        def run() -> None:
            z0.grad = None
            block.zero_grad()
            cast = self.dtype != torch.float32
            with torch.autocast(DEVICE, dtype=self.dtype if cast else None, enabled=cast):
                z1 = block(z0)
            z1.backward(ones.to(z1.dtype))

        return run


def plain_field() -> nn.Sequential:
    """The field as a person writes it."""
    links = [
        (
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        )
        for _ in range(2)
    ]
    return nn.Sequential(*(module for link in links for module in link))


def our_field() -> nn.Module:
    """The field of the library's own ResNet-4, whose ReLUs work in place."""
    return build_model("resnet4", method="baseline").get_submodule("3.field")


class ByHand(nn.Module):
    """Euler steps as a person writes them, each with weights of its own.

    Args:
        steps: how many.
        fused: with the same fusions as the library: ReLU in place, z + h f as one kernel.
        checkpointed: with torch.utils.checkpoint around each step.
    """

    def __init__(self, steps: int, *, fused: bool = False, checkpointed: bool = False) -> None:
        super().__init__()
        self.fused = fused
        self.checkpointed = checkpointed
        self.fields = nn.ModuleList(our_field() if fused else plain_field() for _ in range(steps))

    def forward(self, z: Tensor) -> Tensor:
        for field in self.fields:
            if self.checkpointed:
                z = checkpoint(self.step, field, z, use_reentrant=False)
            else:
                z = self.step(field, z)
        return z

    def step(self, field: nn.Module, z: Tensor) -> Tensor:
        h = 1 / len(self.fields)
        return torch.add(z, field(z), alpha=h) if self.fused else z + h * field(z)


class ByTorchdiffeq(nn.Module):
    """torchdiffeq's Euler over one field, by its adjoint or by automatic differentiation."""

    def __init__(self, steps: int, *, adjoint: bool) -> None:
        super().__init__()
        self.steps = steps
        self.adjoint = adjoint
        self.field = plain_field()

    def forward(self, z: Tensor) -> Tensor:
        from torchdiffeq import odeint, odeint_adjoint

        t = torch.tensor([0.0, 1.0], device=z.device)
        options = {"step_size": 1 / self.steps}
        if self.adjoint:
            parameters = tuple(self.field.parameters())
            return odeint_adjoint(
                self.rate, z, t, method="euler", options=options, adjoint_params=parameters
            )[-1]
        return odeint(self.rate, z, t, method="euler", options=options)[-1]

    def rate(self, t: Tensor, z: Tensor) -> Tensor:
        return self.field(z)


def block(steps: int, gradient: GradientStrategy) -> CoupledODE:
    """Configuration 1 by this library."""
    return CoupledODE(our_field(), coupling=configuration_1(steps), gradient=gradient)


MODULES: dict[str, Callable[[int], nn.Module]] = {
    "Direct()": lambda steps: block(steps, Direct()),
    "Checkpoint(1)": lambda steps: block(steps, Checkpoint(1)),
    "Checkpoint(5)": lambda steps: block(steps, Checkpoint(5)),
    "Binomial(4)": lambda steps: block(steps, Binomial(4)),
    "ContinuousAdjoint()": lambda steps: block(steps, ContinuousAdjoint()),
    "by hand": lambda steps: ByHand(steps),
    "by hand, fused": lambda steps: ByHand(steps, fused=True),
    "torch.utils.checkpoint": lambda steps: ByHand(steps, checkpointed=True),
    "torch.utils.checkpoint, fused": lambda steps: ByHand(steps, fused=True, checkpointed=True),
    "odeint_adjoint": lambda steps: ByTorchdiffeq(steps, adjoint=True),
    "odeint": lambda steps: ByTorchdiffeq(steps, adjoint=False),
}


def job(name: str, work: Work) -> Job:
    """The contender of that name, ready to run."""
    torch.manual_seed(0)
    if name == "diffrax":
        return diffrax_job(work)
    return work.job(MODULES[name](work.steps))


def diffrax_job(work: Work) -> Job:
    """diffrax's Euler and its default checkpointing over the same field, compiled by JAX."""
    import diffrax
    import jax
    import jax.numpy as jnp

    def norm(x, scale, shift):
        mean = x.mean((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * scale + shift

    def rate(t, z, weights):
        for kernel, scale, shift in weights:
            x = jax.nn.relu(norm(z, scale, shift))
            z = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return z

    def total(z0, weights):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rate),
            diffrax.Euler(),
            t0=0.0,
            t1=1.0,
            dt0=1 / work.steps,
            y0=z0,
            args=weights,
            max_steps=work.steps + 1,
        )
        return solution.ys[-1].sum()

    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    kernel_shape = (3, 3, CHANNELS, CHANNELS)
    ones, zeros = jnp.ones(CHANNELS), jnp.zeros(CHANNELS)
    weights = [(0.1 * jax.random.normal(key, kernel_shape), ones, zeros) for key in keys[:2]]
    z0 = jax.random.normal(keys[2], (work.batch, SIZE, SIZE, CHANNELS))
    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    return lambda: jax.block_until_ready(gradient(z0, weights)) and None
