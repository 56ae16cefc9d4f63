"""Results that do not belong to the run whose folder they lie in."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anodev2.experiment.config import RunConfig
from anodev2.experiment.folder import write_config
from anodev2.experiment.reproduction.collection import collect
from anodev2.experiment.reproduction.work import reproduce
from anodev2.experiment.result import Result
from results import result, write
from stub import Stub, work


def folder_of(out: Path, run: Result) -> Path:
    """The folder of a run that has begun."""
    folder = out / "runs" / RunConfig(**run.config).name
    write_config(folder / "config.yaml", run.config)
    return folder


def test_a_result_of_another_seed_is_left_out_and_the_run_of_its_folder_is_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, result(accuracy=70))
    path = folder_of(tmp_path, result(seed=1)) / "result.json"
    result(seed=7, accuracy=99).write(path)
    runs = collect([tmp_path])
    assert runs.accuracies("resnet4", "baseline") == pytest.approx([70])
    assert runs.unfinished == {"resnet4-baseline-seed1": "0 epochs so far"}
    assert capsys.readouterr().err == (
        f"anodev2: '{path}' is not the result of its folder's run, with seed 1, not 7; left out\n"
    )
    assert path.exists()


def test_a_result_in_a_folder_of_another_name_without_configuration_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, result())
    path = tmp_path / "runs" / "resnet4-baseline-seed1" / "result.json"
    result(seed=7).write(path)
    assert [run.config["seed"] for run in collect([tmp_path]).results] == [0]
    assert capsys.readouterr().err == (
        f"anodev2: '{path}' is not the result of its folder's run, but of "
        "'resnet4-baseline-seed7'; left out\n"
    )


def test_a_result_beside_a_configuration_that_cannot_be_read_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, result(), result(seed=1))
    (tmp_path / "runs" / "resnet4-baseline-seed1" / "config.yaml").write_text("mine")
    assert [run.config["seed"] for run in collect([tmp_path]).results] == [0]
    assert "seed1/config.yaml' is not the configuration of a run; left out" in (
        capsys.readouterr().err
    )


def test_the_words_of_older_versions_do_not_make_a_result_another_runs(tmp_path: Path) -> None:
    older = result(method="anode").config | {"precision": "auto", "p_rate": 1.0}
    folder_of(tmp_path, replace(result(method="anode"), config=older))
    write(tmp_path, result(method="anode"))
    assert len(collect([tmp_path]).results) == 1


@pytest.mark.usefixtures("quick_pictures", "quick_times")
def test_a_foreign_result_of_other_epochs_does_not_keep_reproduce_from_its_run(
    tmp_path: Path,
) -> None:
    table = replace(work(tmp_path, seeds=(0, 1)), methods=["baseline"])
    first, second = table.configs()
    reproduce(replace(table, seeds=(0,)), Stub())
    config = asdict(replace(second, epochs=3))
    foreign = replace(result(epochs=3), config=config, precision=second.precision)
    write_config(tmp_path / "runs" / second.name / "config.yaml", asdict(second))
    foreign.write(tmp_path / "runs" / second.name / "result.json")
    engine = Stub()
    assert reproduce(table, engine) == 0
    assert engine.asked == [[second.name]]
    assert len(collect([tmp_path]).results) == len([first, second])
