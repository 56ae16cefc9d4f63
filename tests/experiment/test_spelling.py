"""How weights move, as it is spelled: what each name means, what the help says, what is refused."""

import re
import sys
from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from anodev2 import CoupledODE
from anodev2.cli import main
from anodev2.commands import WAYS
from anodev2.evolution import BasisEvolution
from anodev2.experiment.recipe import RECIPES, recipe_for
from anodev2.experiment.spelling import BASES, DEFAULT, EVOLUTIONS, MEMORIES, OBJECTS, moving
from anodev2.experiment.training.task import Classification
from anodev2.models import Moving, build_model
from anodev2.regularization import Regularization
from anodev2.usage import UsageError
from tiny import tiny_data

KERNELS = [name for name in MEMORIES if name != "dirac"]


def spelled(evolution: str = DEFAULT[0], memory: str = DEFAULT[1], r: str = DEFAULT[2]) -> Moving:
    return moving(evolution, memory, r)


def built(way: Moving) -> nn.Module:
    torch.manual_seed(0)
    return build_model("resnet4", moving=way, num_classes=3)


def block_of(model: nn.Module) -> CoupledODE:
    return next(module for module in model.modules() if isinstance(module, CoupledODE))


def one_step(model: nn.Module) -> tuple[Tensor, Tensor]:
    """The loss of 24 images before and after a step down its gradient, as in training."""
    data = tiny_data()
    Classification(model, data, recipe_for("resnet4", 1), 0)  # lays the model out
    images, labels = data.train.images[:24].float() / 255, data.train.labels[:24]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = cross_entropy(model(images), labels) + block_of(model).regularization()
    before.backward()
    optimizer.step()
    return before, cross_entropy(model(images), labels) + block_of(model).regularization()


WAYS_TO_MOVE = [
    *((name, "dirac", "none") for name in EVOLUTIONS),
    *(("rda", name, "none") for name in KERNELS),
    *(("coordinate", f"{name}:normalize=false", "none") for name in KERNELS),
    ("linear:compression=4", "exponential:learn=true", "w0=1e-4:p=1e-3:path=1e-2"),
]


@pytest.mark.parametrize("way", WAYS_TO_MOVE, ids=str)
def test_a_network_of_every_name_has_a_gradient_for_all_it_learns_and_a_step_lowers_its_loss(
    way: tuple[str, str, str],
) -> None:
    model = built(moving(*way))
    before, after = one_step(model)
    assert after < before
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_the_name_of_an_evolution_is_that_of_its_class(name: str) -> None:
    evolution = spelled(name).evolution((2, 2, 3, 3))
    if EVOLUTIONS[name] in BASES:
        assert isinstance(evolution, BasisEvolution)
        assert isinstance(evolution.basis, EVOLUTIONS[name])
    else:
        assert type(evolution) is EVOLUTIONS[name]


@pytest.mark.parametrize("name", MEMORIES)
def test_the_name_of_a_memory_is_that_of_its_class_made_anew_for_each_block(name: str) -> None:
    memory = spelled(memory=name).memory
    first, second = memory(), memory()
    assert type(first) is MEMORIES[name]
    assert first is not second


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("value", [True, False])
def test_every_kernel_but_dirac_is_normalised_or_raw_as_spelled(name: str, value: bool) -> None:
    assert spelled(memory=f"{name}:normalize={str(value).lower()}").memory().normalize is value


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0e-3"])
def test_a_number_may_be_written_in_any_way(text: str) -> None:
    assert spelled(r=f"p={text}").regularize == Regularization(p=0.001)


# An evolution of a user's own.

DECAY = """
from anodev2.evolution import Evolution

class Decay(Evolution):
    def __init__(self, shape, *, rate: float = 1.0):
        super().__init__()
        self.rate = rate

    def forward(self, w, t, dt):
        return w - dt * self.rate * w
"""


@pytest.fixture
def _own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the working folder."""
    (tmp_path / "own.py").write_text(DECAY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})


@pytest.mark.usefixtures("_own_module")
@pytest.mark.parametrize(("option", "rate"), [("", 1.0), (":rate=2", 2.0)])
def test_an_evolution_of_ones_own_in_the_working_folder_moves_the_weights(option, rate) -> None:
    block = block_of(built(spelled(f"own.Decay{option}")))
    for start, end in block.weight_trajectory([0.0, 1.0]).values():
        torch.testing.assert_close(end, start * (1 - rate / 5) ** 5)


@pytest.mark.usefixtures("_own_module")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.Decya", "'own.Decya' cannot be imported .* no attribute 'Decya'"),
        ("own.Evolution.x", "'own.Evolution.x' cannot be imported"),
        ("own.Decay:rat=2", "unknown option of own.Decay 'rat': .* did you mean 'rate'"),
        ("own.Decay:rate=fast", "rate=fast, expected a value like 1.0"),
    ],
)
def test_a_mistake_in_an_evolution_of_ones_own_is_told(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spelled(name)


# What the help lists.


def documented() -> dict[str, Mapping[str, list[str]]]:
    """Under each name its options, each with the values listed, the default first."""
    entries: dict[str, str] = {}
    name = ""
    for line in WAYS.splitlines():
        if entry := re.match(r"  (\S+) ", line):
            name = entry[1]
        if line.startswith(" "):
            entries[name] = entries.get(name, "") + line
    options = {name: re.findall(r"(\w+)=([\w.|-]+)", text) for name, text in entries.items()}
    return {name: {key: v.split("|") for key, v in found} for name, found in options.items()}


def defaults(name: str) -> dict[str, str]:
    """The options of a name with their defaults, as they are spelled."""
    texts = {id(value): text for known in OBJECTS.values() for text, value in known.items()}
    texts |= {id(True): "true", id(False): "false"}
    parameters = signature((EVOLUTIONS | MEMORIES)[name]).parameters.items()
    optional = {key: p.default for key, p in parameters if p.default is not Parameter.empty}
    solvers = {repr(value): text for text, value in OBJECTS["solver"].items()}
    return {
        key: texts.get(id(value), solvers.get(repr(value), str(value)))
        for key, value in optional.items()
        if key != "normalize"  # of all but dirac, says the heading
    }


CHOICES = [
    (name, key, values)
    for name, options in documented().items()
    for key, values in options.items()
    if len(values) > 1
]


def test_the_help_lists_every_name_and_no_other() -> None:
    assert {*documented()} - {"package.Class"} == {*EVOLUTIONS, *MEMORIES, *RECIPES}


@pytest.mark.parametrize(
    "name",
    [*EVOLUTIONS, *MEMORIES],
)
def test_the_help_lists_every_option_of_a_name_with_its_default_and_no_other(name: str) -> None:
    listed = {key: values[0] for key, values in documented()[name].items()}
    assert listed == defaults(name)


@pytest.mark.parametrize(("name", "key", "values"), CHOICES)
def test_the_values_that_the_help_lists_are_those_that_are_taken(name, key, values) -> None:
    for value in values:
        spelled(f"{name}:{key}={value}")
    with pytest.raises(ValueError, match="expected one of ") as refusal:
        spelled(f"{name}:{key}=zzz")
    taken = str(refusal.value).partition("expected one of ")[2].partition(";")[0]
    assert {*taken.split(", ")} == {*values}


# What is refused.


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error that `anodev2 train` ends with, at status 2."""
    with pytest.raises(SystemExit) as stop:
        main(["train", *arguments])
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.err.count("\n") == 1
    return captured.err


MISTAKES = [
    ("--evolution linaer", "unknown evolution 'linaer'", "'linear'?"),
    ("--memory gausian", "unknown memory kernel 'gausian'", "'gaussian'?"),
    ("--regularization pth=1", "unknown option of regularization 'pth'", "'path'?"),
    ("--evolution linear:from=skew", "unknown option of linear 'from'", "'form'?"),
    ("--evolution rda:compresion=4", "unknown option of rda 'compresion'", "'compression'?"),
    ("--evolution frozen:compress=4", "unknown option of frozen 'compress'", "'compression'?"),
    ("--memory gaussian:widht=1", "unknown option of gaussian 'widht'", "'width'?"),
    ("--evolution linear:form=skw", "unknown form 'skw'", "'skew'?"),
    ("--evolution rda:coefficients=chanel", "unknown coefficients 'chanel'", "'channel'?"),
    ("--evolution rda:solver=rk5", "unknown solver 'rk5'", "'rk4'?"),
    ("--evolution network:activation=none", "unknown activation 'none'", "tanh"),
    ("--evolution linear:rank=two", "rank=two", "a value like 2"),
    ("--evolution network:hidden=1.5", "hidden=1.5", "a value like 16"),
    ("--memory exponential:learn=maybe", "learn=maybe", "a value like False"),
    ("--memory exponential:rate=-1", "rate must be positive", "got -1.0"),
    ("--memory learned:lags=0", "lags must be at least 1", "got 0"),
    ("--evolution legendre:degree=0", "degree must be at least 1", "got 0"),
    ("--regularization w0=-1", "w0 must be at least 0", "got -1.0"),
    ("--regularization none:w0=1", "'none' is no OPTION=VALUE", ""),
    ("--evolution nowhere.Decay", "'nowhere.Decay' cannot be imported", "nowhere"),
    ("--evolution json.Decay", "'json.Decay' cannot be imported", "json"),
    ("--evolution torch.nn.Linear", "'torch.nn.Linear' is not a class of", "Evolution"),
    ("--p_rate 0", "p_rate must be positive", "got 0"),
    ("--method anode --evolution linear", "weights of 'anode' stay at rest", "anodev2-1 and"),
    ("--method baseline --memory gaussian", "of 'baseline' stay at rest", "anodev2-2"),
    ("--method anode --regularization p=1", "weights of 'anode' stay at rest", "anodev2-1"),
    ("--method anode --p_rate 3", "weights of 'anode' stay at rest", "no p for p_rate"),
    ("--evolution linear:compression=x", "compression=x", "a number such as 4"),
    ("--evolution linear:rank=@2", "rank=@2", "a value like 2"),
    ("--evolution linear:axes=last", "axes=last", "a whole number"),
    ("--evolution linear:axes=7", "axes (7,)", "some of 0 to 3"),
    ("--evolution linear:compression=0.5", "compression must be at least 1", "got 0.5"),
    ("--evolution linear:compression=inf", "compression must be at least 1", "got inf"),
]


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [pytest.param(*mistake, id=mistake[0]) for mistake in MISTAKES],
)
def test_a_mistake_is_one_line_with_what_was_given_and_what_was_expected(
    arguments: str,
    given: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    line = refused(capsys, *arguments.split(" "))
    assert given in line
    assert expected in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spelled", ["linear:form=skew:form=dense", "rda:solver=none:solver=none"])
def test_an_option_given_twice_is_refused(spelled: str) -> None:
    with pytest.raises(UsageError, match=r"has (form|solver) twice: '\w+' and '\w+'"):
        moving(spelled, "dirac", "none")


def test_a_regularization_is_refused_in_the_users_own_words() -> None:
    with pytest.raises(UsageError, match=r"^regularization 'none:w0=1': 'none' is no OPTION=VALUE"):
        moving("rda", "dirac", "none:w0=1")
