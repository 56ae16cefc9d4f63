"""The network of a run: from its own last checkpoint and from no other's."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from anodev2.experiment.conditions import report_conditions
from anodev2.experiment.damaged import Damaged
from anodev2.experiment.figures.kernels import kernels_of_run
from anodev2.experiment.trained import configuration, trained_network
from anodev2.usage import UsageError
from written_runs import moved_network, with_checkpoint, written_run


def with_words(out: Path, *, run: dict[str, object], recipe: dict[str, object]) -> Path:
    """A run whose checkpoint says what it is of; what is given differs from the run itself."""
    folder = written_run(out, [0.5])
    own = configuration(folder)
    says = {"run": asdict(own) | run, "recipe": asdict(own.trained_by) | recipe}
    return with_checkpoint(folder, moved_network(), **says)


def test_a_checkpoint_that_names_its_run_is_that_runs_network(tmp_path: Path) -> None:
    model = trained_network(with_words(tmp_path, run={}, recipe={}))
    expected = moved_network().state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_a_checkpoint_of_an_older_version_names_no_run_and_is_the_folders(tmp_path: Path) -> None:
    model = trained_network(with_checkpoint(written_run(tmp_path, [0.5]), moved_network()))
    assert torch.equal(model.state_dict()["0.weight"], moved_network().state_dict()["0.weight"])


FOREIGN = {
    "of another seed": ({"seed": 7}, {}, "is a checkpoint of another run: with seed 7, not 0"),
    "of other epochs": ({"epochs": 9}, {}, "is a checkpoint of another run: with epochs 9, not 3"),
    "of other numbers": (
        {},
        {"warmup": 2.0},
        "is a checkpoint of a run trained when the recipe 'default' had warmup 2.0, not 1.0",
    ),
}


@pytest.mark.parametrize(("run", "recipe", "told"), FOREIGN.values(), ids=FOREIGN)
def test_a_checkpoint_of_another_run_is_refused_by_name_and_left_where_it_is(
    tmp_path: Path, run: dict[str, object], recipe: dict[str, object], told: str
) -> None:
    folder = with_words(tmp_path, run=run, recipe=recipe)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(Damaged) as refused:
        trained_network(folder)
    assert str(refused.value) == f"'{folder}/checkpoints/last.ckpt' {told}"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_kernels_and_optimality_refuse_a_checkpoint_of_another_run_in_one_line(
    tmp_path: Path,
) -> None:
    folder = with_words(tmp_path, run={"seed": 7}, recipe={})
    line = r"^[^\n]*last\.ckpt' is a checkpoint of another run: with seed 7, not 0$"
    with pytest.raises(UsageError, match=line):
        kernels_of_run(folder)
    with pytest.raises(UsageError, match=line):
        report_conditions(folder, None, 64)
