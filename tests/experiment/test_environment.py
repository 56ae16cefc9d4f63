"""The revision that a run is trained at: of the package's own files."""

import subprocess
from pathlib import Path

import pytest

from anodev2.experiment import environment


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    found = subprocess.run(
        ["git", *who, *command], cwd=folder, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package that believes to be this one, and a folder of results."""
    package = tmp_path / "src" / "package"
    (package / "experiment").mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "results.md").write_text("old")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    place = package / "experiment" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(place))
    return tmp_path


def revision() -> object:
    return environment.describe_environment(threads=1)["git_revision"]


def test_results_that_changed_leave_the_revision_clean(repository: Path) -> None:
    (repository / "results.md").write_text("new")
    assert revision() == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_changed_or_new_file_of_the_package_makes_it_dirty(repository: Path, name: str) -> None:
    (repository / "src" / "package" / name).write_text("x = 1\n")
    assert revision() == git(repository, "rev-parse", "HEAD") + "-dirty"


def test_a_package_that_git_does_not_track_has_no_revision(repository: Path) -> None:
    git(repository, "rm", "-r", "-q", "--cached", "src")
    git(repository, "commit", "-q", "-m", "second")
    assert revision() is None
