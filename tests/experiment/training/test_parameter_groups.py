"""The optimiser's groups: p has a rate of its own."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch import Tensor, nn

from anodev2.evolution import LinearEvolution
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.training.task import Classification
from anodev2.memory import Learned
from anodev2.models import Moving, build_model
from tiny import tiny_data


def groups(model: nn.Module, **changes: float | None) -> list[dict[str, object]]:
    """The optimiser's groups in training by a recipe with other numbers."""
    recipe = replace(recipe_for("resnet4", 1), **changes)
    task = Classification(model, tiny_data(), recipe, 0)
    task.trainer = SimpleNamespace(world_size=1, global_rank=0)
    return task.configure_optimizers()["optimizer"].param_groups


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return sorted(map(id, found)) == sorted(map(id, expected))


def test_p_and_the_memory_are_a_group_of_their_own_with_their_own_rate() -> None:
    model = build_model("resnet4", moving=Moving(memory=Learned))
    rest, p = groups(model, p_rate=3.0)
    named = dict(model.named_parameters())
    moves = {n for n in named if ".evolution." in n or ".memory." in n}
    assert same(p["params"], [named[n] for n in moves])
    assert same(rest["params"], [named[n] for n in named.keys() - moves])
    assert (rest["initial_lr"], p["initial_lr"]) == (0.1, 3 * 0.1)
    assert p["lr"] == 3 * rest["lr"]


@pytest.mark.parametrize(("p_decay", "found"), [(None, 5e-4), (0.0, 0.0), (0.1, 0.1)])
def test_p_has_a_weight_decay_of_its_own_if_the_recipe_has(p_decay, found) -> None:
    rest, p = groups(
        build_model("resnet4"), p_rate=1.0 if p_decay is not None else 3.0, p_decay=p_decay
    )
    assert (rest["weight_decay"], p["weight_decay"]) == (5e-4, found)


def test_at_a_factor_of_1_all_parameters_are_one_group() -> None:
    model = build_model("resnet4")
    (group,) = groups(model, p_rate=1.0)
    assert same(group["params"], list(model.parameters()))


def test_a_network_that_does_not_move_has_one_group_at_any_factor() -> None:
    model = build_model("resnet4", method="anode")
    (group,) = groups(model, p_rate=3.0)
    assert same(group["params"], list(model.parameters()))


@pytest.mark.parametrize("p_rate", [1.0, 3.0])
def test_what_weights_and_blocks_share_is_in_one_group_once(p_rate: float) -> None:
    kernel, operators = Learned(), {}
    way = Moving(
        evolution=lambda shape: operators.setdefault(shape, LinearEvolution(shape)),
        memory=lambda: kernel,
    )
    model = build_model("resnet10", moving=way)
    found = [p for group in groups(model, p_rate=p_rate) for p in group["params"]]
    assert same(found, list(model.parameters()))
