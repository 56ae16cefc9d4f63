"""The paper's networks: exact counts, shapes, gradients everywhere, equal starts."""

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.gradient import Checkpoint, ContinuousAdjoint
from anodev2.models import IMAGE_SIZE, METHODS, MODELS, build_model, find_method
from anodev2.models.residual import ORDERS, Residual
from anodev2.solver import RK4, Euler, Midpoint
from anodev2.usage import UsageError

# Parameters of (alexnet, resnet4, resnet10).
COUNTS = {
    "baseline": (1_756_682, 7_706, 44_186),
    "neural-ode": (1_756_810, 7_770, 44_378),
    "anode": (1_756_810, 7_770, 44_378),
    "anodev2-1": (1_757_514, 8_122, 45_434),
    "anodev2-2": (1_757_130, 7_930, 44_858),
}
NETWORKS = ("alexnet", "resnet4", "resnet10")
every_network = pytest.mark.parametrize("name", NETWORKS)
every_method = pytest.mark.parametrize("method", list(METHODS))
every_order = pytest.mark.parametrize("order", ORDERS)


def images(count: int = 2, channels: int = 3) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randn(count, channels, IMAGE_SIZE, IMAGE_SIZE, generator=source)


def seeded(name: str, **settings) -> nn.Module:
    torch.manual_seed(0)
    return build_model(name, **settings)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def blocks(model: nn.Module, *kinds: type[nn.Module]) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, kinds)]


def test_the_table_of_counts_is_over_all_networks_and_methods():
    assert (tuple(MODELS), tuple(METHODS)) == (NETWORKS, tuple(COUNTS))


@every_network
@every_method
@every_order
def test_the_number_of_parameters_is_the_tables(order, method, name):
    model = build_model(name, method=method, order=order)
    assert count(model) == COUNTS[method][NETWORKS.index(name)]


@every_network
@every_method
@every_order
def test_other_channels_and_classes_change_the_ends_alone(order, method, name):
    model = build_model(name, method=method, order=order, in_channels=1, num_classes=7)
    assert model(images(channels=1)).shape == (2, 7)


@every_network
@every_method
@every_order
def test_every_parameter_gets_a_gradient(order, method, name):
    model = seeded(name, method=method, order=order)
    nn.functional.cross_entropy(model(images()), torch.tensor([3, 8])).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@every_network
@every_method
def test_no_parameter_starts_with_a_gradient_of_zero(method, name):
    model = seeded(name, method=method, order="pre")
    nn.functional.cross_entropy(model(images(4)), torch.arange(4)).backward()
    still = [n for n, p in model.named_parameters() if p.grad.abs().max() == 0]
    assert still == []


@every_network
@every_method
def test_in_order_post_the_rate_of_a_block_is_never_negative(method, name):
    model = seeded(name, method=method, order="post")
    rates: list[Tensor] = []
    fields = [block.field for block in blocks(model, Residual, CoupledODE)]
    for field in fields:
        field.register_forward_hook(lambda module, args, rate: rates.append(rate))
    model(images())
    assert len(rates) >= len(fields)
    assert all(rate.min() >= 0 for rate in rates)


@every_network
@every_method
def test_in_order_pre_the_rate_of_a_block_has_both_signs(method, name):
    model = seeded(name, method=method, order="pre")
    rates: list[Tensor] = []
    for block in blocks(model, Residual, CoupledODE):
        block.field.register_forward_hook(lambda module, args, rate: rates.append(rate))
    model(images())
    assert all(rate.min() < 0 < rate.max() for rate in rates)


@every_network
@every_method
@every_order
def test_the_same_seed_gives_every_method_the_same_shared_weights(order, method, name):
    model, baseline = (seeded(name, method=m, order=order) for m in (method, "baseline"))
    state, expected = model.state_dict(), baseline.state_dict()
    assert expected.keys() <= state.keys()
    assert [n for n, tensor in expected.items() if not torch.equal(state[n], tensor)] == []


@every_network
def test_every_method_replaces_the_same_blocks(name):
    replaced = {
        method: [
            path
            for path, module in build_model(name, method=method).named_modules()
            if isinstance(module, CoupledODE)
        ]
        for method in METHODS
    }
    expected = {"alexnet": ["4"], "resnet4": ["3"], "resnet10": ["4", "6"]}[name]
    assert replaced == {m: [] if m == "baseline" else expected for m in METHODS}


@pytest.mark.parametrize(
    ("method", "z_steps", "w_steps"),
    [("anode", 2, 2), ("anode-5", 5, 5), ("anodev2-1", 5, 5), ("anodev2-2", 2, 10)],
)
def test_a_method_has_the_steps_of_the_paper(method, z_steps, w_steps):
    (block,) = blocks(build_model("resnet4", method=method), CoupledODE)
    assert (block.coupling.z_steps, block.coupling.w_steps) == (z_steps, w_steps)


@pytest.mark.parametrize(
    ("method", "steps", "solver", "gradient"),
    [
        ("neural-ode", 2, Euler(), ContinuousAdjoint()),
        ("neural-ode-5", 5, Euler(), ContinuousAdjoint()),
        ("neural-ode-3-rk4", 3, RK4(), ContinuousAdjoint()),
        ("neural-ode-dopri5", 2, Euler(), ContinuousAdjoint("dopri5")),
        ("neural-ode-dopri5-1e-4", 2, Euler(), ContinuousAdjoint("dopri5", rtol=1e-4, atol=1e-4)),
        (
            "neural-ode-2-bosh3-1e-4-1e-5",
            2,
            Euler(),
            ContinuousAdjoint("bosh3", rtol=1e-4, atol=1e-5),
        ),
    ],
)
def test_a_neural_ode_has_the_steps_solver_and_tolerances_of_its_name(
    method, steps, solver, gradient
):
    (block,) = blocks(build_model("resnet4", method=method), CoupledODE)
    assert (block.coupling.z_steps, block.solver, block.gradient) == (steps, solver, gradient)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("neural-ode-0", "at least 1"),
        ("anode-rk5", "did you mean 'rk4'"),
        ("anodev2-1-rk4-1e-3", "rk4 has no tolerance"),
        ("anodev2-2-4", "w_steps"),
        ("anodev3-1", "did you mean 'anodev2-1'"),
        ("neural-ode-dopri", "did you mean 'dopri8'"),
        ("neural-ode-3-rk4-1.2.3", "did you mean 'neural-ode'"),
    ],
)
def test_a_method_spelled_wrongly_is_refused_with_what_is_near(method, told):
    with pytest.raises(ValueError, match=told):
        build_model("resnet4", method=method)


@pytest.mark.parametrize(
    ("method", "coupling", "solver"),
    [
        ("anode-5-midpoint", configuration_1(steps=5), Midpoint()),
        ("anode-rk4", configuration_1(steps=2), RK4()),
        ("anodev2-1-10", configuration_1(steps=10), Euler()),
        ("anodev2-1-2-rk4", configuration_1(steps=2), RK4()),
        ("anodev2-2-1", configuration_2(z_steps=1), Euler()),
        ("anodev2-2-midpoint", configuration_2(), Midpoint()),
    ],
)
def test_a_method_has_the_steps_and_the_solver_of_its_name(method, coupling, solver):
    (block,) = blocks(build_model("resnet4", method=method), CoupledODE)
    assert (block.coupling, block.solver) == (coupling, solver)


@pytest.mark.parametrize(
    ("method", "at_rest"),
    [
        ("anodev2-1", "anode-5"),
        ("anodev2-2", "anode"),
        ("anodev2-1-10", "anode-10"),
        ("anodev2-1-2-rk4", "anode-rk4"),
        ("anodev2-1-midpoint", "anode-5-midpoint"),
    ],
)
def test_a_method_that_moves_knows_the_one_of_equal_steps_at_rest(method, at_rest):
    moving, resting = find_method(method), find_method(at_rest)
    assert moving.at_rest == at_rest
    assert (moving.steps, moving.moves, resting.moves) == (resting.steps, True, False)


def test_without_its_block_a_network_is_its_stem_and_head():
    network = build_model("resnet4", method="without-block")
    assert count(network) == COUNTS["baseline"][NETWORKS.index("resnet4")] - 2 * (16 * 16 * 9 + 32)


@every_network
@pytest.mark.parametrize("method", ["anode-5", "neural-ode-5"])
def test_five_frozen_steps_have_four_extra_sets_of_norms(method, name):
    norms = {"alexnet": 128, "resnet4": 2 * 32, "resnet10": 2 * 32 + 2 * 64}[name]
    model = build_model(name, method=method)
    assert count(model) == COUNTS["baseline"][NETWORKS.index(name)] + 4 * norms


def test_anode_recomputes_each_block_as_one_segment():
    (block,) = blocks(build_model("resnet4", method="anode"), CoupledODE)
    assert block.gradient == Checkpoint(segments=1)


@pytest.mark.parametrize(
    ("settings", "nearest"),
    [
        ({"name": "resnet-4"}, "resnet4"),
        ({"name": "alexnt"}, "alexnet"),
        ({"name": "resnet4", "method": "anode2-1"}, "anodev2-1"),
        ({"name": "resnet4", "method": "base"}, "baseline"),
        ({"name": "resnet4", "order": "pree"}, "pre"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_nearest_one(settings, nearest):
    with pytest.raises(UsageError, match=f"did you mean {nearest!r}"):
        build_model(**settings)


@pytest.mark.parametrize("method", ["anode-0", "neural-ode-0", "anode-02"])
def test_a_method_of_no_steps_is_refused(method):
    with pytest.raises(UsageError, match=f"{method}.*at least 1"):
        build_model("resnet4", method=method)


@pytest.mark.parametrize("method", ["baseline-2", "anodev2-3", "anode-", "anode-1.5"])
def test_a_count_on_another_method_is_no_method(method):
    with pytest.raises(UsageError, match="unknown method"):
        build_model("resnet4", method=method)
