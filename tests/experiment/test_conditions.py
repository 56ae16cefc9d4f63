"""`anodev2 optimality`: the optimality conditions of a trained run."""

from pathlib import Path

import pytest

from anodev2.cli import main

OPTIONS = ["--model", "resnet4", "--epochs", "1", "--out"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One epoch on digits of a method that moves with a learned kernel, and of the baseline."""
    folder = tmp_path_factory.mktemp("runs")
    moving = ["--memory", "gaussian:learn=true", "--recipe", "default:p_decay=0"]
    for options in (moving, ["--method", "baseline"]):
        with pytest.raises(SystemExit) as stop:
            main(["train", *options, *OPTIONS, str(folder)])
        assert stop.value.code == 0
    return folder / "runs"


def optimality(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["optimality", *arguments])
    return int(stop.value.code or 0)


@pytest.mark.slow
def test_the_report_has_a_line_a_block_with_all_three_conditions(out, capsys):
    run = out / "resnet4-anodev2-1-gaussian-learn-true-default-p_decay-0-seed0"
    assert optimality(str(run), "--images", "64") == 0
    text = capsys.readouterr().out
    assert "weight decay 0.0005 (0 of p)." in text
    table = [line for line in text.splitlines() if line.startswith("| 3 ")]
    cells = [cell.strip() for cell in table[0].strip("|").split("|")]
    assert len(cells) == 9 and all(float(cell) >= 0 for cell in cells)
    assert float(cells[3]) > 0 and float(cells[5]) > 0 and float(cells[7]) > 0


@pytest.mark.slow
def test_a_run_without_ode_blocks_is_refused(out, capsys):
    assert optimality(str(out / "resnet4-baseline-seed0")) == 2
    assert "has no ODE blocks" in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused_in_one_line(tmp_path, capsys):
    assert optimality(str(tmp_path)) == 2
    assert capsys.readouterr().err.count("\n") == 1
