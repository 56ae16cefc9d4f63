"""CoupledODE: a module's weights set in motion.

    dz/dt = f(z(t), theta(t)),    dw/dt = q(w(t); p),    theta(t) = int_0^t K(t - s) w(s) ds

from z(0) = z0 and w(0) = w0 to z(1) [anodev2_loss]. The block solves the evolution ODE first,
which needs no z, and then runs the activation ODE through a gradient strategy.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from anodev2.coupling import Coupling, configuration_1
from anodev2.evolution import Evolution, ReactionDiffusionAdvection, ShapeError
from anodev2.evolution.trajectory import evolve as solve_evolution
from anodev2.gradient import Direct, GradientStrategy, Program
from anodev2.gradient.program import State
from anodev2.materialized import MaterializedODE
from anodev2.memory import Dirac, MemoryKernel
from anodev2.precision import Precision
from anodev2.skeleton import skeleton, step_copies
from anodev2.solver import Euler, Solver
from anodev2.usage import UsageError, check_choice

Choice = Iterable[str] | Callable[[str, nn.Parameter], bool]
"""Which parameters of a field evolve: names, or a predicate on name and parameter."""


class CoupledODE(nn.Module):
    """z(0) -> z(1) of dz/dt = f(z, theta(t)) while the weights move by dw/dt = q(w; p).

    Cost: `coupling.z_steps` times the solver's stages evaluations of the field a forward
    pass; the evolution costs next to nothing. Memory: the gradient strategy's.

    The parameters of the block are the field's own under `field.*` (w0 among them, and the
    norms of the first step), copies of its norms for the steps after it under `norms.*`, p
    under `evolution.*` and those of the memory kernel under `memory.*`.

    Args:
        field: any module z -> dz/dt of the same shape, used unmodified.
        residual: the field is a module F that contains its shortcut, so f = F - identity.
        coupling: the time grids and which theta each step reads.
        evolution: q, called with the shape of each evolved weight, in the order of names.
        memory: K; Dirac if None.
        solver: one-step method for z.
        gradient: how to differentiate and what to keep for it.
        evolve: which parameters of the field are w0, as names or as a predicate on name and
            parameter; None takes the convolution and linear weights that the evolution
            accepts.
        per_step: module types of which every z-step owns a copy; () shares them.

    Raises:
        ValueError: a name that the field has not, a weight that the evolution refuses, or
            nothing that could evolve.
        RuntimeError: in the forward pass, if the field changes its input in place.

    Source: section "Methodology", [activation_ode], [anodev2_loss_w_pde],
    [anodev2_theta_formula].
    """

    def __init__(
        self,
        field: nn.Module,
        *,
        residual: bool = False,
        coupling: Coupling = configuration_1(),
        evolution: Callable[[Sequence[int]], Evolution] = ReactionDiffusionAdvection,
        memory: MemoryKernel | None = None,
        solver: Solver = Euler(),
        gradient: GradientStrategy = Direct(),
        evolve: Choice | None = None,
        per_step: tuple[type[nn.Module], ...] = (_BatchNorm,),
    ) -> None:
        super().__init__()
        self.field = field
        self.residual = residual
        self.coupling = coupling
        self.solver = solver
        self.gradient = gradient
        self.norms = step_copies(field, per_step, coupling.z_steps)
        operators = _operators(field, evolution, evolve)
        self.evolution = skeleton(operators)
        self.memory = Dirac() if memory is None else memory
        self._evolved = tuple(operators)
        self._reads = coupling.reads(solver.tableau.c)
        twice = set(operators) & {n for step in self.norms for n, _ in step.named_parameters()}
        if twice:
            raise UsageError(
                f"{min(twice)!r} cannot evolve and have a copy for every step: leave it out of "
                "`evolve` or its module's type out of `per_step`"
            )

    @property
    def evolved(self) -> tuple[str, ...]:
        """Names of the evolved weights, as in `named_parameters()`."""
        return tuple(f"field.{name}" for name in self._evolved)

    @property
    def read_times(self) -> tuple[float, ...]:
        """The distinct times at which theta is read, in order."""
        return tuple(point / self._reads.w_steps for point in self._reads.distinct)

    def forward(self, z0: Float[Tensor, "*state"]) -> Float[Tensor, "*state"]:
        """Solve the coupled system from z0 = z(0) to z(1), of the same shape."""
        return self.gradient.solve(self._program(Precision.capture(z0.device)), z0)

    def weight_trajectory(self) -> dict[str, Float[Tensor, "reads *shape"]]:
        """theta at each of `read_times`, as {parameter name: tensor (reads, *shape)}.

        Differentiable in w0, p and the memory kernel's parameters.
        """
        return {f"field.{name}": torch.stack(theta) for name, theta in self._theta().items()}

    @torch.no_grad()
    def materialize(self) -> MaterializedODE:
        """A plain module with the evolved weights written out, for inference or export.

        It computes what the block computes, to the bit, without evolution or parameters of
        one; steps share the tensors that do not differ between them.
        """
        return MaterializedODE(
            self.field,
            self._layouts(),
            self._read(),
            self._written(0, self.coupling.z_steps),
            solver=self.solver,
            residual=self.residual,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.coupling.z_steps} z-steps, {self._reads.w_steps} w-steps, {self.solver}, "
            f"{self.gradient}, residual={self.residual}, evolved={list(self.evolved)}"
        )

    def _program(self, precision: Precision) -> Program:
        """The z-steps as data, with theta evolved once for all of them."""
        layouts = self._layouts()
        own = {f"norms.{n}": b for n, b in self.norms.named_buffers()}
        h = 1 / self.coupling.z_steps

        def step(i: int, z: Tensor, state: State) -> Tensor:
            def stage(s: int, x: Tensor) -> Tensor:
                names = layouts[i][s]
                found = {n: state.get(key, own.get(key)) for n, key in names.items()}
                tensors = {n: tensor for n, tensor in found.items() if tensor is not None}
                value = _evaluate(self.field, tensors, x)
                state.update({names[n]: t for n, t in tensors.items() if names[n] in state})
                return value

            with precision.restore():
                return self.solver.step(z, h, stage, residual=self.residual)

        return Program(self.coupling.z_steps, step, self._read(), self._written)

    def _read(self) -> State:
        """Everything differentiable that the steps read: theta, norms, other parameters."""
        points = self._reads.distinct
        reads = {
            f"theta.{point}.{name}": value
            for name, theta in self._theta().items()
            for point, value in zip(points, theta, strict=True)
        }
        rest = {f"field.{n}": p for n, p in self.field.named_parameters() if n not in self._evolved}
        return reads | rest | {f"norms.{n}": p for n, p in self.norms.named_parameters()}

    def _written(self, start: int, stop: int) -> State:
        """The buffers that steps start ... stop - 1 see."""
        buffers = {f"field.{n}": b for n, b in self.field.named_buffers()}
        for i, copy in enumerate(self.norms[max(start - 1, 0) : stop - 1], max(start - 1, 0)):
            buffers |= {f"norms.{i}.{n}": b for n, b in copy.named_buffers()}
        return buffers

    def _theta(self) -> dict[str, list[Tensor]]:
        w0 = dict(self.field.named_parameters())
        return solve_evolution(
            {name: w0[name] for name in self._evolved},
            {name: self._operator(name) for name in self._evolved},
            self.memory,
            w_steps=self._reads.w_steps,
            points=self._reads.distinct,
        )

    def _operator(self, name: str) -> Evolution:
        operator = self.evolution.get_submodule(name)
        assert isinstance(operator, Evolution)
        return operator

    def _layouts(self) -> list[list[dict[str, str]]]:
        """For stage s of step i: for each tensor name of the field the key of its value.

        A tensor under two names (tied weights) has one key.
        """
        first: dict[int, str] = {}
        names: dict[str, str] = {}
        for kind in (self.field.named_parameters, self.field.named_buffers):
            for name, tensor in kind(remove_duplicate=False):
                names[name] = first.setdefault(id(tensor), name)
        layouts = []
        for i, points in enumerate(self._reads.index):
            layout = {name: f"field.{of}" for name, of in names.items()}
            if i > 0 and self.norms:
                copy = self.norms[i - 1]
                own = [n for n, _ in (*copy.named_parameters(), *copy.named_buffers())]
                layout |= {name: f"norms.{i - 1}.{name}" for name in own}
            moving = {name: of for name, of in names.items() if of in self._evolved}
            layouts.append(
                [
                    layout | {n: f"theta.{point}.{of}" for n, of in moving.items()}
                    for point in points
                ]
            )
        return layouts


def _evaluate(field: nn.Module, tensors: State, z: Tensor) -> Tensor:
    """field(z) with these parameters and buffers; buffers it replaces are put in `tensors`."""
    version = None if z.is_inference() else z._version
    value = functional_call(field, tensors, (z,), tie_weights=False)
    if version is not None and z._version != version:
        culprit = next((n for n, m in field.named_modules() if getattr(m, "inplace", False)), None)
        raise RuntimeError(
            f"the field {type(field).__name__} changes its input in place"
            + (f" (its module {culprit!r} has inplace=True)" if culprit else "")
            + ", but z is needed for the update z + h f: compute out of place first"
        )
    if value.shape != z.shape:
        raise UsageError(
            f"the field {type(field).__name__} maps {tuple(z.shape)} to {tuple(value.shape)}; "
            "dz/dt must have the shape of z"
        )
    return value  # type: ignore[no-any-return]


def _operators(
    field: nn.Module, evolution: Callable[[Sequence[int]], Evolution], evolve: Choice | None
) -> dict[str, Evolution]:
    """An evolution for each parameter of the field that is to move, by name."""
    parameters = dict(field.named_parameters())
    if evolve is None:
        accepted = {}
        for name in _weights(field):
            with suppress(ShapeError):
                accepted[name] = evolution(parameters[name].shape)
        if not accepted:
            raise UsageError(
                f"no convolution or linear weight of {type(field).__name__} fits the evolution: "
                "name the parameters that are to move in `evolve`"
            )
        return accepted
    if callable(evolve):
        chosen = [name for name, parameter in parameters.items() if evolve(name, parameter)]
    else:
        chosen = list(dict.fromkeys(evolve))
    for name in chosen:
        check_choice(f"parameter of {type(field).__name__}", name, parameters)
    return {name: evolution(parameters[name].shape) for name in chosen}


def _weights(field: nn.Module) -> list[str]:
    """Names of the convolution and linear weights, or of what parametrizes them."""
    names = []
    for path, module in field.named_modules():
        if not isinstance(module, (_ConvNd, nn.Linear)):
            continue
        for name, parameter in module.named_parameters():
            place = name.split(".")
            original = place[:2] == ["parametrizations", "weight"]
            if name == "weight" or (original and parameter.shape == module.weight.shape):
                names.append(f"{path}.{name}" if path else name)
    known = dict(field.named_parameters())
    return [name for name in names if name in known]
