"""The Neural ODE baseline: torchdiffeq's `odeint_adjoint` with Euler, as published.

Its gradient is the continuous adjoint's, which is wrong at the few steps that networks use:
it solves the activations backward in time instead of keeping them. That is what the paper
compares with; the block exists for that comparison.
"""

from math import ceil, floor
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from anodev2.field import evaluate
from anodev2.precision import Precision
from anodev2.skeleton import step_copies


class NeuralODE(nn.Module):
    """dz/dt = f(z) on [0, 1], solved and differentiated by torchdiffeq.

    Each step has its own batch norms. They are chosen by time: floor(t N) going forward and
    ceil(t N) - 1 in the adjoint's sweep, where the running statistics are updated again.

    Args:
        field: f, a module that keeps the shape of z.
        steps: N, the Euler steps.

    Source: Chen et al. 2018, through the paper's ablation study.
    """

    def __init__(self, field: nn.Module, *, steps: int = 2) -> None:
        super().__init__()
        self.field = field
        self.steps = steps
        self.norms = step_copies(field, (_BatchNorm,), steps)

    def forward(self, z0: Float[Tensor, "*state"]) -> Float[Tensor, "*state"]:
        from torchdiffeq import odeint_adjoint

        precision = Precision.capture(z0.device)
        wide = torch.promote_types(z0.dtype, torch.float32)
        rate = _Rate(self, precision, wide if precision.enabled else z0.dtype)
        z: Tensor = odeint_adjoint(
            rate,
            z0.to(wide),
            torch.tensor([0.0, 1.0], dtype=wide, device=z0.device),
            method="euler",
            options={"step_size": 1 / self.steps},
            adjoint_params=tuple(self.parameters()),
        )
        return z[-1].to(rate.dtype)

    def extra_repr(self) -> str:
        return f"{self.steps} steps, Euler(), continuous adjoint"


class _Rate(nn.Module):
    """f at the step that torchdiffeq is at, under the forward pass's precision."""

    def __init__(self, block: NeuralODE, precision: Precision, dtype: torch.dtype) -> None:
        super().__init__()
        self.block = block
        self.dtype = dtype
        self.precision = precision
        self.step = 0

    def forward(self, t: Float[Tensor, ""], z: Float[Tensor, "*state"]) -> Float[Tensor, "*state"]:
        names: dict[str, Tensor] = {}
        if self.step > 0 and self.block.norms:
            norms = self.block.norms[self.step - 1]
            names = {**dict(norms.named_parameters()), **dict(norms.named_buffers())}
        with self.precision.restore():
            return evaluate(self.block.field, names, z.to(self.dtype)).to(z.dtype)

    def callback_step(self, t: Any, z: Any, dt: Any) -> None:
        """Called by torchdiffeq at the start of each step of the forward solve."""
        self.step = floor(round(float(t) * self.block.steps, 3))

    def callback_step_adjoint(self, t: Any, z: Any, dt: Any) -> None:
        """Called by torchdiffeq at the start of each step of the adjoint's sweep."""
        self.step = ceil(round(float(t) * self.block.steps, 3)) - 1
