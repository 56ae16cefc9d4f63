"""The discrete program of a block for one forward pass: its steps, and the tensors they read.

Keys name those tensors: `theta.K.NAME` is the evolved weight NAME at point K of the w-grid,
`field.NAME` a tensor of the field's own, `norms.I.NAME` one of the copies for step I + 1.
"""

from collections.abc import Collection, Mapping

from torch import Tensor, nn

from anodev2.coupling import Reads
from anodev2.evolution import Evolution
from anodev2.field import evaluate, modes, places
from anodev2.finite import require_finite
from anodev2.gradient import Evaluations
from anodev2.gradient.program import Motion, State
from anodev2.gradient.recomputation import refuse_checkpointed
from anodev2.precision import Precision
from anodev2.solver import Activations, Solver

Layout = dict[str, str]
"""For each place of the field the key of the tensor there."""


def layouts(
    field: nn.Module, norms: nn.ModuleList, evolved: Collection[str], reads: Reads
) -> list[list[Layout]]:
    """The layout of each stage of each z-step.

    Args:
        field: the module.
        norms: copies of its norms for the steps after the first; none if steps share them.
        evolved: names of the field's parameters that move.
        reads: the points of the w-grid at which each stage reads theta.
    """
    names = places(field)
    moving = {place: name for place, name in names.items() if name in evolved}
    found = []
    for i, points in enumerate(reads.index):
        layout = {place: f"field.{name}" for place, name in names.items()}
        if i > 0 and len(norms):
            own = places(norms[i - 1])
            layout |= {place: f"norms.{i - 1}.{name}" for place, name in own.items()}
        theta = [{place: theta_key(k, name) for place, name in moving.items()} for k in points]
        found.append([layout | read for read in theta])
    return found


def theta_key(point: int, name: str) -> str:
    """The key of an evolved weight at a point of the w-grid."""
    return f"theta.{point}.{name}"


def is_trained(field: nn.Module, key: str, tensor: Tensor) -> bool:
    """Whether a parameter that the steps read is trained; theta is where its w0 is."""
    kind, _, rest = key.partition(".")
    own = field.get_parameter(rest.partition(".")[2]) if kind == "theta" else tensor
    return own.requires_grad


def motion(q: Mapping[str, Evolution], w0: State, reads: Reads) -> Motion | None:
    """The weights in continuous time, where theta is w; None unless every one has a rate.

    Args:
        q: the evolution of each weight, by name.
        w0: the weights at t = 0.
        reads: of the block.
    """

    def velocity(w: State, t: float) -> State:
        rates = {name: operator.velocity(w[name], t) for name, operator in q.items()}
        return {name: rate for name, rate in rates.items() if rate is not None}

    if len(velocity(w0, 0.0)) < len(w0):
        return None
    return Motion(
        w0=w0,
        velocity=velocity,
        keys=lambda i, name: theta_key(reads.index[i][0], name),
        tensors={
            f"{n}.{k}": p for n, operator in q.items() for k, p in operator.named_parameters()
        },
    )


class Steps:
    """The z-steps of a block in one forward pass, with its modes and precision kept.

    Args:
        root: the block, whose buffers are assigned by key.
        field: its field.
        layouts: of each stage of each step.
        solver: the one-step method.
        residual: whether the field contains its shortcut.
        precision: the autocast state to evaluate in.
        as_tuple: whether the field acts on a tuple of tensors.
        check_finite: the name of the block in errors about values that are not finite; None
            checks nothing.
    """

    def __init__(
        self,
        root: nn.Module,
        field: nn.Module,
        layouts: list[list[Layout]],
        solver: Solver,
        *,
        residual: bool,
        precision: Precision,
        as_tuple: bool,
        check_finite: str | None,
    ) -> None:
        self.root = root
        self.field = field
        self.layouts = layouts
        self.solver = solver
        self.residual = residual
        self.precision = precision
        self.as_tuple = as_tuple
        self.check_finite = check_finite
        self.evaluations = Evaluations()
        self.buffers = {n: b for n, b in root.named_buffers() if n.startswith("norms.")}
        self.training = {module: module.training for module in field.modules()}

    def step(self, i: int, z: Activations, state: State) -> Activations:
        """z_{i+1} from z_i."""
        h = 1 / len(self.layouts)
        with self.precision.restore(), modes(self.training):
            z = self.solver.step(
                z, h, lambda s, x: self._stage(i, s, x, state), residual=self.residual
            )
        self._check(i, z)
        return z

    def rate(self, i: int, s: int, z: Activations, state: State) -> Activations:
        """dz/dt = f(z, theta) in stage s of step i."""
        self._check(i, z)
        with self.precision.restore(), modes(self.training):
            value = self._stage(i, s, z, state)
        return tuple(a - b for a, b in zip(value, z, strict=True)) if self.residual else value

    def _check(self, i: int, z: Activations) -> None:
        if self.check_finite is not None:
            named = [("z" if len(z) == 1 else f"part {k} of z", x) for k, x in enumerate(z)]
            require_finite(self.check_finite, i, len(self.layouts), named)

    def _stage(self, i: int, s: int, z: Activations, state: State) -> Activations:
        layout = self.layouts[i][s]
        found = {place: state.get(key, self.buffers.get(key)) for place, key in layout.items()}
        tensors = {place: tensor for place, tensor in found.items() if tensor is not None}
        if self.check_finite is not None:
            theta = [(p, t) for p, t in tensors.items() if layout[p].startswith("theta.")]
            named = [(f"the weight 'field.{place}'", tensor) for place, tensor in theta]
            require_finite(self.check_finite, i, len(self.layouts), named)
        self.evaluations.count()
        value = evaluate(self.field, tensors, z, as_tuple=self.as_tuple)
        if self.evaluations == Evaluations(forward=1):  # of one it takes a good part, of all few
            refuse_checkpointed(self.field, value, (*z, *tensors.values()))
        for place, tensor in tensors.items():
            if tensor is not found[place]:
                self._assign(layout[place], tensor, state)
        return value

    def _assign(self, key: str, buffer: Tensor, state: State) -> None:
        """Keep a buffer that a step assigned anew, for the steps that see it next."""
        if key in state:
            state[key] = buffer
        else:
            self.buffers[key] = buffer
            path, _, name = key.rpartition(".")
            setattr(self.root.get_submodule(path), name, buffer)
