"""R(w0, p): its value, its gradient, what it costs, and that training minimizes it."""

import gc
import pickle
from copy import deepcopy
from io import BytesIO

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import Evolution, Frozen, LinearEvolution
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.training.task import Classification
from anodev2.gradient import Binomial, Checkpoint, Direct
from anodev2.memory import Exponential
from anodev2.models import Moving, build_model
from anodev2.regularization import Regularization
from anodev2.usage import UsageError
from cases import EVOLUTIONS, STRATEGIES
from experiment.tiny import tiny_data

ALL = Regularization(w0=0.3, p=0.5, path=0.7)
EACH = [Regularization(w0=0.3), Regularization(p=0.5), Regularization(path=0.7), ALL]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)


class Ramp(Evolution):
    """dw/dt = rate; it counts its steps."""

    def __init__(self, shape) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((), 3.0))
        self.steps = 0

    def forward(self, w: Tensor, t: float, dt: float) -> Tensor:
        self.steps += 1
        return w + dt * self.rate


def ramp(regularize: Regularization = ALL, **settings) -> CoupledODE:
    """A block with one weight of twelve ones that moves at the rate 3."""
    field = nn.Conv1d(2, 2, 3, padding=1)
    nn.init.ones_(field.weight)
    settings.setdefault("coupling", configuration_1(4))
    return CoupledODE(field, evolution=Ramp, regularize=regularize, **settings).double()


def operator(block: CoupledODE) -> Ramp:
    return block.evolution.get_submodule("weight")


def moving(regularize: Regularization = ALL, *, evolution=LinearEvolution, **settings):
    """A block of three weights of two shapes with random p."""
    torch.manual_seed(0)
    convolutions = [nn.Conv1d(2, 2, n, padding=n // 2) for n in (3, 3, 5)]
    field = nn.Sequential(convolutions[0], nn.Tanh(), *convolutions[1:])
    settings.setdefault("coupling", configuration_1(3))
    block = CoupledODE(field, evolution=evolution, regularize=regularize, **settings).double()
    for p in block.evolution.parameters():
        p.data += 0.4 * torch.rand_like(p) - 0.2
    return block


def signals() -> Tensor:
    return torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(1)).double()


def by_definition(block: CoupledODE, steps: int, dt: float) -> Tensor:
    """R of a block whose last read is after so many steps, from a loop of its own."""
    r, factors = torch.zeros((), dtype=torch.float64), block.regularize
    for name in block.evolved:
        w = block.get_parameter(name)
        q = block.evolution.get_submodule(name.removeprefix("field."))
        r = r + factors.w0 / 2 * (w**2).sum()
        for m in range(steps):
            before, w = w, q(w, m * dt, dt)
            r = r + factors.path / 2 * ((w - before) ** 2).sum() / dt
        r = r + factors.p / 2 * sum((p**2).sum() for p in q.parameters())
    return r


def loss_of(block: CoupledODE) -> Tensor:
    return block(signals()).square().mean()


def gradients(value: Tensor, block: CoupledODE) -> tuple[Tensor, ...]:
    parameters = list(block.parameters())
    return torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(
    ("regularize", "expected"),
    [
        (Regularization(w0=0.5), 0.25 * 12),  # |w0|^2 = 12
        (Regularization(p=0.5), 0.25 * 9),  # |p|^2 = 3^2
        (Regularization(path=0.5), 0.25 * 12 * 9 * 0.75),  # |dw/dt|^2 = 12 * 9, up to t = 3/4
        (Regularization(w0=0.5, p=0.5, path=0.5), 3 + 2.25 + 20.25),
    ],
)
def test_by_hand(regularize: Regularization, expected: float) -> None:
    block = ramp(regularize)
    block(signals())
    assert block.regularization().item() == expected


@torch.no_grad()
@pytest.mark.parametrize("regularize", EACH, ids=repr)
@pytest.mark.parametrize("evolution", EVOLUTIONS, ids=range(len(EVOLUTIONS)))
def test_it_is_its_formula_for_every_evolution(evolution, regularize) -> None:
    block = moving(regularize, evolution=evolution)
    block(signals())
    expected = by_definition(block, 2, 1 / 3)
    torch.testing.assert_close(block.regularization().double(), expected, rtol=1e-13, atol=0)


@torch.no_grad()
def test_the_path_is_that_up_to_the_last_time_that_is_read() -> None:
    block = moving(coupling=configuration_2(2, 4))
    expected = by_definition(block, 4, 1 / 4)
    torch.testing.assert_close(block.regularization(), expected, rtol=1e-14, atol=0)


@torch.no_grad()
def test_the_path_is_that_of_w_and_not_of_theta() -> None:
    without, remembering = moving(), moving(memory=Exponential())
    assert torch.equal(remembering.regularization(), without.regularization())


@pytest.mark.parametrize("regularize", EACH, ids=repr)
def test_its_gradient_is_that_of_finite_differences(regularize) -> None:
    block = moving(regularize)
    parameters = [p for n, p in block.named_parameters() if "bias" not in n]

    def of(*_: Tensor) -> Tensor:
        block(signals())
        return block.regularization()

    assert torch.autograd.gradcheck(of, parameters, rtol=1e-6, atol=1e-9)


def test_after_a_forward_pass_it_takes_no_steps() -> None:
    block = ramp()
    block(signals())
    assert operator(block).steps == 3
    block.regularization()
    assert operator(block).steps == 3


def test_a_second_call_solves_anew_to_the_same_bits() -> None:
    block = ramp()
    block(signals())
    first, second = block.regularization(), block.regularization()
    assert operator(block).steps == 6
    assert torch.equal(first, second)


def test_it_is_zero_by_default() -> None:
    block = ramp(Regularization())
    block(signals())
    assert block.regularization().item() == 0


def test_by_default_no_path_is_kept() -> None:
    block = ramp(Regularization())
    block(signals())
    assert block._last._paths is None


def test_by_default_it_takes_no_steps() -> None:
    block = ramp(Regularization())
    block(signals())
    block.regularization()
    assert operator(block).steps == 3


def test_after_a_forward_pass_without_gradients_it_has_its_gradients_all_the_same() -> None:
    block = ramp(Regularization(path=0.5))
    with torch.no_grad():
        block(signals())
    _, rate = gradients(block.regularization(), block)[-2:]
    assert rate.item() == 0.5 * 12 * 3 * 0.75


def saved(block: CoupledODE) -> CoupledODE:
    file = BytesIO()
    torch.save(block, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": deepcopy,
    "pickle": lambda block: pickle.loads(pickle.dumps(block)),
    "torch.save": saved,
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_of_a_block_after_a_forward_pass_has_its_own_path(copy: str) -> None:
    block = ramp()
    block(signals())
    other = COPIES[copy](block)
    operator(other).rate.data.fill_(5)
    assert block.regularization().item() == 0.15 * 12 + 0.25 * 9 + 0.35 * 12 * 9 * 0.75
    found = other.regularization().item()
    assert found == pytest.approx(0.15 * 12 + 0.25 * 25 + 0.35 * 12 * 25 * 0.75, rel=1e-15)


def test_it_is_of_the_block_s_own_parameters_after_a_pass_with_others_put_in() -> None:
    block = deepcopy(moving())  # so that no parameter's version tells it from another
    others = {name: 10 * p.detach() for name, p in block.named_parameters()}
    torch.func.functional_call(block, others, (signals(),))
    torch.testing.assert_close(block.regularization(), by_definition(block, 2, 1 / 3))


def test_p_that_is_let_learn_after_a_pass_gets_its_gradient() -> None:
    block = ramp(Regularization(path=0.7))
    operator(block).rate.requires_grad_(False)
    block(signals())
    operator(block).rate.requires_grad_(True)
    block.regularization().backward()
    assert operator(block).rate.grad is not None


class Swing(nn.Module):
    """(x, v) -> (v, f(x)): the last theta tells in v alone."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Conv1d(2, 2, 3, padding=1)

    def forward(self, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return z[1], self.f(z[0])


def test_it_can_be_differentiated_after_a_loss_that_the_last_theta_has_no_part_in() -> None:
    field = Swing()
    block = CoupledODE(field, evolution=Ramp, regularize=ALL, coupling=configuration_1(4)).double()
    block((signals(), signals()))[0].sum().backward()
    block.regularization().backward()


def test_of_complex_numbers_it_takes_the_absolute_square() -> None:
    w = torch.randn(3, dtype=torch.complex128)
    found = Regularization(p=1.0).of_parameters([w])
    torch.testing.assert_close(found, (w.real**2 + w.imag**2).sum() / 2)


@every_strategy
def test_with_the_loss_its_gradient_is_the_sum_of_theirs_by_every_strategy(strategy) -> None:
    block, alone = moving(gradient=strategy), moving()
    found = gradients(loss_of(block) + block.regularization(), block)
    loss, r = gradients(loss_of(alone), alone), gradients(by_definition(alone, 2, 1 / 3), alone)
    for gradient, a, b in zip(found, loss, r, strict=True):
        torch.testing.assert_close(gradient, a + b, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("evolution", [Frozen, LinearEvolution])
def test_weights_at_rest_have_no_path_energy(evolution) -> None:
    field = nn.Conv1d(2, 2, 3, padding=1)
    block = CoupledODE(field, evolution=evolution, regularize=Regularization(path=0.7))
    assert block.regularization().item() == 0


@pytest.mark.parametrize("name", ["w0", "p", "path"])
@pytest.mark.parametrize("value", [-1e-9, float("nan")])
def test_a_factor_below_zero_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 0, got {value}"):
        Regularization(**{name: value})


@pytest.mark.parametrize("strategy", [Direct(), Checkpoint(), Binomial(slots=1)], ids=repr)
@pytest.mark.parametrize("asked", [True, False], ids=["asked for", "not asked for"])
def test_fifty_passes_leave_no_more_tensors_than_one(strategy, asked: bool) -> None:
    block, alive = moving(gradient=strategy), []
    for i in range(51):
        loss = loss_of(block)
        (loss + block.regularization() if asked else loss).backward()
        if i in (1, 50):
            gc.collect()
            alive.append(sum(issubclass(type(x), Tensor) for x in gc.get_objects()))
    assert alive[1] == alive[0]


def test_training_minimizes_loss_and_regularization_and_logs_the_loss_alone(monkeypatch) -> None:
    data, logged = tiny_data(), {}
    model = build_model("resnet4", moving=Moving(regularize=ALL), num_classes=3)
    task = Classification(model, data, recipe_for("resnet4", 1), 0)
    task.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    monkeypatch.setattr(task, "log", lambda name, value, **_: logged.setdefault(name, value))
    minimized = task.training_step((data.train.images[:8].float() / 255, data.train.labels[:8]), 0)
    (block,) = task.blocks
    expected = by_definition(block, 4, 1 / 5).item()
    assert (minimized - logged["train_loss"]).item() == pytest.approx(expected, rel=1e-6)
    assert expected > 1  # of a sum below 4, which float32 has to 2e-7
