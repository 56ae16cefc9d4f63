"""A block with its evolution worked out: the plain network that it is at inference."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from anodev2.discretization import is_trained
from anodev2.evolution import CompressedState
from anodev2.field import evaluate, out_of_inference, parts
from anodev2.solver import Activations, Solver, Z


class MaterializedODE(nn.Module):
    """The z-steps of a block, each stage with its weights written out.

    Args:
        field: the module that the block was made from; it is copied.
        layouts: for each step and stage, the key of the value of each tensor of the field.
        parameters, buffers: values by key; copied once each, so that stages share them, and
            frozen where they are, or where the w0 of a theta is.
        solver: the block's one-step method.
        residual: whether the field contains its shortcut.
    """

    def __init__(
        self,
        field: nn.Module,
        layouts: Sequence[Sequence[Mapping[str, str]]],
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        *,
        solver: Solver,
        residual: bool,
    ) -> None:
        super().__init__()
        self.solver = solver
        self.residual = residual
        copies: dict[str, Tensor] = {key: buffer.clone() for key, buffer in buffers.items()}
        written: dict[int, nn.Parameter] = {}
        for key, tensor in parameters.items():
            if id(tensor) not in written:
                trained = is_trained(field, key, tensor)
                written[id(tensor)] = nn.Parameter(tensor.detach().clone(), requires_grad=trained)
            copies[key] = written[id(tensor)]
        self.steps = nn.ModuleList(
            nn.ModuleList(_with_tensors(field, layout, copies) for layout in step)
            for step in layouts
        )

        for container in (self, self.steps, *self.steps):
            container.training = field.training

    def forward(self, z0: Z) -> Z:
        """z(1) from z(0), as the block computes it."""
        as_tuple = not isinstance(z0, Tensor)
        with out_of_inference():
            z = parts(z0)
            for fields in self.steps:
                stage = partial(_evaluate, list(fields.children()), as_tuple)
                z = self.solver.step(z, 1 / len(self.steps), stage, residual=self.residual)
        return z if as_tuple else z[0]


def _evaluate(fields: Sequence[nn.Module], as_tuple: bool, s: int, z: Activations) -> Activations:
    return evaluate(fields[s], {}, z, as_tuple=as_tuple)


def _with_tensors(
    field: nn.Module, layout: Mapping[str, str], values: Mapping[str, Tensor]
) -> nn.Module:
    """A copy of the field that holds these values."""
    copy = deepcopy(field)
    for name, key in layout.items():
        path, _, leaf = name.rpartition(".")
        setattr(copy.get_submodule(path), leaf, values[key])
    for module in list(copy.modules()):
        _make_plain(module)
    return copy


def _make_plain(module: nn.Module) -> None:
    """Take off compressed states, which hold whole weights by now.

    torch's own removal changes the class, which a copy shares with the module it was made from.
    """
    lists = dict(module.named_children()).get("parametrizations")
    states = dict(lists.named_children()) if lists is not None else {}
    alone = [isinstance(x, ParametrizationList) and len(x) == 1 for x in states.values()]
    if not (alone and all(alone)):
        return
    if all(isinstance(next(x.children()), CompressedState) for x in states.values()):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
        for name, x in states.items():
            module.register_parameter(name, x.get_parameter("original"))
