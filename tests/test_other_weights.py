"""Weights that are not image convolutions: linear, attention, embedding, 1-D and 3-D kernels."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1, configuration_2
from anodev2.evolution import Frozen, LinearEvolution, NetworkEvolution, ReactionDiffusionAdvection
from anodev2.usage import UsageError
from cases import EVOLUTIONS


class Attention(nn.Module):
    """Self-attention z -> attn(z, z, z)[0]."""

    def __init__(self, *, batch_first: bool = False) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2, batch_first=batch_first)

    def forward(self, z: Tensor) -> Tensor:
        return self.attn(z, z, z, need_weights=False)[0]


class Positions(nn.Module):
    """A learned positional embedding added to z."""

    def __init__(self) -> None:
        super().__init__()
        self.pos = nn.Embedding(5, 4)

    def forward(self, z: Tensor) -> Tensor:
        return (z + self.pos(torch.arange(z.shape[1], device=z.device))).tanh()


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def signals() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.Tanh())


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 2, 3, padding=1), nn.Tanh())


# The field, the shape of z, and the parameters of the field that evolve.
FIELDS = {
    "linear": (linear, (3, 4), ("0.weight", "2.weight")),
    "attention": (Attention, (5, 2, 4), ("attn.in_proj_weight", "attn.out_proj.weight")),
    "embedding": (Positions, (2, 5, 4), ("pos.weight",)),
    "conv1d": (signals, (2, 2, 6), ("0.weight",)),
    "conv3d": (volumes, (1, 2, 3, 4, 3), ("0.weight",)),
}
ON_KERNELS = ("conv1d", "conv3d")
CASES = [
    pytest.param(field, evolution, id=f"{field}-{i}")
    for i, evolution in enumerate(EVOLUTIONS)
    for field in FIELDS
    if evolution is not Frozen
    and (field in ON_KERNELS or not isinstance(evolution((2, 2, 3)), ReactionDiffusionAdvection))
]
every_case = pytest.mark.parametrize(("field", "evolution"), CASES)
each_field = pytest.mark.parametrize("field", FIELDS)


def block_of(field: str, evolution, **settings) -> CoupledODE:
    torch.manual_seed(0)
    build, _, names = FIELDS[field]
    if field == "embedding":
        settings["evolve"] = names
    settings.setdefault("coupling", configuration_2(2, 4))
    return CoupledODE(build(), evolution=evolution, **settings)


def state(field: str) -> Tensor:
    return torch.randn(FIELDS[field][1], generator=torch.Generator().manual_seed(1))


def stirred(block: CoupledODE) -> CoupledODE:
    source = torch.Generator().manual_seed(2)
    for p in block.evolution.parameters():
        p.data += 0.4 * torch.rand(p.shape, generator=source) - 0.2
    return block


@each_field
def test_the_weights_of_the_field_evolve(field: str) -> None:
    names = tuple(f"field.{name}" for name in FIELDS[field][2])
    assert block_of(field, NetworkEvolution).evolved == names


@torch.no_grad()
@every_case
def test_every_weight_moves_once_p_is_stirred(field: str, evolution) -> None:
    trajectory = stirred(block_of(field, evolution)).weight_trajectory([0.0, 1.0])
    assert len(trajectory) == len(FIELDS[field][2])
    assert not any(torch.equal(start, end) for start, end in trajectory.values())


@every_case
def test_every_p_gets_a_gradient_from_z(field: str, evolution) -> None:
    block = stirred(block_of(field, evolution))
    block(state(field)).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in block.evolution.parameters())


@every_case
@pytest.mark.parametrize("coupling", [configuration_1(3), configuration_2(2, 4)], ids=["1", "2"])
def test_at_rest_the_block_is_that_of_frozen_weights_to_the_bit(field, evolution, coupling) -> None:
    operator = evolution((2, 2, 3))
    if isinstance(operator, ReactionDiffusionAdvection) and operator.solver is None:
        evolution = partial(evolution, activation=None)  # sigma would move it
    moving, frozen = (block_of(field, q, coupling=coupling) for q in (evolution, Frozen))
    assert torch.equal(moving(state(field)), frozen(state(field)))


@torch.no_grad()
@pytest.mark.parametrize("fused", [False, True])  # torch's kernel for evaluation, batch first
def test_each_step_of_attention_uses_the_projections_of_its_own_read(fused: bool) -> None:
    field, own = (Attention(batch_first=fused).train(not fused) for _ in range(2))
    block = CoupledODE(field, coupling=configuration_1(3), evolution=NetworkEvolution)
    stirred(block.train(not fused))
    z = state("attention")
    own.load_state_dict(field.state_dict())
    trajectory = block.weight_trajectory()
    for i in range(3):
        own.attn.in_proj_weight.copy_(trajectory["field.attn.in_proj_weight"][i])
        own.attn.out_proj.weight.copy_(trajectory["field.attn.out_proj.weight"][i])
        z = torch.add(z, own(z), alpha=1 / 3)
    assert torch.equal(block(state("attention")), z)


@torch.no_grad()
def test_each_step_of_an_embedding_uses_the_rows_of_its_own_read() -> None:
    block = stirred(block_of("embedding", LinearEvolution, coupling=configuration_1(3)))
    z = state("embedding")
    for rows in block.weight_trajectory()["field.pos.weight"]:
        z = torch.add(z, (z + rows).tanh(), alpha=1 / 3)
    assert torch.equal(block(state("embedding")), z)


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ON_KERNELS])
def test_reaction_diffusion_advection_refuses_what_is_no_kernel_and_names_what_is_not_so(
    field: str,
) -> None:
    with pytest.raises(UsageError) as refusal:
        block_of(field, ReactionDiffusionAdvection)
    assert "got a weight of shape" in str(refusal.value)
    for other in ("LinearEvolution", "NetworkEvolution", "CoordinateEvolution", "BasisEvolution"):
        assert other in str(refusal.value)


@pytest.mark.parametrize("form", ["dense", "skew"])
def test_a_matrix_along_a_long_axis_is_refused_with_a_hint_to_low_rank(form: str) -> None:
    with pytest.raises(UsageError, match=r"up to 128 points, got 129 .* form='low-rank' fits"):
        CoupledODE(nn.Linear(129, 129), evolution=partial(LinearEvolution, form=form))


@torch.no_grad()
def test_low_rank_moves_a_weight_along_a_long_axis() -> None:
    low_rank = partial(LinearEvolution, form="low-rank")
    block = stirred(CoupledODE(nn.Linear(129, 129), evolution=low_rank))
    start, end = block.weight_trajectory([0.0, 1.0])["field.weight"]
    assert not torch.equal(start, end)


@torch.no_grad()
@each_field
def test_at_given_times_the_trajectory_is_w0_and_then_step_after_step(field: str) -> None:
    block = stirred(block_of(field, NetworkEvolution))
    found = block.weight_trajectory([0.0, 0.5, 1.0])
    for name in FIELDS[field][2]:
        w = w0 = block.field.get_parameter(name)
        at = [w := block.evolution.get_submodule(name)(w, m / 4, 1 / 4) for m in range(4)]
        assert torch.equal(found[f"field.{name}"], torch.stack([w0, at[1], at[3]]))


@torch.no_grad()
def test_times_may_lie_beyond_the_last_read() -> None:
    block = stirred(block_of("linear", NetworkEvolution, coupling=configuration_1(4)))
    assert block.read_times[-1] == 0.75
    longer = block.weight_trajectory([0.75, 1.0])["field.0.weight"]
    assert torch.equal(longer[0], block.weight_trajectory()["field.0.weight"][-1])
    assert not torch.equal(longer[1], longer[0])


@pytest.mark.parametrize("time", [0.3, 1.25])
def test_a_time_that_is_not_on_the_grid_is_refused(time: float) -> None:
    with pytest.raises(UsageError, match=rf"read time {time} "):
        block_of("linear", NetworkEvolution).weight_trajectory([0.0, time])


@torch.no_grad()
def test_times_out_of_order_are_refused() -> None:
    with pytest.raises(UsageError, match="in ascending order"):
        block_of("linear", NetworkEvolution).weight_trajectory([1.0, 0.0])
