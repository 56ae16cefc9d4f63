"""What a reader of the Markdown sees is what the report says."""

import re
from html import unescape

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from anodev2.experiment.reproduction.columns import number, numeric
from anodev2.experiment.reproduction.document import Claim, Document, Picture, Section, Table
from anodev2.experiment.reproduction.markdown import as_markdown
from report_example import CLAIMS, COLUMNS, NASTY, REPORT

ANY_TEXT = st.text("ab1 \\`*_{}[]()<>#+-.!|~&;:=$\"'/?\n", min_size=1).filter(str.strip)


def shown(document: Document) -> str:
    """A report's Markdown as HTML, by the rules that GitHub's are made of."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return reader.render(as_markdown(document))


def texts(html: str, tag: str) -> list[str]:
    found = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", html, re.DOTALL)
    return [unescape(text).strip() for text in found]


def one_line(text: str) -> str:
    return " ".join(text.split())


@given(ANY_TEXT)
@example(NASTY)
def test_a_cell_a_heading_and_a_caption_show_any_text_as_it_is(text: str):
    table = Table(["name", text], [["a", text], [text, "b"]])
    html = shown(Document(text, "s", [Section(text, [table, Picture("p", text)])]))
    expected = one_line(text)
    assert texts(html, "td") == ["a", expected, expected, "b"]
    assert [texts(html, tag)[-1] for tag in ("h1", "h2", "th")] == [expected] * 3
    assert [unescape(text) for text in re.findall(r'alt="([^"]*)"', html)] == [expected]


@given(ANY_TEXT.filter(lambda text: "`" not in text))
@example(NASTY.replace("`", ""))
def test_a_paragraph_and_a_claim_show_any_text_as_it_is(text: str):
    claims = [Claim(text, "holds here", text)]
    html = shown(Document("t", text, [Section("s", [text, claims])]))
    expected = one_line(text)
    assert texts(html, "p") == [expected] * 2
    (item,) = re.findall(r"<li>(.*)</li>", html, re.DOTALL)
    above, below = item.split("<br />\n")
    assert unescape(above) == f"<strong>holds here</strong>: {expected}".rstrip()
    assert unescape(below) == expected


def test_backticks_make_code_in_paragraphs_only():
    cell = Table(["name", "value"], [["`a`", "`b`"]])
    html = shown(Document("t", "see `a_*b|` here", [Section("s", [cell])]))
    assert texts(html, "p") == ["see <code>a_*b|</code> here"]
    assert texts(html, "td") == ["`a`", "`b`"]


def test_columns_of_numbers_are_aligned_to_the_right():
    lines = as_markdown(REPORT).splitlines()
    heading = lines.index(f"| {' | '.join(COLUMNS)} |")
    assert lines[heading + 1] == "| --- |" + " ---: |" * (len(COLUMNS) - 1)
    words = lines.index("| what | value |")
    assert lines[words + 1] == "| --- | --- |"


def test_pictures_are_links_to_the_files_beside_the_report():
    link = "![A convolution kernel evolving](figures/kernels-resnet4.png)"
    assert link in as_markdown(REPORT).splitlines()


def test_each_claim_has_its_verdict_in_bold_and_its_evidence_under_it():
    html = shown(REPORT)
    items = [unescape(item) for item in re.findall(r"<li>(.*?)</li>", html, re.DOTALL)]
    assert [re.sub("</?code>", "`", item) for item in items] == [
        f"<strong>{claim.verdict}</strong>: {claim.text}<br />\n{claim.evidence}"
        for claim in CLAIMS
    ]


def test_a_number_is_read_from_every_form_of_cell():
    numbers = {
        "88.59 / 88.96": 88.59,
        "1,756.68": 1756.68,
        "+0.73": 0.73,
        "−0.2 ± 0.5": -0.2,
        "-0.2 [−0.7, 0.3]": -0.2,
        "12 %": 12.0,
        "5 + 0": 5.0,
        "1e-05": 1e-5,
        "< 0.01": 0.01,
        "2.1×": 2.1,
        "40 s": 40.0,
        "12 min": 720.0,
        "2 h 10 min": 7800.0,
        "2 d 03 h": 183600.0,
        "3 of 5": 3.0,
    }
    assert {cell: number(cell) for cell in numbers} == numbers


def test_text_with_numbers_in_it_is_text():
    cells = ["", "—", "anode-5", "3.11.7", "2.13.0+cpu", "2026-11-28", "71ff372", "0:99:99"]
    assert [cell for cell in cells if number(cell) is not None] == []


def test_a_column_holds_numbers_where_most_cells_that_say_something_do():
    rows = [["1", "1", "5", ""], ["2", "not measured", "—", ""], ["3", "2", "", ""]]
    assert numeric(Table(["a", "b", "c", "d"], rows)) == [False, True, True, False]
