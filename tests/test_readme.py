"""The README's code runs and says what its comments say."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_as_printed_and_its_comments_hold() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), names)
    assert len(code.splitlines()) <= 15
    assert names["theta"].shape == (5, 32, 32, 3, 3)  # type: ignore[attr-defined]


def test_every_file_the_readme_shows_or_links_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
