"""CoupledODE: a module's weights set in motion.

    dz/dt = f(z(t), theta(t)),    dw/dt = q(w(t); p),    theta(t) = int_0^t K(t - s) w(s) ds

from z(0) = z0 and w(0) = w0 to z(1) [anodev2_loss]. The block solves the evolution ODE first,
which needs no z, and then runs the activation ODE through a gradient strategy.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from anodev2.coupling import Coupling, configuration_1, grid_points
from anodev2.discretization import Layout, Steps, layouts, motion, theta_key
from anodev2.evolution import Evolution, ReactionDiffusionAdvection
from anodev2.evolution.trajectory import Path, Trajectory
from anodev2.field import Choice, initial_weights, operators, out_of_inference, parts
from anodev2.footprint import MemoryReport, measure_memory
from anodev2.gradient import Direct, Evaluations, GradientStrategy, Program
from anodev2.gradient.program import Motion
from anodev2.materialized import MaterializedODE
from anodev2.memory import Dirac, MemoryKernel
from anodev2.precision import Precision
from anodev2.regularization import LastPaths, Regularization
from anodev2.skeleton import skeleton, step_copies
from anodev2.solver import Euler, Solver, Z
from anodev2.usage import UsageError, check_kind


class CoupledODE(nn.Module):
    """z(0) -> z(1) of dz/dt = f(z, theta(t)) while the weights move by dw/dt = q(w; p).

    Cost: `coupling.z_steps` times the solver's stages evaluations of the field a forward
    pass; the evolution costs next to nothing. Memory: the gradient strategy's.

    `evaluations` counts those of the field in the last forward pass and in its backward passes.

    The parameters of the block are the field's own under `field.*` (w0 among them, and the
    norms of the first step), copies of its norms for the steps after it under `norms.*`, p
    under `evolution.*` and those of the memory kernel under `memory.*`.

    Args:
        field: any module z -> dz/dt of the same shape, used unmodified.
        residual: the field is a module F that contains its shortcut, so f = F - identity.
        coupling: the time grids and which theta each step reads.
        evolution: q, called with the shape of each evolved weight, in the order of names; what an
            operator is set to, parameters and buffers aside, is read once.
        memory: K; Dirac if None.
        solver: one-step method for z.
        gradient: how to differentiate and what to keep for it.
        evolve: which parameters of the field are w0, as names or as a predicate on name and
            parameter; None takes the convolution, linear and attention weights that the
            evolution accepts.
        per_step: module types of which every z-step owns a copy; () shares them.
        regularize: R(w0, p), which `regularization()` gives and the loss is to add.

    Raises:
        ValueError: a name that the field has not, a weight that the evolution refuses, or
            nothing that could evolve.
        TypeError: a class, function or name where an object belongs.
        RuntimeError: in the forward pass, if the field changes its input in place or has
            torch.utils.checkpoint run a part of it again.

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
        regularize: Regularization = Regularization(),
    ) -> None:
        super().__init__()
        check_kind("field", field, nn.Module, "nn.Tanh()")
        check_kind("coupling", coupling, Coupling, "configuration_1(steps=5)")
        check_kind("solver", solver, Solver, "Euler()")
        check_kind("gradient", gradient, GradientStrategy, "Direct()")
        check_kind("memory", Dirac() if memory is None else memory, MemoryKernel, "Gaussian()")
        check_kind("regularize", regularize, Regularization, "Regularization(path=0.01)")
        self.field = field
        self.residual = residual
        self._coupling = coupling
        self._solver = solver
        self.gradient = gradient
        self.norms = step_copies(field, per_step, coupling.z_steps)
        moving = operators(field, evolution, evolve)
        self.evolution = skeleton(moving)
        self.memory = Dirac() if memory is None else memory
        self._evolved = tuple(moving)
        self._reads = coupling.reads(solver.tableau.c)
        self._trajectory = self._new_trajectory()
        self.regularize = regularize
        self._last = LastPaths()
        self.evaluations = Evaluations()
        self.check_finite: str | None = None
        twice = set(moving) & {n for step in self.norms for n, _ in step.named_parameters()}
        if twice:
            raise UsageError(
                f"{min(twice)!r} cannot evolve and have a copy for every step: leave it out of "
                "`evolve` or its module's type out of `per_step`"
            )

    @property
    def coupling(self) -> Coupling:
        """The time grids; fixed, as the norms of each step are made for them."""
        return self._coupling

    @property
    def solver(self) -> Solver:
        """The one-step method for z; fixed, as the reads of theta are laid out for it."""
        return self._solver

    @property
    def evolved(self) -> tuple[str, ...]:
        """Names of the evolved weights, as in `named_parameters()`."""
        return tuple(f"field.{name}" for name in self._evolved)

    @property
    def read_times(self) -> tuple[float, ...]:
        """The distinct times at which theta is read, in order."""
        return tuple(point / self._reads.w_steps for point in self._reads.distinct)

    def forward(self, z0: Z) -> Z:
        """Solve the coupled system.

        Args:
            z0: z(0), of any shape that the field keeps; a tuple of tensors for a field that
                acts on one.

        Returns:
            z(1), of z0's shape.

        Raises:
            RuntimeError: the field changed its input in place, or would be run again.
            ValueError: the field does not keep the shape of z.
            FloatingPointError: a weight or z is not finite, where `check_finite` is on.
        """
        with out_of_inference():
            z, program = parts(z0), self.program(z0)
            self.evaluations, z1 = program.evaluations, self.gradient.solve(program, z)
        return z1[0] if isinstance(z0, Tensor) else z1

    def weight_trajectory(
        self, times: Sequence[float] | None = None
    ) -> dict[str, Float[Tensor, "times ..."]]:
        """theta at some times, as {parameter name: tensor (times, *shape)}.

        Differentiable in w0, p and the memory kernel's parameters.

        Args:
            times: in ascending order, on the grid of w; None takes `read_times`.

        Raises:
            ValueError: a time that is not on the grid, or times that do not ascend.
        """
        paths = self.paths(times)
        return {f"field.{name}": torch.stack(path.theta) for name, path in paths.items()}

    def paths(self, times: Sequence[float] | None = None) -> dict[str, Path]:
        """w over its grid and theta at some times, by name within the field.

        Args:
            times: see `weight_trajectory`.
        """
        if times is None:
            operators = (self._operator(name) for name in self._evolved)
            if not self._trajectory.consists_of(*operators, self.memory):  # some were replaced
                self._trajectory = self._new_trajectory()
            trajectory = self._trajectory
        else:
            trajectory = self._new_trajectory(grid_points(times, self._reads.w_steps))
        return trajectory.solve(initial_weights(self.field, self._evolved))

    def regularization(self) -> Float[Tensor, ""]:
        """R(w0, p), by the path of w in the latest forward pass if it still holds, else anew."""
        device = next(self.field.parameters()).device
        if self.regularize == Regularization():
            return torch.zeros((), device=device)
        paths = self._last.take(self.parameters()) or self.paths()
        of_p = self.regularize.of_parameters(self.evolution.parameters())
        return self.regularize.of_state(paths.values()).to(device) + of_p.to(device)

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

    def memory_report(self, z0: Z) -> MemoryReport:
        """What the gradient strategy keeps for such a z0, in bytes.

        Measured by a forward and a backward pass of a copy of the block, under the autocast
        state in force now; block, gradients and random numbers stay as they are.

        Args:
            z0: z(0), as in a forward pass.
        """
        return measure_memory(self, z0)

    def extra_repr(self) -> str:
        p = sum(parameter.numel() for parameter in self.evolution.parameters())
        return (
            f"{self.coupling.z_steps} z-steps, {self._reads.w_steps} w-steps, {self.solver}, "
            f"{self.gradient}, residual={self.residual}, evolved={list(self.evolved)}, "
            f"p: {p} numbers"
        )

    def program(self, z0: Z) -> Program:
        """The z-steps of a forward pass as data, with theta evolved once for all of them.

        Args:
            z0: z(0); only its device and whether it is a tuple matter.
        """
        steps = Steps(
            self,
            self.field,
            self._layouts(),
            self.solver,
            residual=self.residual,
            precision=Precision.capture((z0 if isinstance(z0, Tensor) else z0[0]).device),
            as_tuple=not isinstance(z0, Tensor),
            check_finite=self.check_finite,
        )
        return Program(
            steps=self.coupling.z_steps,
            solver=self.solver,
            step=steps.step,
            rate=steps.rate,
            tensors=self._read(),
            buffers=self._written,
            evaluations=steps.evaluations,
            motion=self._motion,
        )

    def _layouts(self) -> list[list[Layout]]:
        return layouts(self.field, self.norms, self._evolved, self._reads)

    def _read(self) -> dict[str, Tensor]:
        """Everything differentiable that the steps read: theta, norms, other parameters."""
        points = self._reads.distinct
        paths = self.paths()
        if self.regularize != Regularization() and torch.is_grad_enabled():
            self._last.keep(paths, self.parameters())
        reads = {
            theta_key(point, name): value
            for name, path in paths.items()
            for point, value in zip(points, path.theta, strict=True)
        }
        rest = {f"field.{n}": p for n, p in self.field.named_parameters() if n not in self._evolved}
        return reads | rest | {f"norms.{n}": p for n, p in self.norms.named_parameters()}

    def _written(self, start: int, stop: int) -> dict[str, Tensor]:
        """The buffers that steps start ... stop - 1 see."""
        buffers = {f"field.{n}": b for n, b in self.field.named_buffers()}
        for i, copy in enumerate(self.norms[max(start - 1, 0) : stop - 1], max(start - 1, 0)):
            buffers |= {f"norms.{i}.{n}": b for n, b in copy.named_buffers()}
        return buffers

    def _new_trajectory(self, points: Sequence[int] | None = None) -> Trajectory:
        return Trajectory(
            {name: self._operator(name) for name in self._evolved},
            self.memory,
            w_steps=self._reads.w_steps,
            points=self._reads.distinct if points is None else points,
        )

    def _motion(self) -> Motion | None:
        """The weights in continuous time, if each has a rate and is read as it is then."""
        if not isinstance(self.memory, Dirac) or self.coupling.read_times is not None:
            return None
        q = {name: self._operator(name) for name in self._evolved}
        return motion(q, initial_weights(self.field, self._evolved), self._reads)

    def _operator(self, name: str) -> Evolution:
        operator = self.evolution.get_submodule(name)
        assert isinstance(operator, Evolution)
        return operator
