"""w0 held as its lowest cosine modes: a weight of N entries from N / factor numbers."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, inf, pi, prod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from anodev2.evolution.operator import ShapeError
from anodev2.evolution.table import Table
from anodev2.precision import full_precision, widened
from anodev2.usage import UsageError


class CompressedState(nn.Module):
    """w = sum over the lowest modes k of c_k prod_a C_{k_a}(x_a), a parametrization of a weight.

    C are the orthonormal cosines of the discrete transform DCT-II along every axis, and the
    modes are those of lowest sum_a (k_a / n_a)^2. It combines with any evolution: the block
    evolves the whole w and trains the modes, whose number is the weight's divided by `factor`.

        torch.nn.utils.parametrize.register_parametrization(conv, "weight", CompressedState(
            conv.weight.shape, factor=4))
        block = CoupledODE(nn.Sequential(norm, conv), evolution=LinearEvolution)

    or `compress(field, factor=4)` for all convolution and linear weights of a module. Handed a
    whole weight instead of modes it returns it as it is; so a block puts theta in.

    Args:
        shape: of the weight, with at least two axes.
        factor: N / modes, at least 1; 1 keeps all modes.

    Raises:
        ShapeError: fewer than two axes.
        ValueError: a factor below one.

    Source: compressed weight search, Koutnik et al. 2010.
    """

    def __init__(self, shape: Sequence[int], *, factor: float) -> None:
        super().__init__()
        if not 1 <= factor < inf:
            raise UsageError(f"factor must be a number of at least 1, got {factor!r}")
        if len(shape) < 2:
            raise ShapeError(
                f"CompressedState holds weights of two axes or more, got {tuple(shape)}"
            )
        self.shape = tuple(shape)
        chosen = _lowest(shape, ceil(prod(shape) / factor))
        box = [int(chosen[:, a].max()) + 1 for a in range(len(shape))]
        self.box = tuple(box)
        strides = torch.tensor([prod(box[a + 1 :]) for a in range(len(box))])
        self.register_buffer("places", (chosen * strides).sum(1), persistent=False)
        waves = [_cosines(n)[:m] for n, m in zip(shape, box, strict=True)]
        self.waves = nn.ModuleList(Table(wave) for wave in waves)

    def forward(self, modes: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
        """The weight with these modes (m,); a weight is returned as it is."""
        if modes.shape == self.shape:
            return modes
        wide = widened(modes)
        flat = wide.new_zeros(prod(self.box))
        w = flat.index_put((self._places(),), wide).reshape(self.box)
        with full_precision(modes.device):
            for wave in self.waves:
                w = torch.tensordot(w, wave(w.dtype), dims=([0], [0]))  # its axis goes last
        return w.to(modes.dtype)

    def right_inverse(self, w: Float[Tensor, "*shape"]) -> Float[Tensor, " modes"]:
        """The modes of w; what other modes it has is lost."""
        modes = widened(w)
        with full_precision(w.device):
            for wave in self.waves:
                modes = torch.tensordot(modes, wave(modes.dtype), dims=([0], [1]))
        return modes.flatten()[self._places()].to(w.dtype)

    def extra_repr(self) -> str:
        return f"{len(self._places())} modes of {prod(self.shape)} entries"

    def _places(self) -> Tensor:
        return self.get_buffer("places")


def compress(module: nn.Module, *, factor: float) -> nn.Module:
    """Hold every convolution and linear weight of a module as its lowest modes.

    The modes of what the weights are now, scaled by sqrt(factor), so that weights drawn at
    random keep their variance.

    Args:
        module: changed in place.
        factor: see `CompressedState`.

    Returns:
        The module.

    Raises:
        ValueError: a factor below one, or a weight that is parametrized already or tied to
            another; the module is as it was.
    """
    layers = {n: m for n, m in module.named_modules() if isinstance(m, (_ConvNd, nn.Linear))}
    named = (m.named_parameters(recurse=False, remove_duplicate=False) for m in module.modules())
    owners = Counter(id(p) for pairs in named for _, p in pairs)
    for name, layer in layers.items():
        if is_parametrized(layer, "weight") or owners[id(layer.weight)] > 1:
            kind = "parametrized already" if is_parametrized(layer) else "tied to another"
            raise UsageError(f"the weight of {name or type(layer).__name__!r} is {kind}")
    states = {n: CompressedState(m.weight.shape, factor=factor) for n, m in layers.items()}
    for name, layer in layers.items():
        register_parametrization(layer, "weight", states[name])
        with torch.no_grad():
            modes = dict(layer.named_parameters())["parametrizations.weight.original"]
            modes.mul_((layer.weight.numel() / len(modes)) ** 0.5)
    return module


def _lowest(shape: Sequence[int], count: int) -> Tensor:
    """The lowest modes, (count, axes), in order of frequency."""
    grid = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    modes = torch.stack([k.flatten() for k in grid], 1)
    frequency = (modes / torch.tensor(shape)).double().square().sum(1)
    return modes[frequency.argsort(stable=True)[:count]]


def _cosines(n: int) -> Float[Tensor, "modes points"]:
    """C_k(x) = s_k cos(pi k (x + 1/2) / n), rows orthonormal, in float64."""
    k, x = torch.meshgrid(torch.arange(n).double(), torch.arange(n).double(), indexing="ij")
    waves = torch.cos(pi * k * (x + 0.5) / n) * (2 / n) ** 0.5
    waves[0] /= 2**0.5
    return waves  # type: ignore[no-any-return]
