"""The report in a real browser, where there is one: nothing missing, nothing fetched, readable on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser import BROWSER, window
from paper import report

pytest.importorskip("playwright.sync_api")

SIZES = {"desktop": (1280, 900), "tablet": (768, 1024), "phone": (375, 812)}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report")
    report.reproduce(["figure1", "figure3"], out, quick=True)
    return out


@pytest.fixture(scope="module")
def browser():
    with window() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_report(browser, folder, size, scheme):
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    complaints: list[str] = []
    fetched: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url[:100]))
    page.on("request", lambda request: fetched.append(request.url[:100]))
    page.goto((folder / "report.html").as_uri(), wait_until="load")

    assert [url for url in fetched if not url.startswith("data:")] == [(folder / "report.html").as_uri()[:100]]
    widths = page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
    assert len(widths) == 3
    assert min(widths) > 600
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    edges = page.eval_on_selector_all("main *", "all => all.map(one => one.getBoundingClientRect().right)")
    assert max(edges) <= width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (brightness(ink) < brightness(paper)) == (scheme == "light")
    # stacked on a phone, a table elsewhere
    assert page.evaluate("getComputedStyle(document.querySelector('td')).display") == (
        "block" if size == "phone" else "table-cell"
    )
    page.click("nav a >> nth=1")
    assert abs(page.evaluate("document.querySelector('#figure3').getBoundingClientRect().top")) < height
    shot = folder / f"{size}-{scheme}.png"
    page.screenshot(path=shot, full_page=True)
    assert shot.stat().st_size > 20_000
    assert complaints == []
    page.close()


def brightness(colour: str) -> float:
    return sum(float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3])
