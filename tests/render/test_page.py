"""The report as a page: well-formed, self-contained, safe, and fit for a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from unstarve.render.page import patch_lines, render, render_fragment, stage_costs, wall_time
from unstarve.report import Report

CHROMIUM = Path("/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """Collects tags and text, and fails where an end tag does not match."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(params=[render, render_fragment], ids=["page", "fragment"])
def draw(request: pytest.FixtureRequest) -> Callable[[Report], str]:
    drawing: Callable[[Report], str] = request.param
    return drawing


def test_markup_is_well_formed(draw: Callable[[Report], str], toy: Report, minimal: Report) -> None:
    """Every tag that opens is closed, in order."""
    for report in (toy, minimal):
        assert Outline(draw(report)).open == []


def test_hostile_names_stay_text(draw: Callable[[Report], str], hostile: Report) -> None:
    """A name adds no tag and no attribute, and no template expression in it is evaluated."""
    outline = Outline(draw(hostile))
    assert outline.open == []
    assert "script" not in {tag for tag, _ in outline.tags}
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    assert "50337" not in outline.text


def test_data_set_name_is_escaped_once(draw: Callable[[Report], str], named: Callable[[str], Report]) -> None:
    """A reader sees the name as it is: neither obeyed nor escaped twice."""
    name = "<script>alert('a & b')</script>\"><img src=x onerror=alert(1)>"
    markup = draw(named(name))
    assert name in Outline(markup).text
    assert "<script" not in markup
    assert "&amp;lt;" not in markup


def test_page_loads_nothing(draw: Callable[[Report], str], toy: Report) -> None:
    """The page refers to nothing outside itself and runs no script."""
    markup = draw(toy)
    assert not re.findall(r"https?://|\bsrc=|\bhref=|url\(|@import|<script|<link", markup)


def test_page_is_small(draw: Callable[[Report], str], toy: Report) -> None:
    """A normal report stays below 60 KB."""
    assert len(draw(toy).encode()) < 60_000


def test_charts_have_text_alternatives(toy: Report) -> None:
    """Each chart says in words what it draws; bars that repeat the figure beside them are left out of that."""
    charts = [attributes for tag, attributes in Outline(render(toy)).tags if tag == "svg"]
    assert all(chart.get("aria-label") if chart.get("role") == "img" else chart.get("aria-hidden") for chart in charts)
    assert "nothing cached: 0.89 steps/s (0.87–0.91, n 48); the drop from the rung above is due to make_image" in [
        chart.get("aria-label") for chart in charts
    ]


def test_fragment_styles_touch_nothing_else(toy: Report) -> None:
    """In a notebook every rule applies inside the fragment only."""
    fragment = render_fragment(toy)
    style = re.sub(r"@media[^{]*", "", "".join(re.findall(r"<style>(.*?)</style>", fragment, re.DOTALL)))
    selectors = [part.strip() for group in re.findall(r"([^{}]+)\{", style) for part in group.split(",")]
    assert [selector for selector in selectors if selector and not selector.startswith(".unstarve")] == []
    assert not re.search(r"<(html|head|body|!doctype)\b", fragment, re.IGNORECASE)


def test_page_says_everything(toy: Report) -> None:
    """Verdict, rungs, findings, remedies, doubts and environment are all there."""
    text = " ".join(Outline(render(toy)).text.split())
    expected = [rung.label for rung in toy.rungs] + [caveat.sentence for caveat in toy.caveats]
    expected += [remedy.advice for remedy in toy.remedies] + [culprit.evidence for culprit in toy.verdict.culprits]
    assert [words for words in ["INPUT-BOUND", "train.py:48", "NVIDIA A10G", *expected] if words not in text] == []


def test_where_a_step_goes_is_told_where_the_loop_sets_the_pace(toy: Report, stepping: Report) -> None:
    """Its lines are of no use to one whose loop waits for input."""
    assert "metric.update(out, target)" in render(stepping)
    assert "Loop body" not in render(replace(toy, body=stepping.body))


def test_minimal_report_has_no_empty_sections(minimal: Report) -> None:
    """Without measurements the page is the answer alone."""
    assert "section" not in {tag for tag, _ in Outline(render(minimal)).tags}
    assert "Only 3 steps were measured" in render(minimal)


def test_lengths_fit_the_chart(toy: Report) -> None:
    """CPU time of several threads does not overrun its bar, and the parts of the wall time fill theirs."""
    busy = replace(toy, stages=tuple(replace(stage, cpu_s_per_sample=1.0) for stage in toy.stages))
    assert all(0 <= cost.cpu <= cost.wall <= 100 for cost in stage_costs(busy))
    assert sum(part.length for part in wall_time(toy)) == pytest.approx(100)


def test_backticks_become_code(toy: Report) -> None:
    """What advice calls by its name in code is drawn as code, and escaped."""
    remedies = (replace(toy.remedies[0], advice="Use `a < b`, or ` alone."),)
    assert "Use <code>a &lt; b</code>, or ` alone." in render(replace(toy, remedies=remedies))


def test_patch_lines_are_told_apart() -> None:
    """Added, removed and other lines of a patch get their own colour."""
    assert patch_lines("@@ a @@\n-b\n+c\n d") == (
        ("hunk", "@@ a @@"),
        ("del", "-b"),
        ("add", "+c"),
        ("same", " d"),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=str(CHROMIUM), args=[*QUIET, "--no-first-run"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_in_a_browser(
    browser: Any, toy: Report, minimal: Report, named: Callable[[str], Report], scheme: str, width: int
) -> None:
    """Without scripts or network, in both colour schemes, nothing overflows sideways and nothing is requested."""
    context = browser.new_context(
        color_scheme=scheme, java_script_enabled=False, offline=True, viewport={"width": width, "height": 800}
    )
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for report in (toy, minimal, named("<script>alert(1)</script>"), named("n" * 300), named("界" * 150)):
        page.set_content(render(report))
        widest = page.locator("html").evaluate("node => Math.max(node.scrollWidth, document.body.scrollWidth)")
        assert widest <= width
        background = page.locator(".unstarve").evaluate("node => getComputedStyle(node).backgroundColor")
        assert background == {"light": "rgb(250, 249, 246)", "dark": "rgb(23, 25, 28)"}[scheme]
    assert requests == []
    context.close()
