"""R(w0, p): what training minimizes beside the loss [anodev2_loss]."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from anodev2.evolution.trajectory import Path
from anodev2.precision import widened
from anodev2.usage import UsageError


@dataclass(frozen=True)
class Regularization:
    """R = w0/2 |w(0)|^2 + p/2 |p|^2 + path/2 int |dw/dt|^2 dt.

    The last is the energy of the path that the weights take, over the w-grid up to the last
    time that is read: sum_m |w_{m+1} - w_m|^2 / dt. It costs nothing to solve, as the forward
    pass has made the path.

    Args:
        w0, p, path: factors of the three, not negative.

    Raises:
        ValueError: a factor below zero.

    Source: R(w0, p) in [anodev2_loss].
    """

    w0: float = 0.0
    p: float = 0.0
    path: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < inf:
                raise UsageError(f"{name} must be at least 0, got {value!r}")

    def of_state(self, paths: Iterable[Path]) -> Float[Tensor, ""]:
        """The terms in w: of w(0) and of the path."""
        terms = []
        for path in paths:
            if self.w0:
                terms.append(self.w0 / 2 * _square(path.w[0]).sum())
            if self.path and len(path.w) > 1:
                moved = _square(torch.stack(path.w[1:]) - torch.stack(path.w[:-1])).sum()
                terms.append(self.path / 2 / path.dt * moved)
        return torch.stack(terms).sum() if terms else torch.zeros(())

    def of_parameters(self, p: Iterable[Tensor]) -> Float[Tensor, ""]:
        """The term in p."""
        terms = [self.p / 2 * _square(widened(x)).sum() for x in p] if self.p else []
        return torch.stack(terms).sum() if terms else torch.zeros(())


def _square(x: Tensor) -> Tensor:
    """|x|^2 of each number."""
    return x.abs().square() if x.is_complex() else x.square()


class LastPaths:
    """The paths of the latest forward pass, while they are those of the parameters as they are.

    A backward pass ends them, since it frees their graph, and so does a change of a parameter.
    Copies of a block do not take them along.
    """

    def __init__(self) -> None:
        self._paths: Mapping[str, Path] | None = None
        self._of: list[tuple[Tensor, int, bool]] = []

    def keep(self, paths: Mapping[str, Path], parameters: Iterable[Tensor]) -> None:
        """Keep the paths of these parameters."""
        self._paths = paths
        self._of = [(p, p._version, p.requires_grad) for p in parameters]
        for theta in (theta for path in paths.values() for theta in path.theta):
            if theta.requires_grad and not theta.is_leaf:
                theta.register_hook(self._end)  # type: ignore[no-untyped-call]

    def take(self, parameters: Iterable[Tensor]) -> Mapping[str, Path] | None:
        """The paths, once, or None where there are none of the parameters as they are."""
        (paths, of), self._paths, self._of = (self._paths, self._of), None, []
        now = [(p, p._version, p.requires_grad) for p in parameters]
        same = len(of) == len(now) and all(
            a[0] is b[0] and a[1:] == b[1:] for a, b in zip(of, now, strict=True)
        )
        return paths if same else None

    def _end(self, gradient: Tensor | None) -> None:
        self._paths, self._of = None, []

    def __deepcopy__(self, memo: object) -> "LastPaths":
        return LastPaths()

    def __reduce__(self) -> tuple[type["LastPaths"], tuple[()]]:
        return LastPaths, ()
