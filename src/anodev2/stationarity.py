"""How far a network is from the optimality conditions: the residuals of g_w0 = g_p = g_K = 0."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anodev2.block import CoupledODE
from anodev2.optimality import adjoints
from anodev2.solver import Z


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
    model: nn.Module, loss: Callable[[], Tensor], *, weight_decay: float = 0.0
) -> list[Stationarity]:
    """The residuals of the optimality system for every block of a network.

    Args:
        model: a network with blocks of Euler steps that each run once; its buffers change as in
            a forward pass, its gradients do not.
        loss: runs the model once and returns J.
        weight_decay: of the optimizer, which acts as R = weight_decay/2 |x|^2 on all parameters.

    Raises:
        ValueError: a solver other than Euler.
    """
    blocks = {n: m for n, m in model.named_modules() if isinstance(m, CoupledODE)}
    with _recorded(blocks.values()) as records, torch.enable_grad():
        j = loss()
    found = []
    for path, block in blocks.items():
        record = records[id(block)]
        dj_dz1 = record.like_z0(torch.autograd.grad(j, record.z1, retain_graph=True))
        with torch.random.fork_rng():
            torch.set_rng_state(record.rng)
            solved = adjoints(block, record.z0, dj_dz1)
        values = dict(block.named_parameters())

        def condition(
            names: Sequence[str],
            gradients: Mapping[str, Tensor] = solved.gradients,
            values: Mapping[str, Tensor] = values,
        ) -> Residual | None:
            chosen = [n for n in names if n in gradients]
            if not chosen:
                return None
            g = torch.cat([gradients[n].flatten() for n in chosen])
            decay = weight_decay * torch.cat([values[n].detach().flatten() for n in chosen])
            norm, parts = (g + decay).norm().item(), g.norm().item() + decay.norm().item()
            return Residual(norm, norm / parts if parts else 0.0)

        found.append(
            Stationarity(
                block=path or type(block).__name__,
                alpha=_norm(solved.alpha),
                beta=_norm(solved.beta.values()),
                w0=condition(block.evolved),
                p=condition([n for n in values if n.startswith("evolution.")]),
                kernel=condition([n for n in values if n.startswith("memory.")]),
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


class _Record:
    """What went into a block and came out of it in one forward pass."""

    z0: Z
    z1: tuple[Tensor, ...]
    rng: Tensor

    def like_z0(self, parts: tuple[Tensor, ...]) -> Z:
        """One tensor for each part of z, as the block takes them."""
        return parts[0] if isinstance(self.z0, Tensor) else parts


@contextmanager
def _recorded(blocks: Any) -> Iterator[dict[int, _Record]]:
    """Note what blocks are given and return."""
    records: dict[int, _Record] = {}

    def before(block: nn.Module, given: tuple[Z]) -> None:
        record = records[id(block)] = _Record()
        record.rng = torch.get_rng_state()
        z0 = given[0]
        record.z0 = z0.detach() if isinstance(z0, Tensor) else tuple(x.detach() for x in z0)

    def after(block: nn.Module, given: tuple[Z], z1: Z) -> Z:
        """Hand on copies, which a layer after the block may change in place."""
        records[id(block)].z1 = (z1,) if isinstance(z1, Tensor) else z1
        return z1.clone() if isinstance(z1, Tensor) else tuple(x.clone() for x in z1)

    hooks = [b.register_forward_pre_hook(before) for b in blocks]
    hooks += [b.register_forward_hook(after) for b in blocks]
    try:
        yield records
    finally:
        for hook in hooks:
            hook.remove()


def _norm(tensors: Any) -> float:
    squares = [x.double().square().sum() for x in tensors]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
