"""The report's page, in headless Chromium.

Skipped where there is no Chromium, unless ANODEV2_CHROMIUM=required.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from anodev2.experiment.reproduction.document import Claim, Document, Picture, Section, Table
from anodev2.experiment.reproduction.page import as_page
from report_example import CLAIMS, COLUMNS, NASTY, REPORT, accuracy, draw

DESKTOP, PHONE = (1200, 900), (360, 800)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
COMMITTED = Path(__file__).parents[3] / "results/reproduction/report.html"
VALUES = ["88.59 / 88.96", "1,756.68 K", "+0.73", "", "−0.2 ± 0.5", "12 %", "not measured", "−31"]
NAMES = ["anode-10", "anode-2", "b", "a", "e", "d", "c", "neural"]
MIXED = Document(
    "t", "s", [Section("s", [Table(["name", "x"], list(zip(NAMES, VALUES, strict=True)))])]
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None and os.environ.get("ANODEV2_CHROMIUM") != "required":
        pytest.skip("no chromium on the PATH")
    assert chromium is not None, "ANODEV2_CHROMIUM=required, but there is no chromium on the PATH"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return written(REPORT, folder, draw(folder))


@pytest.fixture(params=["example", "committed"])
def either(request: pytest.FixtureRequest, report: Path) -> Path:
    """The example, and the report of the runs in `results/`."""
    return report if request.param == "example" else COMMITTED


def written(document: Document, folder: Path, pictures: dict[str, str] | None = None) -> Path:
    path = folder / "report.html"
    path.write_text(as_page(document, pictures or {}), encoding="utf-8")
    return path


@contextmanager
def opened(
    browser: Browser, path: Path, size: tuple[int, int] = DESKTOP, *, script: bool = True
) -> Iterator[tuple[Page, list[str]]]:
    """A page and what it complained of or asked for beyond its own file and data."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, java_script_enabled=script
    )
    page = context.new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: noise.append(request.url))
    page.goto(path.as_uri())
    known = ("data:", path.as_uri())
    yield page, [line for line in noise if not line.startswith(known)]
    context.close()


def column(table: Locator, position: int) -> list[str]:
    return table.locator(f"tbody tr > :nth-child({position})").all_text_contents()


def test_the_page_loads_without_complaint_and_asks_for_nothing_but_itself(browser, either):
    pictures = either.read_text(encoding="utf-8").count("<figure")
    with opened(browser, either) as (page, noise):
        widths = page.eval_on_selector_all("img", "all => all.map(i => i.naturalWidth)")
        assert len(widths) == pictures > 1
        assert min(widths) > 0
        assert noise == []


def test_what_the_page_would_ask_of_another_place_is_refused(browser, report, tmp_path):
    asked = '<img src="https://example.org/a.png"><script src="https://example.org/a.js"></script>'
    path = tmp_path / "asks.html"
    path.write_text(report.read_text(encoding="utf-8").replace("<h1>", asked + "<h1>"))
    with opened(browser, path) as (_, noise):
        refused = [line for line in noise if "Content Security Policy" in line]
    assert len(refused) == 2


def test_a_phone_shows_the_page_at_its_width_in_letters_of_16_pixels(browser, either):
    with opened(browser, either, PHONE) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        smallest = page.evaluate(
            "Math.min(...[...document.body.querySelectorAll('*')]"
            ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert smallest >= 16


def test_every_column_of_every_table_can_be_brought_into_sight_on_a_phone(browser, report):
    with opened(browser, report, PHONE) as (page, _):
        boxes = page.locator(".table").all()
        assert len(boxes) == 4
        for box in boxes:
            names = box.locator("thead th").first.bounding_box()
            for heading in box.locator("thead th").all()[1:]:
                heading.evaluate("h => h.scrollIntoView({inline: 'end'})")
                place = heading.bounding_box()
                assert place["x"] >= names["x"] + names["width"]
                assert place["x"] + place["width"] <= PHONE[0]
            assert page.evaluate("window.scrollX") == 0


def test_arrow_keys_scroll_a_table_on_a_phone(browser, report):
    with opened(browser, report, PHONE) as (page, _):
        box = page.locator(".table").first
        box.focus()
        page.keyboard.press("ArrowRight")
        for _ in range(100):  # it scrolls smoothly; the page's policy forbids a watching function
            page.wait_for_timeout(50)
            if box.evaluate("box => box.scrollLeft") > 0:
                return
        pytest.fail("the table did not scroll")


def test_rows_keep_their_name_in_sight_while_a_table_scrolls(browser, report):
    with opened(browser, report, PHONE) as (page, _):
        box = page.locator(".table").first
        before = box.locator("tbody th").first.bounding_box()["x"]
        box.evaluate("box => box.scrollLeft = box.scrollWidth")
        assert box.evaluate("box => box.scrollLeft") > 300
        assert box.locator("tbody th").first.bounding_box()["x"] == before


def test_a_heading_sorts_numbers_as_numbers_and_a_second_click_turns_them_round(browser, tmp_path):
    numbers = ["−31", "−0.2 ± 0.5", "+0.73", "12 %", "88.59 / 88.96", "1,756.68 K"]
    with opened(browser, written(MIXED, tmp_path)) as (page, _):
        table, heading = page.locator("table"), page.locator("thead th").nth(1)
        assert column(table, 2) == VALUES
        heading.get_by_role("button").click()
        assert column(table, 2) == [*numbers, "not measured", ""]
        assert heading.get_attribute("aria-sort") == "ascending"
        heading.get_by_role("button").click()
        assert column(table, 2) == [*reversed(numbers), "not measured", ""]
        assert heading.get_attribute("aria-sort") == "descending"
        pairs = zip(column(table, 1), column(table, 2), strict=True)
        assert sorted(pairs) == sorted(zip(NAMES, VALUES, strict=True))


def test_the_first_column_sorts_as_text_and_takes_the_mark_of_the_other(browser, tmp_path):
    with opened(browser, written(MIXED, tmp_path)) as (page, _):
        first, second = page.locator("thead th").all()
        second.get_by_role("button").click()
        first.get_by_role("button").click()
        expected = ["a", "anode-2", "anode-10", "b", "c", "d", "e", "neural"]
        assert column(page.locator("table"), 1) == expected
        assert first.get_attribute("aria-sort") == "ascending"
        assert second.get_attribute("aria-sort") is None


def test_enter_and_space_sort_as_a_click_does(browser, tmp_path):
    with opened(browser, written(MIXED, tmp_path)) as (page, _):
        page.keyboard.press("Tab")  # the contents
        for _tab in range(3):  # the table's box, the first heading, the second
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert column(page.locator("table"), 2)[0] == "−31"
        page.keyboard.press("Space")
        assert column(page.locator("table"), 2)[0] == "1,756.68 K"


def test_one_table_sorts_without_the_others(browser, report):
    with opened(browser, report) as (page, _):
        alexnet, resnet4 = page.locator("table").all()[:2]
        alexnet.get_by_role("button", name="average", exact=True).click()
        assert column(alexnet, 1)[-1] == "neural-ode"  # not measured there
        assert column(resnet4, 1) == [row[0] for row in accuracy("resnet4").rows]


def test_the_last_numbers_of_every_table_sort_both_ways_and_no_other_table_with_them(
    browser, either
):
    with opened(browser, either) as (page, _):
        tables = page.locator("table:has(th.number)").all()
        assert len(tables) > 2
        for table in tables:
            others = page.locator("table").all_text_contents()
            heading = table.locator("thead th.number").last
            place = heading.evaluate("h => h.cellIndex + 1")
            cells = table.locator(f"tbody tr > :nth-child({place})[data-number]")
            for turned in (False, True):
                heading.get_by_role("button").click()
                found = cells.evaluate_all("all => all.map(c => Number(c.dataset.number))")
                assert found == sorted(found, reverse=turned)
            now = page.locator("table").all_text_contents()
            assert sum(a != b for a, b in zip(others, now, strict=True)) <= 1


@pytest.mark.parametrize("script", [True, False])
def test_all_that_the_report_says_is_there_with_scripts_and_without(browser, report, script):
    with opened(browser, report, script=script) as (page, _):
        said = " ".join(page.locator("main").inner_text().split())
        second = page.locator("table").first.locator("tr").nth(2).locator("th, td")
        cells = second.all_text_contents()
        alts = [image.get_attribute("alt") for image in page.locator("img").all()]
        assert page.locator("thead button").count() == (32 if script else 0)
    for section in REPORT.sections:
        assert section.title in said
    for claim in CLAIMS:
        assert f"{claim.verdict} {claim.text} {claim.evidence}".replace("`", "") in said
    assert cells == list(accuracy("alexnet").rows[1])
    assert all(name in said for name in COLUMNS)
    assert alts == ["Test accuracy of ResNet-4 after each epoch", "A convolution kernel evolving"]


def test_the_contents_lead_to_every_section(browser, report):
    with opened(browser, report, PHONE) as (page, _):
        for section in REPORT.sections:
            page.get_by_role("navigation").get_by_role("link", name=section.title).click()
            heading = page.get_by_role("heading", name=section.title, exact=True)
            assert 0 <= heading.bounding_box()["y"] < PHONE[1]


def test_text_that_looks_like_html_is_shown_as_it_is(browser, tmp_path):
    claims = [Claim(NASTY, "not measured", NASTY)]
    parts = [NASTY, Table([NASTY, NASTY], [[NASTY, NASTY]]), Picture("p", NASTY), claims]
    document = Document(NASTY, NASTY, [Section(NASTY, parts)])
    pictures = {"p": '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'}
    with opened(browser, written(document, tmp_path, pictures)) as (page, noise):
        assert page.title() == NASTY
        plain = "h1, h2, nav a, thead button, tbody th, td, figcaption"
        assert page.locator(plain).all_text_contents() == [NASTY] * 8
        prose = NASTY.replace("`", "")
        texts = page.locator("main p:not(:has(.verdict))").all_text_contents()
        assert [text.strip() for text in texts] == [prose] * 4
        assert page.locator("code").all_text_contents() == ["ticks"] * 4
        assert page.locator("img").get_attribute("alt") == NASTY
        assert page.locator("script").count() == 1
        assert noise == []


def test_verdicts_differ_by_sign_and_frame_and_not_by_colour_alone(browser, report):
    with opened(browser, report) as (page, _):
        looks = {}
        for claim, mark in zip(CLAIMS, page.locator(".verdict").all(), strict=True):
            frame = mark.evaluate(
                "m => (s => s.borderTopWidth + s.borderTopStyle)(getComputedStyle(m))"
            )
            looks.setdefault(claim.verdict, set()).add((mark.inner_text()[0], frame))
    assert looks == {
        "holds here": {("✓", "2pxsolid")},
        "does not hold here": {("✗", "3pxsolid")},
        "not measured": {("?", "2pxdashed")},
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_in_both_schemes(browser, report, scheme):
    ratio = """e => {
      const parse = c => c.match(/[\\d.]+/g).map(Number);
      const light = c => parse(c).slice(0, 3).map(v => v / 255)
        .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const under = e => getComputedStyle(e).backgroundColor;
      let ground = e;
      while (parse(under(ground))[3] === 0) ground = ground.parentElement;
      const pair = [light(getComputedStyle(e).color), light(under(ground))];
      return (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    }"""
    with opened(browser, report) as (page, _):
        page.emulate_media(color_scheme=scheme)
        body = page.locator("body").evaluate("b => getComputedStyle(b).backgroundColor")
        assert (body == "rgb(255, 255, 255)") == (scheme == "light")
        kinds = "h1, h2, p, .verdict, .evidence, code, a, th, td, figcaption, button"
        ratios = page.locator(kinds).evaluate_all(f"all => all.map({ratio})")
        assert min(ratios) >= 4.5
        card = page.locator(".picture").first
        assert card.evaluate("c => getComputedStyle(c).backgroundColor") == "rgb(255, 255, 255)"


def test_a_picture_that_is_missing_is_named():
    document = Document("t", "s", [Section("s", [Picture("curves", "c")])])
    with pytest.raises(KeyError, match="curves"):
        as_page(document, {})
