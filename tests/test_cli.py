"""The command line: help, configuration files, and one line for each mistake."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from anodev2.cli import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error that a command ends with, at status 2."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


MISTAKES = {
    "model": (["train", "--model", "resnet5"], "unknown model 'resnet5'", "'resnet4'"),
    "method": (["train", "--method", "anod"], "unknown method 'anod'", "'anode'"),
    "steps": (["train", "--method", "anode-0"], "expected at least 1", "anode-5"),
    "data": (["train", "--data", "digit"], "unknown data 'digit'", "'digits'"),
    "folder": (["train", "--data", "./nowhere"], "no such folder './nowhere'", "folder"),
    "epochs": (["train", "--epochs", "-3"], "epochs must be at least 1, got -3", ""),
    "seed": (["train", "--seed", "-1"], "seed must be at least 0", "got -1"),
    "large seed": (["train", "--seed", "5000000000"], "below 2^32", "got 5000000000"),
    "out": (["train", "--out", "/dev/null/x"], "cannot write to '/dev/null/x", "a folder"),
    "seed text": (["train", "--seed", "one"], "got 'one'", "seed must be a whole number"),
    "rate text": (["train", "--p-rate", "x"], "got 'x'", "p_rate must be a number"),
    "order": (["train", "--order", "pree"], "unknown order 'pree'", "'pre'?"),
    "precision": (
        ["train", "--precision", "float16"],
        "unknown precision 'float16'",
        "'bfloat16'?",
    ),
    "option": (["train", "--sede", "3"], "--sede 3", "'--seed'"),
    "epochs text": (["train", "--epochs", "x y"], "got 'x y'", "epochs must be a whole number"),
    "other command's": (["train", "--seeds", "3"], "--seeds 3", "did you mean '--seed'?"),
    "command": (["tran"], "'tran'", "did you mean 'train'?"),
    "no command": ([], "", "{train,compare,reproduce,report,figures"),
    "config": (["train", "--config", "none.yaml"], "none.yaml", ""),
    "methods": (["compare", "--methods", "baseline,anodev2"], "unknown method 'anodev2'", "'ano"),
    "seeds": (["compare", "--seeds", "0;1"], "seeds '0;1'", "0,1,2"),
    "table": (["reproduce", "acuracy-1"], "unknown table 'acuracy-1'", "'accuracy-1'"),
    "engine": (["reproduce", "all", "--engine", "rai"], "unknown engine 'rai'", "'ray'"),
    "processes": (["reproduce", "all", "--processes", "0"], "processes must be at least 1", "0"),
    "other engine's": (["reproduce", "all", "--gpus", "1"], "gpus are for --engine ray", ""),
    "network": (
        ["reproduce", "all", "--models", "resnet5"],
        "unknown model 'resnet5'",
        "'resnet4'",
    ),
    "row": (["reproduce", "steps", "--methods", "baseline"], "method of the table steps", ""),
    "no runs": (["report", "nowhere"], "'nowhere' does not exist", "runs/*/result.json"),
    "no folder of runs": (["report", __file__], "is a file: expected a folder", "result.json"),
    "folder of runs": (["optimality", "."], "'.' holds no run", "out/runs/"),
    "no folder": (["report", ","], "folders ','", "at least one"),
    "no models": (["reproduce", "all", "--models", " "], "models ' '", "separated by commas"),
    "figure": (["figures", "advecton"], "unknown figure 'advecton'", "'advection'"),
    "figure's runs": (["figures", "kernels"], "is drawn from runs", "resnet4-anodev2-1-seed0"),
    "dashes": (["train", "--num-nods", "2"], "--num_nods", "'--num_nodes'"),
    "resume": (["train", "--resume"], "nothing to resume", "without --resume"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_what_was_given_and_what_was_expected(
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, given, expected = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *arguments)
    assert given in line
    assert expected in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--resume"],  # train's
        ["optimality", "--out", "x"],
        ["figures", "--memory", "x"],
        ["report", "--sedes", "3"],
        ["train", "--compar"],  # a command's name is no option
    ],
)
def test_what_is_close_to_no_option_of_the_command_has_no_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "did you mean" not in refused(capsys, *arguments)


def test_an_unknown_key_of_a_configuration_file_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("sede: 3\n")
    line = refused(capsys, "train", "--config", str(tmp_path / "c.yaml"))
    assert "'sede'" in line
    assert "did you mean 'seed'?" in line


def test_images_of_another_size_are_refused_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    for split in ("train", "test"):
        for label in ("cat", "dog"):
            (tmp_path / "data" / split / label).mkdir(parents=True)
            Image.new("RGB", (28, 28)).save(tmp_path / "data" / split / label / "0.png")
    monkeypatch.setenv("ANODEV2_CACHE", str(tmp_path / "cache"))
    line = refused(capsys, "train", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "o"))
    assert "are 28x28: resnet4 takes 32x32" in line
    assert not (tmp_path / "o").exists()


def test_printing_the_configuration_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--seed", "7", "--print_config"])
    assert stop.value.code == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "model": "resnet4",
        "method": "anodev2-1",
        "data": "digits",
        "epochs": None,
        "seed": 7,
        "out": "out",
        "order": "pre",
        "precision": "auto",
        "evolution": "rda",
        "memory": "dirac",
        "regularization": "none",
        "p_rate": None,
        "recipe": "default",
        "devices": 1,
        "num_nodes": 1,
        "resume": False,
    }


def test_a_configuration_file_sets_options_and_the_command_line_overrides_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("seed: 3\nmethod: anode\n")
    config = ["--config", str(tmp_path / "c.yaml")]
    with pytest.raises(SystemExit):
        main(["train", *config, "--seed", "5", "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["seed"], found["method"]) == (5, "anode")


def test_help_answers_within_a_second_and_without_torch() -> None:
    code = (
        "import sys\nfrom anodev2.cli import main\n"
        "try: main(['train', '--help'])\nfinally: print('torch' in sys.modules)"
    )
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        seconds.append(time.perf_counter() - start)
    assert done.stdout.endswith("False\n")
    assert "--method" in done.stdout
    assert "<class" not in done.stdout
    assert min(seconds) < 1


def test_an_options_name_may_have_dashes_and_its_value_stays_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--num-nodes", "2", "--p-rate=3", "--out=a-b"]
    with pytest.raises(SystemExit):
        main(["train", *options, "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)
    assert [found[key] for key in ("num_nodes", "p_rate", "out")] == [2, 3.0, "a-b"]
