"""The kernels that are drawn, and the coefficients beside them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from anodev2.block import CoupledODE
from anodev2.coupling import Coupling, configuration_1
from anodev2.evolution import LinearEvolution, ReactionDiffusionAdvection
from anodev2.experiment.figures.kernels import (
    KernelPaths,
    kernel_paths,
    kernels_figure,
    kernels_of_run,
    kernels_of_runs,
)
from anodev2.usage import UsageError
from written_runs import moved_network, with_checkpoint, written_run

FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def first_block(model: nn.Module) -> CoupledODE:
    return next(module for module in model.modules() if isinstance(module, CoupledODE))


def small_block(evolution: object, coupling: Coupling = configuration_1(5)) -> CoupledODE:
    torch.manual_seed(0)
    block = CoupledODE(
        nn.Conv2d(4, 4, 3, padding=1),
        coupling=coupling,
        evolution=evolution,  # type: ignore[arg-type]
    )
    for p in block.evolution.parameters():
        nn.init.normal_(p, std=0.1)
    return block


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return with_checkpoint(written_run(tmp_path, [0.5]), moved_network())


def test_kernels_are_those_of_the_weight_trajectory_at_the_fifths(run: Path) -> None:
    name, found = kernels_of_run(run)
    theta = first_block(moved_network()).weight_trajectory(FIFTHS)
    first = next(iter(theta.values()))
    assert name == "resnet4, anodev2-2"
    assert found.times == FIFTHS
    assert_close(found.theta, first[:, :3, 0].transpose(0, 1), rtol=0, atol=0)


def test_a_grid_without_the_fifths_is_read_at_the_points_nearest_to_them() -> None:
    two = small_block(ReactionDiffusionAdvection, configuration_1(2))
    assert kernel_paths(two).times == (0, 0.5, 1)
    sixteen = small_block(ReactionDiffusionAdvection, configuration_1(16))
    assert [16 * t for t in kernel_paths(sixteen).times] == [0, 3, 6, 10, 13, 16]


@pytest.mark.parametrize("layout", ["channel", "layer", "filter", "point"])
def test_coefficients_are_those_that_move_the_kernels_drawn(layout: str) -> None:
    rda = partial(ReactionDiffusionAdvection, activation=None)
    found = kernel_paths(small_block(partial(rda, coefficients=layout)), kernels=2)
    assert list(found.coefficients) == ["d", "v", "ρ"]
    for k, theta in enumerate(found.theta):
        q = rda((1, 1, 3, 3), coefficients="point" if layout == "point" else "layer")
        for mine, learned in zip((q.d, q.v, q.rho), found.coefficients.values(), strict=True):
            mine.data.copy_(learned[k].reshape(mine.shape))
        assert_close(q(theta[0][None, None], 0.0, 1.0)[0, 0], theta[-1])


def test_other_evolutions_have_no_coefficients() -> None:
    assert not kernel_paths(small_block(LinearEvolution)).coefficients


def pictures(networks: Mapping[str, KernelPaths]) -> list[Tensor]:
    axes = kernels_figure(networks).axes
    found = [torch.tensor(a.images[0].get_array()) for a in axes if a.images]
    return [image.float() for image in found if image.shape == (3, 3)]


def test_a_row_of_pictures_is_a_kernel_at_each_time_and_its_change() -> None:
    paths = kernel_paths(small_block(ReactionDiffusionAdvection), kernels=2)
    drawn = torch.stack(pictures({"net": paths})).reshape(2, 7, 3, 3)
    assert_close(drawn[:, :6], paths.theta)
    assert_close(drawn[:, 6], paths.theta[:, -1] - paths.theta[:, 0])


def test_coefficients_are_written_beside_the_kernels() -> None:
    paths = kernel_paths(small_block(ReactionDiffusionAdvection), kernels=2)
    written = [t.get_text() for a in kernels_figure({"net": paths}).axes for t in a.texts]
    for k in range(2):
        y, x = paths.coefficients["d"][k].tolist()
        assert written[k].startswith(f"d  {y:+.3g},  {x:+.3g}\nv ".replace("-", "−"))


def test_three_networks_are_three_groups_under_their_names(tmp_path: Path) -> None:
    folders = [
        with_checkpoint(written_run(tmp_path, [0.5], model=m), moved_network(model=m))
        for m in ("alexnet", "resnet4", "resnet10")
    ]
    found = kernels_of_runs(folders)
    names = [f"{model}, anodev2-2" for model in ("alexnet", "resnet4", "resnet10")]
    assert list(found) == names
    assert [paths.theta.shape[2:] for paths in found.values()] == [(5, 5), (3, 3), (3, 3)]
    figure = kernels_figure(found)
    assert [group.get_suptitle() for group in figure.subfigs] == names


def test_runs_of_two_seeds_keep_apart(tmp_path: Path) -> None:
    runs = [
        with_checkpoint(written_run(tmp_path, [0.5], seed=seed), moved_network()) for seed in (0, 1)
    ]
    assert len(kernels_of_runs(runs)) == 2


def test_a_folder_without_a_run_or_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        kernels_of_run(tmp_path)
    with pytest.raises(UsageError, match="holds no checkpoint"):
        kernels_of_run(written_run(tmp_path, [0.5]))


@pytest.mark.parametrize(
    "changes", [{"method": "baseline"}, {"method": "anode"}, {"evolution": "frozen"}]
)
def test_weights_at_rest_are_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    folder = written_run(tmp_path, [0.5], **changes)
    method = changes.get("method", "anode")
    model = moved_network(method)
    with pytest.raises(UsageError, match="stay at rest"):
        kernels_of_run(with_checkpoint(folder, model))


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    folder = with_checkpoint(written_run(tmp_path, [0.5]), moved_network(model="resnet10"))
    with pytest.raises(UsageError, match="is a checkpoint of another network") as caught:
        kernels_of_run(folder)
    assert "\n" not in str(caught.value)


def test_four_runs_are_refused(run: Path) -> None:
    with pytest.raises(UsageError, match=r"4 runs.*expected 1 to 3"):
        kernels_of_runs([run] * 4)


def test_rebuilding_a_network_leaves_the_random_numbers_alone(run: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    kernels_of_run(run)
    assert torch.equal(torch.rand(1), expected)
