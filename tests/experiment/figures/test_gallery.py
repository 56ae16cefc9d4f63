"""Pictures by name, as files."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from anodev2.experiment.figures import adjoint
from anodev2.experiment.figures.gallery import GALLERY, draw
from anodev2.usage import UsageError
from written_runs import moved_network, with_checkpoint, written_run


@pytest.fixture
def drawn_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Path]]:
    """What each picture is given; the adjoint's errors are made up, as they take seconds."""
    monkeypatch.setattr(adjoint, "gradient_error", lambda block: 1 / block.coupling.z_steps)
    run = with_checkpoint(written_run(tmp_path, [0.5, 0.6]), moved_network())
    return {"kernels": [run], "curves": [run]}


@pytest.mark.parametrize("name", GALLERY)
def test_files_are_a_png_and_an_svg_with_the_same_bytes_each_time(
    tmp_path: Path, name: str, drawn_from: dict[str, list[Path]]
) -> None:
    first, second = (
        draw(name, tmp_path / place, runs=drawn_from.get(name, [])) for place in ("a", "b")
    )
    png, svg = first
    assert [png, svg] == [tmp_path / "a" / f"{name}.png", tmp_path / "a" / f"{name}.svg"]
    with Image.open(png) as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) > 300
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_method_by_name_is_drawn_in_place_of_the_two_configurations(tmp_path: Path) -> None:
    default, named = (
        draw("coupling", tmp_path / place, method=method)[1].read_text()
        for place, method in (("a", None), ("b", "anodev2-1-10-rk4"))
    )
    titles = ("configuration 1", "configuration 2", "anodev2-1-10-rk4")
    assert [f"<!-- {title}" in default for title in titles] == [True, True, False]
    assert [f"<!-- {title}" in named for title in titles] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kernel", {}, "unknown figure 'kernel': .* did you mean 'kernels'"),
        ("kernels", {}, "is drawn from runs"),
        ("advection", {"runs": [Path("r")]}, "takes no runs: kernels and curves take some"),
        ("curves", {"method": "anode", "runs": [Path("r")]}, "takes no method: coupling takes one"),
        ("coupling", {"method": "anode"}, "stay at rest"),
        ("coupling", {"method": "anodev2-3"}, "unknown method"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        draw(name, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        draw("coupling", tmp_path / "file")
