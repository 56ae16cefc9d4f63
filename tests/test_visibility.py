"""What a block tells of itself: evaluations, memory, values that are not finite, its repr.

Memory is measured by this file run as a script, in a process of its own:
`python tests/test_visibility.py "Binomial(3)"` prints a report and what the system saw.
"""

import json
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from anodev2 import CoupledODE, check_finite, configuration_1
from anodev2.finite import require_finite
from anodev2.footprint import MemoryReport
from anodev2.gradient import (
    Binomial,
    Checkpoint,
    ContinuousAdjoint,
    Direct,
    Evaluations,
    GradientStrategy,
)
from anodev2.models import build_model
from anodev2.models.residual import link
from anodev2.solver import RK4
from cases import STRATEGIES
from fresh_process import forget_peak, measured, resident

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
MEASURED = {
    "Direct()": Direct(),
    "Checkpoint(1)": Checkpoint(1),
    "Checkpoint(5)": Checkpoint(5),
    "Binomial(3)": Binomial(3),
    "ContinuousAdjoint()": ContinuousAdjoint(),
}


def block(
    steps: int = 5, gradient: GradientStrategy = Direct(), field: nn.Module | None = None
) -> CoupledODE:
    field = field or nn.Sequential(*link(4, order="pre"), *link(4, order="pre"))
    return CoupledODE(field, coupling=configuration_1(steps), gradient=gradient)


def images() -> Tensor:
    return torch.randn(4, 4, 16, 16)


def test_the_repr_shows_steps_strategy_evolved_weights_and_the_size_of_p():
    text = repr(block(3, Binomial(2)))
    for part in ("3 z-steps", "Binomial(slots=2)", "field.2.weight", "field.5.weight", "p: 40"):
        assert part in text


def test_direct_keeps_as_much_for_every_step():
    five, ten, twenty = (block(n).memory_report(images()).kept for n in (5, 10, 20))
    assert abs((twenty - ten) - 2 * (ten - five)) < 0.02 * twenty


@pytest.mark.parametrize("slots", [2, 4])
def test_the_peak_of_binomial_is_flat_beyond_twenty_steps(slots):
    z0 = torch.randn(16, 4, 32, 32)
    reports = [block(n, Binomial(slots)).memory_report(z0) for n in (20, 40)]
    assert reports[1].peak < 1.1 * reports[0].peak


EVALUATIONS = {
    Direct(): (5, 0),
    Checkpoint(1): (5, 5),
    Binomial(1): (5, 3 + 5),
    Binomial(5): (5, 0),
    ContinuousAdjoint(): (5, 5),
}


@pytest.mark.parametrize(("strategy", "counts"), EVALUATIONS.items(), ids=str)
def test_a_block_counts_evaluations_of_its_forward_and_backward_pass(strategy, counts):
    subject = block(5, strategy)
    subject(images()).sum().backward()
    assert subject.evaluations == Evaluations(*counts)


def test_each_stage_of_a_solver_is_an_evaluation():
    subject = CoupledODE(nn.Conv2d(4, 4, 3, padding=1), solver=RK4(), gradient=Checkpoint(1))
    subject(images()).sum().backward()
    assert subject.evaluations == Evaluations(4 * 5, 4 * 5)


def test_before_its_first_pass_a_block_has_evaluated_nothing():
    assert block().evaluations == Evaluations(0, 0)


@every_strategy
def test_the_memory_report_leaves_gradients_buffers_modes_and_random_numbers_alone(strategy):
    subject, z0 = block(2, strategy), images()
    subject(z0).sum().backward()
    before = {n: t.clone() for n, t in state(subject, z0).items()}
    subject.memory_report(z0)
    after = state(subject, z0)
    assert after.keys() == before.keys()
    assert [n for n, tensor in after.items() if not torch.equal(tensor, before[n])] == []
    assert subject.training


def state(subject: CoupledODE, z0: Tensor) -> dict[str, Tensor]:
    """All that a pass could change."""
    gradients = {f"gradient of {n}": p.grad for n, p in subject.named_parameters()}
    return {"random": torch.get_rng_state(), "z0": z0, **gradients, **subject.state_dict()}


def test_the_memory_report_gives_no_gradient_to_z0_or_parameters_that_have_none():
    subject, z0 = block(2), images().requires_grad_()
    subject.memory_report(z0)
    assert z0.grad is None
    assert all(p.grad is None for p in subject.parameters())


def test_the_memory_report_for_a_z0_made_in_inference_mode_is_that_for_its_copy():
    subject = block(2)
    with torch.inference_mode():
        z0 = images()
    assert subject.memory_report(z0) == subject.memory_report(z0.clone())


def test_the_memory_report_prints_megabytes_or_kilobytes_and_states():
    text = str(block(5, Checkpoint(5)).memory_report(torch.randn(64, 4, 32, 32)))
    assert text.startswith("keeps 4.2 MB (4.0 states), peak ")
    assert text.endswith("a state is 1.0 MB")
    small = MemoryReport(state=2_048, kept=8_192, peak=120_000)
    assert str(small) == "keeps 8.2 kB (4.0 states), peak 0.1 MB (58.6 states); a state is 2.0 kB"


@every_strategy
def test_the_memory_report_of_an_empty_batch_counts_no_states(strategy):
    text = str(block(2, strategy).eval().memory_report(torch.randn(0, 4, 8, 8)))
    assert text.endswith("a state is 0.0 kB")
    assert "states" not in text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("strategy", MEASURED)
def test_the_memory_report_is_what_the_system_sees_within_a_tenth(strategy):
    found = measured(__file__, strategy)
    assert found["peak"] == pytest.approx(found["reported peak"], rel=0.1)
    assert found["kept and z1"] == pytest.approx(found["reported kept and z1"], rel=0.1)


@every_strategy
def test_a_weight_that_is_not_finite_is_named_with_block_step_and_time(strategy):
    model = check_finite(nn.Sequential(nn.Identity(), block(5, strategy)))
    with torch.no_grad():
        model[1].field[2].weight[0, 0, 0, 0] = torch.nan
    told = r"weight 'field.2.weight' of block '1' .* nan .* step 1 of 5, from t = 0 to 0.2"
    with pytest.raises(FloatingPointError, match=told):
        model(images())


@every_strategy
def test_an_activation_that_is_not_finite_is_named_with_block_step_and_time(strategy):
    subject = check_finite(block(5, strategy))
    with torch.no_grad():
        subject.norms[1].get_submodule("3").bias.fill_(torch.inf)
    told = r"z of block 'CoupledODE' is not finite .* step 3 of 5, from t = 0.4 to 0.6"
    with pytest.raises(FloatingPointError, match=told):
        subject(images())


@every_strategy
def test_a_z0_that_is_not_finite_is_found_in_the_first_step(strategy):
    with pytest.raises(FloatingPointError, match=r"z of block 'CoupledODE' .* step 1 of 5"):
        check_finite(block(5, strategy))(images() * torch.inf)


@every_strategy
def test_a_weight_that_its_motion_makes_infinite_is_found_where_it_is_read(strategy):
    subject = check_finite(block(5, strategy))
    with torch.no_grad():
        subject.evolution.get_submodule("5.weight").rho.fill_(torch.inf)
    with pytest.raises(FloatingPointError, match=r"weight 'field.5.weight' .* step 2 of 5"):
        subject(images())


def test_a_block_in_a_network_is_named_by_its_path():
    model = check_finite(build_model("resnet10", method="anodev2-2"))
    with torch.no_grad():
        model[6].field[2].weight.fill_(torch.inf)
    told = r"weight 'field.2.weight' of block '6' .* infinite values\) in step 1 of 2"
    with pytest.raises(FloatingPointError, match=told):
        model(torch.randn(2, 3, 32, 32))


def test_a_part_of_a_tuple_that_is_not_finite_is_named():
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return self.convolution(z[0]), z[1] / 0

    with pytest.raises(FloatingPointError, match=r"part 1 of z of .* step 1 of 5"):
        check_finite(CoupledODE(Pair()))((images(), images()))


@pytest.mark.parametrize(
    ("value", "kind"), [(complex("nan"), "nan"), (complex(0, torch.inf), "infinite")]
)
def test_a_complex_value_that_is_not_finite_is_found(value, kind):
    require_finite("0", 0, 5, [("z", torch.tensor([1j]))])
    with pytest.raises(FloatingPointError, match=f"z of block '0' .* holds {kind} values"):
        require_finite("0", 0, 5, [("z", torch.tensor([1j, value]))])


def test_an_activation_that_is_not_finite_is_found_by_the_continuous_adjoint_too():
    with pytest.raises(FloatingPointError):
        check_finite(block(5, ContinuousAdjoint()))(images() * torch.nan)


@every_strategy
def test_the_check_changes_no_bit(strategy):
    subject = block(3, strategy)
    z0, again = (images_of_seed().requires_grad_() for _ in range(2))
    subject(z0).square().sum().backward()
    check_finite(subject)(again).square().sum().backward()
    assert torch.equal(z0.grad, again.grad)


def images_of_seed() -> Tensor:
    return torch.randn(4, 4, 16, 16, generator=torch.Generator().manual_seed(0))


class Operations(TorchDispatchMode):
    """The names of the operations inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def operations(subject: CoupledODE) -> list[str]:
    with Operations() as seen:
        subject(images()).sum().backward()
    return seen.names


def test_the_check_costs_no_operation_once_it_is_off():
    never, once = block(), check_finite(check_finite(block()), enabled=False)
    assert operations(never) == operations(once)
    assert len(operations(check_finite(block()))) > len(operations(never))


def test_the_check_is_off_by_default_and_can_be_taken_off():
    for subject in (block(), check_finite(check_finite(block()), enabled=False)):
        subject(images() * torch.nan)


if __name__ == "__main__":
    torch.set_num_threads(1)
    field = build_model("resnet4", method="anodev2-1")[3].field
    subject = block(10, MEASURED[sys.argv[1]], field).to(memory_format=torch.channels_last)
    z0 = torch.randn(64, 16, 32, 32).to(memory_format=torch.channels_last).requires_grad_()
    report = subject.memory_report(z0)
    for _ in range(2):  # the first warms up
        subject.zero_grad()
        z0.grad = None
        before = resident("VmRSS")
        forget_peak()
        z1 = subject(z0)
        kept = resident("VmRSS") - before
        z1.backward(torch.ones_like(z1))
        peak = resident("VmHWM") - before
        del z1
    reported = {"reported peak": report.peak, "reported kept and z1": report.kept + report.state}
    print(json.dumps({"peak": peak, "kept and z1": kept, **reported}))
