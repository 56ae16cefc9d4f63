"""Comparisons: which runs are made, kept and reported."""

import shutil
from pathlib import Path

import pytest

from anodev2.experiment import compare
from anodev2.experiment.compare import compare_methods, parse_numbers, with_companions
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.result import Result
from anodev2.experiment.training.run import train_run
from anodev2.models import METHODS
from anodev2.usage import UsageError
from tiny import tiny_data

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _tiny_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "load_data", lambda name: tiny_data())


def compared(
    out: Path,
    *,
    model: str = "resnet4",
    methods: str = "baseline,anodev2-2",
    seeds: str = "0,1",
) -> int:
    return compare_methods(
        model=model,
        methods=methods.split(","),
        seeds=seeds.split(","),
        data="tiny",
        epochs=1,
        out=out,
        order="pre",
        precision="float32",
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "load_data", lambda name: tiny_data())
        assert compared(out) == 0
    return out


def rows(report: Path) -> list[list[str]]:
    """The table's rows, without its head."""
    lines = [line for line in report.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_anode_at_the_same_steps_joins_the_methods_that_move() -> None:
    assert with_companions(list(METHODS)) == [*METHODS, "anode-5"]
    assert with_companions(["anodev2-2"]) == ["anodev2-2", "anode"]
    assert with_companions(["baseline", "baseline"]) == ["baseline"]


def test_each_method_and_seed_is_a_run_of_its_own(finished: Path) -> None:
    names = sorted(path.name for path in (finished / "runs").iterdir())
    assert names == sorted(
        f"resnet4-{method}-seed{seed}"
        for method in ("baseline", "anodev2-2", "anode")
        for seed in (0, 1)
    )


def test_the_report_has_a_row_a_method_with_least_most_and_average(finished: Path) -> None:
    table = rows(finished / "report.md")
    assert [row[0] for row in table] == ["baseline", "anodev2-2", "anode"]
    assert [row[1] for row in table] == ["1", "2", "2"]
    assert [row[4] for row in table] == ["1 + 0", "2 + 0", "2 + 2"]
    for row in table:
        least, most = (float(number) for number in row[9].split(" / "))
        assert float(row[10]) == pytest.approx((least + most) / 2, abs=0.01)


def test_the_report_shows_accuracy_and_a_kernel_evolving(finished: Path) -> None:
    report = (finished / "report.md").read_text()
    for picture in ("accuracy.png", "kernels.png"):
        assert f"]({picture})" in report
        assert (finished / picture).read_bytes().startswith(PNG)


def test_the_papers_numbers_stand_only_beside_cifar10(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path
) -> None:
    assert "paper: parameters" not in (finished / "report.md").read_text()
    monkeypatch.setattr(ImageData, "is_cifar10", True)
    compared(tmp_path, methods="baseline", seeds="0")
    assert rows(tmp_path / "report.md")[0][-3:] == ["7.71 K", "76.47 / 77.35", "76.95"]


def test_jpeg_copies_of_cifar10_carry_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageData, "is_cifar10", True)
    monkeypatch.setattr(ImageData, "encoding", "JPEG", raising=False)
    data = tiny_data()
    object.__setattr__(data, "encoding", "JPEG")
    monkeypatch.setattr(compare, "load_data", lambda name: data)
    compared(tmp_path, methods="baseline", seeds="0")
    assert "JPEG copies of CIFAR-10" in (tmp_path / "report.md").read_text()


def test_runs_whose_result_exists_are_kept(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted((finished / "runs").glob("*/*.*"))
    before = [(path, path.stat().st_mtime_ns) for path in files]
    assert compared(finished) == 0
    assert [(path, path.stat().st_mtime_ns) for path in files] == before


def test_a_run_that_diverges_is_reported_and_the_others_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(config, *args, **kwargs):  # type: ignore[no-untyped-def]
        if config.method == "anode":
            raise RunFailure("the loss is nan in epoch 1, step 1")
        return train_run(config, *args, **kwargs)

    monkeypatch.setattr(compare, "train_run", failing)
    assert compared(tmp_path, seeds="0") == 1
    report = (tmp_path / "report.md").read_text()
    assert "- resnet4-anode-seed0: the loss is nan in epoch 1, step 1" in report
    assert [row[0] for row in rows(tmp_path / "report.md")] == ["baseline", "anodev2-2"]
    assert "resnet4-anode-seed0: the loss is nan" in capsys.readouterr().err


def test_bad_names_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown method 'anod': .* did you mean 'anode'"):
        compared(tmp_path, methods="baseline,anod")
    with pytest.raises(UsageError, match="seeds '0,x': expected whole numbers"):
        compared(tmp_path, seeds="0,x")
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_result_is_no_result_ends_again_with_the_same_one(tmp_path: Path) -> None:
    compared(tmp_path, methods="anode", seeds="0")
    file = tmp_path / "runs/resnet4-anode-seed0/result.json"
    before = Result.read(file)
    file.write_text("{")
    assert compared(tmp_path, methods="baseline,anode", seeds="0") == 0
    assert Result.read(file) == before
    assert file.with_name("result.json.unreadable").read_text() == "{"


def test_results_without_their_checkpoints_report_the_same_with_the_picture_kept(
    tmp_path: Path,
) -> None:
    compared(tmp_path, seeds="0")
    report = (tmp_path / "report.md").read_bytes()
    picture = (tmp_path / "kernels.png").read_bytes()
    for checkpoint in (tmp_path / "runs").glob("*/checkpoints/*"):
        checkpoint.unlink()
    compared(tmp_path, seeds="0")
    assert (tmp_path / "report.md").read_bytes() == report
    assert (tmp_path / "kernels.png").read_bytes() == picture


def test_a_comparison_whose_runs_all_diverge_says_so_in_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object, **kwargs: object) -> None:
        raise RunFailure("the loss is nan in epoch 1, step 1")

    monkeypatch.setattr(compare, "train_run", failing)
    assert compared(tmp_path, methods="baseline", seeds="0") == 1
    assert "the loss is nan in epoch 1" in (tmp_path / "report.md").read_text()


def test_a_folder_with_another_comparison_is_refused_and_its_report_kept(
    finished: Path,
) -> None:
    before = (finished / "report.md").read_bytes()
    with pytest.raises(UsageError, match="holds a comparison with model 'resnet4', not 'resnet10'"):
        compared(finished, model="resnet10", methods="baseline", seeds="5")
    assert (finished / "report.md").read_bytes() == before
    assert not (finished / "runs/resnet10-baseline-seed5").exists()


def test_a_checkpoint_that_is_damaged_costs_its_picture_alone(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "runs", tmp_path / "runs")
    last = tmp_path / "runs/resnet4-anodev2-2-seed0/checkpoints/last.ckpt"
    last.write_bytes(b"junk")
    assert compared(tmp_path) == 0
    assert (tmp_path / "report.md").exists()
    assert not (tmp_path / "kernels.png").exists()
    assert f"'{last}' is not a whole checkpoint" in capsys.readouterr().err
    assert last.read_bytes() == b"junk"


def test_the_folder_of_reproduce_keeps_its_report(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("a page")
    (tmp_path / "report.md").write_text("its text")
    with pytest.raises(UsageError, match=r"is the folder of `anodev2 reproduce`.*another --out"):
        compared(tmp_path)
    assert (tmp_path / "report.md").read_text() == "its text"
    assert not (tmp_path / "runs").exists()


def test_seeds_are_taken_once_each() -> None:
    assert parse_numbers("seeds", ["0", " 2", "0"], int, "0,1,2") == [0, 2]
