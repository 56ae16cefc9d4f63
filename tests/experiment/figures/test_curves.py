"""Accuracy and loss over epochs, with bands over seeds."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection

from anodev2.experiment.figures.curves import (
    OWN_COLOUR,
    band,
    curves_of_runs,
    line_styles,
    training_curves,
)
from anodev2.experiment.result import SHOWN
from anodev2.experiment.trained import configuration, run_folders
from anodev2.usage import UsageError
from written_runs import with_result, written_run


def comparison(out: Path) -> Path:
    """Three seeds of one method, one of another."""
    for seed, accuracies in enumerate(([0.2, 0.5, 0.6], [0.1, 0.6, 0.7], [0.3, 0.4, 0.5])):
        written_run(out, accuracies, seed=seed)
    written_run(out, [0.3, 0.4, 0.55], method="baseline")
    return out


def test_a_band_is_from_the_least_to_the_most_about_the_mean() -> None:
    least, mean, most = band([[1.0, 5.0], [3.0, 4.0], [2.0, 9.0]])
    assert (least, mean, most) == ([1, 4], [2, 6], [3, 9])


def test_runs_that_differ_in_the_seed_alone_share_a_curve(tmp_path: Path) -> None:
    curves = curves_of_runs(run_folders([comparison(tmp_path)]))
    assert list(curves) == ["test_accuracy", "train_loss", "test_loss"]
    assert curves["test_accuracy"]["baseline"] == [[0.3, 0.4, 0.55]]
    assert curves["test_accuracy"]["anodev2-2"] == [
        [0.2, 0.5, 0.6],
        [0.1, 0.6, 0.7],
        [0.3, 0.4, 0.5],
    ]
    assert curves["train_loss"]["baseline"] == [pytest.approx([0.7, 0.6, 0.45])]
    assert curves["test_loss"]["baseline"] == [pytest.approx([1.7, 1.6, 1.45])]


def test_lines_and_bands_of_every_panel_are_mean_least_and_most(tmp_path: Path) -> None:
    curves = curves_of_runs(run_folders([comparison(tmp_path)]))
    panels = training_curves(curves).axes
    names = ("test_accuracy", "test_accuracy", "train_loss", "test_loss")
    for axes, name in zip(panels, names, strict=True):
        factor = 100 if name == "test_accuracy" else 1
        least, mean, most = (np.array(part) * factor for part in band(curves[name]["anodev2-2"]))
        (line,) = [x for x in axes.lines if str(x.get_label()).startswith("anodev2-2")]
        assert line.get_ydata() == pytest.approx(mean)
        (filled,) = [c for c in axes.collections if isinstance(c, FillBetweenPolyCollection)]
        corners = filled.get_paths()[0].vertices
        for epoch in (1, 2, 3):
            at = corners[corners[:, 0] == epoch, 1]
            assert at.min() == pytest.approx(least[epoch - 1])
            assert at.max() == pytest.approx(most[epoch - 1])


def test_a_single_epoch_is_a_point_and_a_bar_for_each_method_side_by_side() -> None:
    runs = {"baseline": [[0.2], [0.4]], "anode": [[0.2], [0.4]]}
    (axes, *_) = training_curves(dict.fromkeys(SHOWN, runs)).axes
    places = [float(line.get_xdata()[0]) for line in axes.lines]
    assert places == [0.75, 1.25]
    bars = [collection.get_segments()[0] for collection in axes.collections]
    assert [bar[:, 0].tolist() for bar in bars] == [[0.75, 0.75], [1.25, 1.25]]
    assert all(bar[:, 1].tolist() == [20, 40] for bar in bars)
    assert [tick for tick in axes.get_xticks() if 0.5 < tick < 1.5] == [1]


def test_seeds_that_have_come_less_far_end_the_band(tmp_path: Path) -> None:
    runs = [written_run(tmp_path, [0.1] * (3 - seed), seed=seed) for seed in (0, 1)]
    assert curves_of_runs(runs)["test_loss"]["anodev2-2"] == [[1.9, 1.9], [1.9, 1.9]]


def test_a_run_that_has_come_less_far_says_at_which_epoch_it_is(tmp_path: Path) -> None:
    written_run(tmp_path, [0.3, 0.4, 0.55], method="baseline")
    written_run(tmp_path, [0.3, 0.4])
    panel = training_curves(curves_of_runs(run_folders([tmp_path]))).axes[0]
    assert sorted(str(line.get_label()) for line in panel.lines) == [
        "anodev2-2 (40.00 %, epoch 2)",
        "baseline (55.00 %)",
    ]
    assert panel.get_xlim() == (0.5, 3.5)


def test_what_differs_between_runs_is_in_their_names(tmp_path: Path) -> None:
    runs = [
        written_run(tmp_path, [0.1], model="resnet4"),
        written_run(tmp_path, [0.1], model="resnet10"),
        written_run(tmp_path, [0.1], model="resnet10", method="anodev2-1"),
    ]
    assert list(curves_of_runs(runs)["test_loss"]) == [
        "anodev2-2 resnet4",
        "anodev2-2 resnet10",
        "anodev2-1 resnet10",
    ]


def test_losses_that_fall_far_have_a_logarithmic_scale() -> None:
    accuracy = {"m": [[0.5, 0.6]]}
    far, near = {"m": [[2.0, 0.01]]}, {"m": [[2.0, 1.0]]}
    panels = training_curves({"test_accuracy": accuracy, "train_loss": far, "test_loss": near}).axes
    assert [axes.get_yscale() for axes in panels[2:]] == ["log", "linear"]


def test_a_loss_that_ends_far_above_the_best_leaves_the_axis_to_the_others() -> None:
    runs = {"baseline": [[2.0, 0.9]], "anode": [[1.9, 0.8]], "neural-ode": [[90.0, 1.9]]}
    panel = training_curves(dict.fromkeys(SHOWN, runs)).axes[2]
    assert panel.get_title() == "beyond the axis: neural-ode"
    assert panel.get_ylim() == pytest.approx((0.76, 2.1))
    assert panel.get_yscale() == "linear"


def test_one_run_twice_is_refused(tmp_path: Path) -> None:
    runs = [written_run(tmp_path / place, [0.1]) for place in ("here", "there")]
    with pytest.raises(UsageError, match="hold the same run"):
        curves_of_runs(runs)


def test_a_run_without_an_epoch_is_refused(tmp_path: Path) -> None:
    folder = written_run(tmp_path, [0.1])
    (folder / "metrics.csv").unlink()
    with pytest.raises(UsageError, match="has finished no epoch"):
        curves_of_runs([folder])


@pytest.mark.parametrize("text", ["epoch,train_loss\n1,2\n", "train_loss,test_loss\nx,y\n", "\0"])
def test_figures_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    folder = written_run(tmp_path, [0.1])
    (folder / "metrics.csv").write_text(text)
    with pytest.raises(UsageError) as caught:
        curves_of_runs([folder])
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_result_of_another_run_is_no_curve_of_this_one(tmp_path: Path) -> None:
    folder = with_result(written_run(tmp_path, [0.1]))
    assert [len(run) for run in curves_of_runs([folder])["train_loss"]["anodev2-2"]] == [3]
    with_result(folder, seed=7)
    with pytest.raises(UsageError, match=r"result.json' is the result of another run, with seed 7"):
        curves_of_runs([folder])


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run: expected a folder such as"):
        run_folders([tmp_path])


def test_a_folder_of_runs_for_a_run_is_refused_with_one_in_it(tmp_path: Path) -> None:
    one = written_run(tmp_path, [0.1])
    with pytest.raises(UsageError, match=f"name one of those in it, such as '{one}'"):
        configuration(tmp_path)


def test_a_method_has_its_colour_whatever_stands_beside_it() -> None:
    alone = line_styles(["anode"])
    assert line_styles(["baseline", "mine", "anode"])[2:] == alone
    many = [*OWN_COLOUR, *(f"mine {k}" for k in range(10))]
    assert len(set(line_styles(many))) == len(many)
