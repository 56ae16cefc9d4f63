"""How far a network is from the optimality conditions: the residuals of g_w0 = g_p = g_K = 0."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from anodev2.block import CoupledODE
from anodev2.field import parts
from anodev2.gradient.kept import Kept
from anodev2.optimality import Adjoints, adjoints
from anodev2.precision import Precision
from anodev2.solver import Z
from anodev2.usage import UsageError


@dataclass(frozen=True)
class Residual:
    """One condition of one block.

    Attributes:
        norm: |g|, the 2-norm over all its parameters.
        relative: |g| / (|loss's part| + |weight decay's part|): 0 where the two balance, 1
            where nothing does.
    """

    norm: float
    relative: float


@dataclass(frozen=True)
class Stationarity:
    """The residuals of one block.

    Attributes:
        block: its path in the network.
        alpha, beta: |alpha(0)| and |beta(0)|, the adjoints of z and of w.
        w0, p, kernel: the conditions g_w0 = 0, g_p = 0 and g_K = 0; None without parameters.
    """

    block: str
    alpha: float
    beta: float
    w0: Residual | None
    p: Residual | None
    kernel: Residual | None


def stationarity(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    weight_decay: float = 0.0,
    p_decay: float | None = None,
) -> list[Stationarity]:
    """The residuals of the optimality system for every block of a network.

    Args:
        model: a network with blocks of Euler steps that each run once; its buffers change as in
            a forward pass, its gradients do not.
        loss: runs the model once and returns J.
        weight_decay: of the optimizer, which acts as R = weight_decay/2 |x|^2 on all parameters.
        p_decay: that of p and of the memory kernel's parameters, None for `weight_decay`.

    Raises:
        ValueError: a solver other than Euler, or a block that did not run just once.
    """
    blocks = {n: m for n, m in model.named_modules() if isinstance(m, CoupledODE)}
    with _recorded(blocks) as records, torch.enable_grad():
        j = loss()
    decay_of_p = weight_decay if p_decay is None else p_decay
    found = []
    for path, block in blocks.items():
        if path not in records:
            raise UsageError(f"the block {path!r} did not run: expected a loss that runs the model")
        record = records[path]
        solved = record.adjoints(_gradients(j, record.z1))
        values = dict(block.named_parameters())

        def condition(
            names: Sequence[str],
            factor: float,
            gradients: Mapping[str, Tensor] = solved.gradients,
            values: Mapping[str, Tensor] = values,
        ) -> Residual | None:
            chosen = [n for n in names if n in gradients]
            if not chosen:
                return None
            g = torch.cat([gradients[n].flatten() for n in chosen])
            decay = factor * torch.cat([values[n].detach().flatten() for n in chosen])
            norm, parts = (g + decay).norm().item(), g.norm().item() + decay.norm().item()
            return Residual(norm, norm / parts if parts else 0.0)

        found.append(
            Stationarity(
                block=path or type(block).__name__,
                alpha=_norm(solved.alpha),
                beta=_norm(solved.beta.values()),
                w0=condition(block.evolved, weight_decay),
                p=condition([n for n in values if n.startswith("evolution.")], decay_of_p),
                kernel=condition([n for n in values if n.startswith("memory.")], decay_of_p),
            )
        )
    return found


def as_table(rows: Sequence[Stationarity]) -> str:
    """The residuals as a Markdown table, one line a block."""
    columns = ["block", "alpha(0)", "beta(0)", "g_w0", "relative", "g_p", "relative"]
    columns += ["g_K", "relative"]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    for row in rows:
        cells = [row.block, f"{row.alpha:.2e}", f"{row.beta:.2e}"]
        for r in (row.w0, row.p, row.kernel):
            cells += ["", ""] if r is None else [f"{r.norm:.2e}", f"{r.relative:.2f}"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class _Record:
    """A block as it was before a forward pass, and what went in and came out."""

    block: CoupledODE
    z0: Z
    kept: Kept
    precision: Precision
    z1: tuple[Tensor, ...] = ()

    def adjoints(self, dj_dz1: tuple[Tensor, ...]) -> Adjoints:
        """The optimality system, in the same state as that pass."""
        devices = sorted({x.get_device() for x in self.kept.z if x.is_cuda})
        with torch.random.fork_rng(devices), self.precision.restore():
            self.kept.restore_generators()
            given = dj_dz1[0] if isinstance(self.z0, Tensor) else dj_dz1
            return adjoints(self.block, self.z0, given)


@contextmanager
def _recorded(blocks: Mapping[str, CoupledODE]) -> Iterator[dict[str, _Record]]:
    """Note what blocks are given and return."""
    records: dict[str, _Record] = {}

    def before(path: str, block: CoupledODE, given: tuple[Z]) -> None:
        if path in records:
            raise UsageError(f"the block {path!r} ran twice: expected a loss that runs it once")
        z0 = given[0]
        z = tuple(x.detach() for x in parts(z0))
        records[path] = _Record(
            deepcopy(block),
            z[0] if isinstance(z0, Tensor) else z,
            Kept.capture(z, {}),
            Precision.capture(z[0].device),
        )

    def after(path: str, block: CoupledODE, given: tuple[Z], z1: Z) -> Z:
        """Hand on copies, which a layer after the block may change in place."""
        records[path].z1 = (z1,) if isinstance(z1, Tensor) else tuple(z1)
        return z1.clone() if isinstance(z1, Tensor) else tuple(x.clone() for x in z1)

    hooks = [b.register_forward_pre_hook(partial(before, path)) for path, b in blocks.items()]
    hooks += [b.register_forward_hook(partial(after, path)) for path, b in blocks.items()]
    try:
        yield records
    finally:
        for hook in hooks:
            hook.remove()


def _gradients(j: Tensor, z1: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """dJ/dz(1), zero where the loss does not read it."""
    read = [x for x in z1 if x.requires_grad]
    found = torch.autograd.grad(j, read, retain_graph=True, allow_unused=True) if read else ()
    known = {id(x): g for x, g in zip(read, found, strict=True)}
    values = (known.get(id(x)) for x in z1)
    return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(z1, values, strict=True))


def _norm(tensors: Any) -> float:
    squares = [x.double().square().sum() for x in tensors]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
