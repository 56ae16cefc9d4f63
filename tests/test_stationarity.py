"""Residuals of the optimality conditions of a whole network."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from anodev2 import CoupledODE, configuration_1
from anodev2.stationarity import as_table, stationarity
from cases import MEMORY_KERNELS
from smooth import COUPLINGS, LINEAR, RAW, data, field, moving


def network() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [
        CoupledODE(field(), evolution=LINEAR, coupling=c, memory=m())
        for c, m in product(COUPLINGS, [MEMORY_KERNELS[0], RAW])
    ]
    return nn.Sequential(*(moving(block) for block in blocks), nn.ReLU(inplace=True))


@pytest.mark.parametrize("p_decay", [None, 0.0, 0.3])
def test_residuals_of_a_network_are_the_norms_of_its_gradients_and_weight_decay(p_decay):
    model, (z0, _) = network(), data()
    torch.manual_seed(6)
    rows = stationarity(
        model, lambda: (model(z0) + 1).square().mean(), weight_decay=0.01, p_decay=p_decay
    )
    factors = dict.fromkeys(["p", "kernel"], 0.01 if p_decay is None else p_decay) | {"w0": 0.01}
    assert all(p.grad is None for p in model.parameters())
    torch.manual_seed(6)
    (model(z0) + 1).square().mean().backward()
    for row, block in zip(rows, list(model)[:-1], strict=True):
        groups = {
            "w0": [block.get_parameter(name) for name in block.evolved],
            "p": [*block.evolution.parameters()],
            "kernel": [*block.memory.parameters()],
        }
        for group, parameters in groups.items():
            found = getattr(row, group)
            if not parameters:
                assert found is None
                continue
            total = torch.cat([(p.grad + factors[group] * p).flatten() for p in parameters])
            assert found.norm == pytest.approx(total.norm().item(), rel=1e-9)
            assert 0 < found.relative <= 1


class Noting(nn.Sequential):
    """Notes whether autocast is on wherever it runs."""

    cast: list[bool]

    def forward(self, z: Tensor) -> Tensor:
        self.cast.append(torch.is_autocast_enabled("cpu"))
        return super().forward(z)


@pytest.mark.parametrize("cast", [True, False])
def test_residuals_are_computed_under_the_autocast_state_of_the_loss(cast):
    seen = Noting.cast = []
    model = CoupledODE(Noting(*field()), evolution=LINEAR, coupling=configuration_1(2))
    z0 = data()[0].float()

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            return model(z0).float().square().mean()

    stationarity(model, loss)
    assert seen == [cast] * 6  # the loss, the forward pass of the system, and its way back


def test_residuals_for_a_z0_made_in_inference_mode_are_those_for_its_copy():
    model = network()[:1].eval()
    with torch.inference_mode():
        made, _ = data()
    found, expected = (
        stationarity(model, lambda z=z: model(z).square().mean()) for z in (made, made.clone())
    )
    assert found == expected


def test_a_block_that_does_not_run_just_once_is_named():
    model, (z0, _) = network(), data()
    with pytest.raises(ValueError, match="block '3' did not run"):
        stationarity(model, lambda: model[:3](z0).sum())
    with pytest.raises(ValueError, match="block '0' ran twice"):
        stationarity(model, lambda: model(model(z0)).sum())


def test_a_residual_is_zero_where_the_loss_does_not_depend_on_the_weights():
    w = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    model = CoupledODE(w, evolution=LINEAR, coupling=configuration_1(1)).double()
    z0 = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    (row,) = stationarity(model, lambda: model(z0).sum())
    assert row.w0.norm == 0 and row.w0.relative == 0


class Pair(nn.Module):
    """Moves the first of two tensors, and the second by it or not at all."""

    def __init__(self, *, second: bool) -> None:
        super().__init__()
        self.w = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        self.second = second

    def forward(self, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.w(z[0]), z[0] if self.second else torch.zeros_like(z[1])


@pytest.mark.parametrize("second", [True, False])
def test_a_part_of_z1_that_the_loss_does_not_read_adds_nothing(second):
    model = CoupledODE(Pair(second=second), evolution=LINEAR, coupling=configuration_1(2)).double()
    z0 = data()[0][:, :1]
    (row,) = stationarity(model, lambda: model((z0, z0))[0].square().mean())
    model((z0, z0))[0].square().mean().backward()
    assert row.w0.norm == pytest.approx(model.field.w.weight.grad.norm().item(), rel=1e-9)


def test_a_block_whose_z1_the_loss_does_not_read_has_residuals_of_weight_decay_alone():
    model, other = network()[:1], torch.ones((), requires_grad=True)
    (row,) = stationarity(model, lambda: (model(data()[0]), 2 * other)[1], weight_decay=0.5)
    w0 = torch.cat([model[0].get_parameter(name).flatten() for name in model[0].evolved])
    assert row.w0.norm == pytest.approx(0.5 * w0.norm().item(), rel=1e-9)


def test_the_report_has_a_line_for_each_block():
    model, (z0, _) = network(), data()
    table = as_table(stationarity(model, lambda: model(z0).square().mean()))
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["0", "1", "2", "3"]
