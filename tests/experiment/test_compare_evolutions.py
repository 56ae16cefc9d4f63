"""Evolutions side by side, and what a run says of its motion."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from anodev2 import CoupledODE
from anodev2.cli import main
from anodev2.evolution import ReactionDiffusionAdvection
from anodev2.experiment import compare
from anodev2.experiment.compare import compare_methods
from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.folder import run_state
from anodev2.experiment.result import Result
from anodev2.experiment.spelling import moving
from anodev2.experiment.training.checkpoints import model_weights, read_checkpoint
from anodev2.experiment.training.motion import describe_motion
from anodev2.experiment.training.run import network
from anodev2.memory import Gaussian
from anodev2.models import build_model
from anodev2.regularization import Regularization
from anodev2.solver import RK4
from anodev2.usage import UsageError
from tiny import tiny_config, tiny_data

NEW = ("evolution", "memory", "regularization", "p_rate")
"""What configurations of older runs do not say."""

EVOLUTIONS = ("rda", "linear:form=skew", "coordinate")
LABELS = ["anodev2-1", "anodev2-1 linear:form=skew", "anodev2-1 coordinate", "anode-5"]
FIELD = 2 * 16 * 16 * 9
"""Entries of the two kernels that move in resnet4."""
NUMBERS = ["160", "72", "482", ""]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three evolutions on the digits for one epoch."""
    out = tmp_path_factory.mktemp("compared")
    options = f"--methods anodev2-1 --evolutions {','.join(EVOLUTIONS)} --epochs 1"
    with pytest.raises(SystemExit) as stop:
        main(["compare", *options.split(" "), "--precision", "float32", "--out", str(out)])
    assert stop.value.code == 0
    return out


def blocks(model: nn.Module) -> list[CoupledODE]:
    return [module for module in model.modules() if isinstance(module, CoupledODE)]


def table(out: Path) -> list[dict[str, str]]:
    """The report's rows by column."""
    lines = [line for line in (out / "report.md").read_text().splitlines() if line[:1] == "|"]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def results(out: Path) -> dict[str, Result]:
    found = [Result.read(path) for path in (out / "runs").glob("*/result.json")]
    return {RunConfig(**result.config).label: result for result in found}


@pytest.mark.slow
def test_evolutions_make_one_report_with_a_row_for_each_and_one_anode(compared: Path) -> None:
    assert [row["method"] for row in table(compared)] == LABELS
    assert len(list(compared.rglob("report.md"))) == 1


@pytest.mark.slow
def test_the_report_says_how_many_numbers_move_the_weights(compared: Path) -> None:
    assert [row["p"] for row in table(compared)] == NUMBERS


@pytest.mark.slow
def test_the_report_says_how_far_the_weights_have_moved_and_the_loss_in_training(
    compared: Path,
) -> None:
    found = results(compared)
    for row in table(compared):
        result = found[row["method"]]
        distance = result.motion and f"{100 * result.motion['distance']:.1f} %"
        assert row["moved"] == (distance or "")
        assert row["train loss"] == f"{result.epochs[-1]['train_loss']:.4f}"


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_the_motion_of_a_result_is_that_of_the_trained_weights(compared: Path, label: str) -> None:
    result = results(compared)[label]
    config = RunConfig(**result.config)
    model = network(config, load_data("digits"))
    model.load_state_dict(model_weights(compared / "runs" / config.name / "checkpoints/last.ckpt"))
    (block,) = blocks(model)
    ends = block.weight_trajectory([0.0, 1.0]).values()
    moved = sum((end - start).square().sum() for start, end in ends)
    distance = (moved / sum(start.square().sum() for start, _ in ends)).sqrt().item()
    if label == "anode-5":
        assert result.motion is None
    else:
        p = sum(x.numel() for x in block.evolution.parameters())
        assert result.motion == {"p": p, "distance": pytest.approx(distance, rel=1e-5)}
        assert distance > 0


def tiny_comparison(out: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> int:
    monkeypatch.setattr(compare, "load_data", lambda name: tiny_data())
    usual = {"model": "resnet4", "methods": ["anodev2-2"], "seeds": ["0"], "data": "tiny"}
    rest = {"epochs": 1, "out": out, "order": "pre", "precision": "float32"}
    return compare_methods(**usual, **rest, **settings)


def test_results_and_configurations_of_older_runs_are_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_comparison(tmp_path, monkeypatch)
    (now, anode) = table(tmp_path)
    for folder in (tmp_path / "runs").iterdir():
        result = json.loads((folder / "result.json").read_text())
        del result["motion"]
        for key in NEW:
            del result["config"][key]
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "config.yaml").write_text(yaml.safe_dump(result["config"]))
        assert Result.read(folder / "result.json").motion is None
    monkeypatch.setattr("anodev2.experiment.training.run._fit", None)  # nothing is trained
    assert tiny_comparison(tmp_path, monkeypatch) == 0
    assert table(tmp_path) == [now | {"p": "", "moved": ""}, anode]


def test_every_rate_of_p_is_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_comparison(tmp_path, monkeypatch, evolutions=["linear"], p_rates=["3", "10", "3.0"])
    methods = [row["method"] for row in table(tmp_path)]
    assert methods == ["anodev2-2 linear", "anodev2-2 linear p-rate=10", "anode"]
    for label, factor in (("linear", 3), ("linear-p-rate-10", 10)):
        checkpoint = tmp_path / f"runs/resnet4-anodev2-2-{label}-seed0/checkpoints/last.ckpt"
        (optimizer,) = read_checkpoint(checkpoint)["optimizer_states"]
        rest, p = (group["initial_lr"] for group in optimizer["param_groups"])
        assert p == factor * rest


def test_the_recipes_rate_of_p_is_one_run_however_it_is_given() -> None:
    plain = tiny_config()
    assert tiny_config(p_rate=3.0) == tiny_config(p_rate=None) == plain
    assert tiny_config(p_rate=1.0).label == "anodev2-2 p-rate=1"
    paper = tiny_config(p_rate=1.0, recipe="paper")
    assert paper == tiny_config(recipe="paper")
    assert replace(tiny_config(method="anode"), p_rate=1.0).label == "anode"  # of older versions


def test_an_evolution_given_twice_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiny_comparison(tmp_path, monkeypatch, evolutions=["linear", " linear"]) == 0
    assert {row["method"]: row["runs"] for row in table(tmp_path)}["anodev2-2 linear"] == "1"


def test_a_mistake_in_the_last_evolution_is_found_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="unknown evolution 'linaer'"):
        tiny_comparison(tmp_path, monkeypatch, evolutions=["rda", "linaer"])
    with pytest.raises(UsageError, match=r"p_rates '1,x': expected numbers"):
        tiny_comparison(tmp_path, monkeypatch, p_rates=["1", "x"])
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_relative_distance_where_theta_is_zero_at_first_as_the_raw_integral() -> None:
    model = build_model("resnet4", moving=moving("rda", "exponential:normalize=false", "none"))
    assert describe_motion(model)["distance"] is None


# Configurations and folders.

WAYS = [
    *({"evolution": q} for q in ("rda", "linear", "linear:form=skew", "linear:rank=3", "my.Own")),
    *({"memory": k} for k in ("gaussian", "gaussian:width=0.1", "learned")),
    *({"regularization": r} for r in ("w0=1e-4", "p=1e-4", "p=1e4", "w0=1e-4:p=1e-4")),
    *({"p_rate": rate} for rate in (0.1, 1, 10)),
    {"evolution": "linear", "memory": "gaussian", "regularization": "p=1", "p_rate": 3},
    {"evolution": "linear", "memory": "gaussian", "regularization": "p=1"},
    {"evolution": "linear", "p_rate": 3},
]


def config_of(way: dict[str, object], **others: object) -> RunConfig:
    return RunConfig(**asdict(tiny_config()) | way | others)


def test_each_way_and_seed_has_a_folder_of_its_own() -> None:
    names = {config_of(way, seed=seed).name for way in WAYS for seed in (0, 1)}
    assert len(names) == 2 * len(WAYS)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_folders_name_has_nothing_that_a_shell_or_file_system_minds(way) -> None:
    assert re.fullmatch(r"[a-z0-9][\w.+-]*", config_of(way).name)


def older_run(out: Path, **changes: object) -> Path:
    """The folder of a run that was begun before weights could move in other ways."""
    folder = out / "runs" / tiny_config().name
    folder.mkdir(parents=True)
    known = {k: v for k, v in asdict(tiny_config()).items() if k not in NEW}
    (folder / "config.yaml").write_text(yaml.safe_dump(known | changes))
    return folder


def older_result(config: dict[str, object]) -> Result:
    row = {"train_loss": 1.0, "test_accuracy": 0.5}
    return Result(
        config=config,
        recipe=asdict(tiny_config().trained_by),
        data={},
        parameters=1,
        field_evaluations={"forward": 2, "backward": 0},
        seconds_per_step=None,
        precision="float32",
        epochs=[{"epoch": epoch, **row} for epoch in (1, 2, 3)],
        environment={},
    )


def test_an_older_configuration_is_that_of_the_defaults(tmp_path: Path) -> None:
    folder = older_run(tmp_path)
    assert run_state(tmp_path, tiny_config()) == "unfinished"
    older_result(yaml.safe_load((folder / "config.yaml").read_text())).write(folder / "result.json")
    assert run_state(tmp_path, tiny_config()) == "finished"


def test_a_configuration_of_another_way_is_refused_by_its_difference(tmp_path: Path) -> None:
    older_run(tmp_path, memory="gaussian")
    with pytest.raises(UsageError, match="holds a run with memory 'gaussian', not 'dirac'"):
        run_state(tmp_path, tiny_config())


def test_options_reach_the_blocks_of_the_network_that_a_run_trains() -> None:
    evolution = "rda:coefficients=filter:activation=none:solver=rk4"
    config = tiny_config(evolution=evolution, memory="gaussian:width=0.5", regularization="path=2")
    (block,) = blocks(network(config, tiny_data()))
    operator = block.evolution.get_submodule("2.weight")
    assert isinstance(operator, ReactionDiffusionAdvection)
    assert (operator.coefficients, operator.activation) == ("filter", None)
    assert operator.solver == RK4()
    assert isinstance(block.memory, Gaussian)
    assert torch.tensor(block.memory.log_width).exp() == 0.5
    assert block.regularize == Regularization(path=2.0)


def test_a_fourth_of_the_numbers_hold_the_weights_at_compression_4() -> None:
    whole, few = (
        build_model("resnet4", moving=moving(f"linear{option}", "dirac", "none"))
        for option in ("", ":compression=4")
    )
    numbers = [sum(p.numel() for p in model.parameters()) for model in (whole, few)]
    assert numbers[0] - numbers[1] == FIELD * 3 // 4
