"""The optimality system of a block [ktt_conditinos], solved step by step.

With Euler steps of length h, M = w_steps, theta_i = sum_m c_im w_m and w_{m+1} = Phi(w_m; p):

    alpha_N = -dJ/dz_N           alpha_i = alpha_{i+1} + h (df_i/dz)^T alpha_{i+1}
    gamma_i = h (df_i/dtheta)^T alpha_{i+1}
    beta_{M+1} = 0,              beta_m  = (dPhi/dw)^T beta_{m+1} + sum_i c_im gamma_i - dR/dw_m
    g_w0    = dR/dw0 - beta_0    g_p = dR/dp - sum_m (dPhi_m/dp)^T beta_{m+1}
    g_K     = -sum_im (gamma_i . w_m) dc_im/dK

(dR/dw_m for m >= 1). No derivative is taken through a loop over time: only vector-Jacobian
products of single steps are. These are the discrete equations, whose gradients are those of the
program that is computed (discretize, then optimize). The continuous ones, each discretized on its
own going back (optimize, then discretize), take the same products at the end of every step
instead of its start, and dt q instead of Phi:

    alpha_i = alpha_{i+1} + h (df/dz(z_{i+1}, theta(t_{i+1})))^T alpha_{i+1}, ...

They agree at first order in the step.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from anodev2.block import CoupledODE
from anodev2.discretization import theta_key
from anodev2.evolution import Evolution, Frozen
from anodev2.evolution.trajectory import Path
from anodev2.field import initial_weights, parts
from anodev2.gradient.kept import Kept
from anodev2.gradient.program import Program, State
from anodev2.precision import full_precision
from anodev2.solver import Activations, Euler, Z
from anodev2.usage import UsageError


def gradients(block: CoupledODE, z0: Z, dJ_dz1: Z) -> dict[str, Tensor]:  # noqa: N803
    """The gradient of J + R by the discrete optimality system; equal to autograd's to rounding.

    Args:
        block: with Euler steps; neither its buffers nor the random numbers change.
        z0: z(0), as in a forward pass.
        dJ_dz1: the loss's gradient at z(1), of its shape.

    Returns:
        {parameter name: gradient} for every parameter that is trained.

    Raises:
        ValueError: a solver other than Euler.
    """
    return adjoints(block, z0, dJ_dz1).gradients


def continuous_gradients(block: CoupledODE, z0: Z, dJ_dz1: Z) -> dict[str, Tensor]:  # noqa: N803
    """The same by the continuous optimality system, solved backward on the block's grids.

    z and w are those of the forward pass, not solved backward. The result is no gradient of what
    is computed; it differs from `gradients` by first order in the step.

    Raises:
        ValueError: a solver other than Euler, given read times, or an evolution without a rate.
    """
    return adjoints(block, z0, dJ_dz1, continuous=True).gradients


@dataclass(frozen=True)
class Adjoints:
    """The solution of the optimality system.

    Attributes:
        alpha: at t = 0; -alpha is the loss's gradient at z(0).
        beta: at t = 0, by name of the evolved weight.
        gradients: by name of the parameter.
    """

    alpha: Activations
    beta: State
    gradients: State


def adjoints(
    block: CoupledODE,
    z0: Z,
    dJ_dz1: Z,  # noqa: N803
    *,
    continuous: bool = False,
) -> Adjoints:
    """alpha, beta and the gradients of a block, as `gradients` and `continuous_gradients` say."""
    if not isinstance(block.solver, Euler):
        raise UsageError(
            f"the optimality system is that of Euler steps, got {block.solver}: expected Euler()"
        )
    if continuous and block.coupling.read_times is not None:
        raise UsageError(
            "the continuous optimality system reads theta at every time, but the coupling gives "
            "read times: expected one without, such as configuration_1"
        )
    z = parts(z0)
    alpha = (dJ_dz1,) if isinstance(dJ_dz1, Tensor) else tuple(dJ_dz1)
    devices = sorted({x.get_device() for x in z if x.is_cuda})
    with torch.random.fork_rng(devices):
        return _System(block, z0, z, ahead=int(continuous)).solve(tuple(-x for x in alpha))


class _System:
    """A copy of a block with its forward pass, and the sweeps back over it.

    `ahead` is 1 where products are taken at the end of a step, and 0 at its start.
    """

    def __init__(self, block: CoupledODE, given: Z, z0: Activations, *, ahead: int) -> None:
        self.block = deepcopy(block)
        self.ahead = ahead
        parameters = self.block.named_parameters()
        self.names = {id(p): name for name, p in parameters if p.requires_grad}
        self.found: State = {}
        self.dr_dw0: State = {}
        reads = block.coupling.reads(block.solver.tableau.c)
        self.points = [point for (point,) in reads.index]
        self.dt = 1 / reads.w_steps
        self.ends = [*self.points[1:], reads.w_steps] if ahead else self.points
        with torch.no_grad():
            times = [0.0, 1.0] if ahead else None
            self.w = {name: path.w for name, path in self.block.paths(times).items()}
            self.program = self.block.program(given)
            self.z, self.kept = self._forward(self.program, z0)

    def solve(self, alpha: Activations) -> Adjoints:
        gamma: dict[str, dict[int, Tensor]] = {name: {} for name in self.w}
        for i in reversed(range(self.program.steps)):
            alpha = self._step_back(i, alpha, gamma)
        beta = {name: self._sweep(name, reads) for name, reads in gamma.items()}
        self._add_regularization()
        self._add_w0({name: self.dr_dw0[name] - b for name, b in beta.items()})
        own = {n: p for n, p in self.block.named_parameters() if p.requires_grad}
        gradients = {n: self.found.get(n, torch.zeros_like(p)).to(p.dtype) for n, p in own.items()}
        return Adjoints(alpha, {f"field.{n}": b for n, b in beta.items()}, gradients)

    def _forward(self, program: Program, z0: Activations) -> tuple[list[Activations], list[Kept]]:
        z, kept = [tuple(x.detach() for x in z0)], []
        for i in range(program.steps):
            kept.append(Kept.capture(z[i], program.buffers(i, i + 1)))
            z.append(program.step(i, z[i], dict(program.tensors)))
        return z, kept

    def _step_back(
        self, i: int, alpha: Activations, gamma: dict[str, dict[int, Tensor]]
    ) -> Activations:
        """alpha_i from alpha_{i+1}; gamma_i and the gradients of other parameters on the way."""
        h = 1 / self.program.steps
        z = tuple(x.detach().requires_grad_() for x in self.z[i + self.ahead])
        theta = {name: self._theta(name, self.ends[i]).requires_grad_() for name in self.w}
        keys = {name: theta_key(self.points[i], name) for name in theta}
        rest = {k: p for k, p in self.program.tensors.items() if id(p) in self.names}
        state = self.program.tensors | {keys[n]: value for n, value in theta.items()}
        self.kept[i].restore_generators()
        with torch.enable_grad():
            f = self.program.rate(i, 0, z, state | self.kept[i].buffers())
        dz, dtheta, drest = _products(f, alpha, z, theta.values(), rest.values())
        for name, value in zip(theta, dtheta, strict=True):
            reads = gamma[name]
            reads[self.ends[i]] = reads.get(self.ends[i], 0) + h * value
        for p, value in zip(rest.values(), drest, strict=True):
            self._add(p, -h * value)
        return tuple(a + h * d for a, d in zip(alpha, dz, strict=True))

    def _theta(self, name: str, point: int) -> Tensor:
        with torch.no_grad(), full_precision(self.w[name][0].device):
            theta = self.block.memory(self.w[name][: point + 1], self.dt)
            return theta.to(self._dtype(name)).clone()  # type: ignore[no-any-return]

    def _sweep(self, name: str, gamma: dict[int, Tensor]) -> Tensor:
        """beta_0 of one weight, with the gradients of p and of the memory kernel on the way."""
        source = self._sources(name, gamma)
        last = len(source) - 1
        beta = source[last]
        operator = self.block.evolution.get_submodule(name)
        assert isinstance(operator, Evolution)
        for m in reversed(range(last)):
            w = self.w[name][m + self.ahead].detach().requires_grad_()
            p = [x for x in operator.parameters() if x.requires_grad]
            with torch.enable_grad(), full_precision(w.device):
                end = self._moved(operator, w, m)
            (dw,), dp = _products((end,), (beta,), [w], p)
            for x, value in zip(p, dp, strict=True):
                self._add(x, -value)
            beta = dw + source[m]
        return beta

    def _moved(self, operator: Evolution, w: Tensor, m: int) -> Tensor:
        """Phi(w_m), or w + dt q at the step's end."""
        if isinstance(operator, Frozen):
            return w
        if not self.ahead:
            return operator(w, m * self.dt, self.dt)  # type: ignore[no-any-return]
        rate = operator.velocity(w, (m + 1) * self.dt)
        if rate is None:
            raise UsageError(
                f"{operator} has no rate: the continuous optimality system needs one, as "
                "ReactionDiffusionAdvection has with activation=None or a solver"
            )
        return w + self.dt * rate

    def _sources(self, name: str, gamma: dict[int, Tensor]) -> list[Tensor]:
        """sum_i c_im gamma_i - dR/dw_m for each m (R for m >= 1), and g_K and dR/dw0 on the way."""
        w = [x.detach().requires_grad_() for x in self.w[name]]
        sources = [torch.zeros_like(x) for x in w]
        k = [x for x in self.block.memory.parameters() if x.requires_grad]
        for point, value in gamma.items():
            with torch.enable_grad(), full_precision(w[0].device):
                theta = self.block.memory(w[: point + 1], self.dt).to(value.dtype)
            dw, dk = _products((theta,), (value,), w, k)
            sources = [s + d for s, d in zip(sources, dw, strict=True)]
            for x, d in zip(k, dk, strict=True):
                self._add(x, -d)
        with torch.enable_grad():
            r = self.block.regularize.of_state([Path(w, [], self.dt)])
        (dr,) = _products((r,), (torch.ones_like(r),), w)
        self.dr_dw0[name] = dr[0]
        return [sources[0], *(s - d for s, d in zip(sources[1:], dr[1:], strict=True))]

    def _add_regularization(self) -> None:
        p = [x for x in self.block.evolution.parameters() if x.requires_grad]
        with torch.enable_grad():
            r = self.block.regularize.of_parameters(p)
        (dp,) = _products((r,), (torch.ones_like(r),), p)
        for x, value in zip(p, dp, strict=True):
            self._add(x, value)

    def _add_w0(self, g: State) -> None:
        """g_w0, for the modes of a `CompressedState` where they are the parameters."""
        own = {f"field.{n}": p for n, p in self.block.field.named_parameters()}
        leaves = [p for n, p in own.items() if n in self.block.evolved and p.requires_grad]
        with torch.enable_grad():
            w0 = initial_weights(self.block.field, g)
        ends = [w for w in w0.values() if w.requires_grad]
        wide = [g[n].to(w.dtype) for n, w in w0.items() if w.requires_grad]
        (values,) = _products(ends, wide, leaves)
        for p, value in zip(leaves, values, strict=True):
            self._add(p, value)

    def _dtype(self, name: str) -> torch.dtype:
        return self.program.tensors[theta_key(self.points[0], name)].dtype

    def _add(self, p: Tensor, value: Tensor) -> None:
        name = self.names[id(p)]
        self.found[name] = self.found.get(name, torch.zeros_like(p)) + value


def _products(
    ends: Iterable[Tensor], weights: Iterable[Tensor], *groups: Iterable[Tensor]
) -> list[list[Tensor]]:
    """(d ends / d leaves)^T weights for each group of leaves; zero where nothing depends on one."""
    split = [list(group) for group in groups]
    leaves = [leaf for group in split for leaf in group]
    pairs = [(e, w) for e, w in zip(ends, weights, strict=True) if e.requires_grad]
    if not pairs or not leaves:
        return [[torch.zeros_like(leaf) for leaf in group] for group in split]
    outputs, given = zip(*((e, w.to(e.dtype)) for e, w in pairs), strict=True)
    values = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    found = iter(
        torch.zeros_like(x) if v is None else v for x, v in zip(leaves, values, strict=True)
    )
    return [[next(found) for _ in group] for group in split]
