"""The built site in a real browser: links, pictures, formulas, search, narrow screens. `make docs` runs it."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from browser import BROWSER, window

pytest.importorskip("playwright.sync_api")

SITE = Path(__file__).resolve().parents[1] / "docs" / "_build" / "html"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium"),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no site: make docs builds it"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with window() as opened:
        yield opened


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


def test_no_internal_link_is_broken(page, address):
    seen, todo, broken = set(), ["/index.html"], []
    anchors: dict[str, set[str]] = {}
    wanted: list[tuple[str, str, str]] = []
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = page.goto(address + path, wait_until="domcontentloaded")
        if answer is None or not answer.ok:
            broken.append(path)
            continue
        if not path.endswith(".html"):
            continue
        anchors[path] = set(page.eval_on_selector_all("[id]", "all => all.map(one => one.id)"))
        for link in page.eval_on_selector_all("main a[href]", "all => all.map(one => one.href)"):
            target, anchor = urldefrag(link)
            if target.startswith(address) and "_modules" not in target and "_downloads" not in target:
                target = target.removeprefix(address)
                wanted.append((path, target, anchor))
                if target.endswith(".html"):
                    todo.append(target)
    assert broken == []
    assert len(seen) > 30
    lost = [each for each in wanted if each[2] and each[1] in anchors and each[2] not in anchors[each[1]]]
    assert lost == []


@pytest.mark.parametrize("width", [1280, 375])
def test_pictures_show_and_pages_fit(page, address, width):
    page.set_viewport_size({"width": width, "height": 900})
    pages = "index", "gallery/index", "guides/nmf", "measurements", "api/generated/gibbsot.WassersteinNMF"
    for path in (f"{name}.html" for name in pages):
        page.goto(f"{address}/{path}", wait_until="load")
        widths = page.eval_on_selector_all("main img", "all => all.map(one => one.naturalWidth)")
        assert all(widths), path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_formulas_are_set(page, address):
    page.goto(f"{address}/concepts.html", wait_until="load")
    page.wait_for_selector("mjx-container", timeout=20_000)


def test_classes_have_their_methods_and_names_are_links(page, address):
    page.goto(f"{address}/api/generated/gibbsot.WassersteinNMF.html", wait_until="domcontentloaded")
    names = set(page.eval_on_selector_all("dt[id]", "all => all.map(one => one.id)"))
    assert {f"gibbsot.WassersteinNMF.{name}" for name in ("fit", "transform", "score", "save", "load")} <= names
    links = set(page.eval_on_selector_all("main a[href]", "all => all.map(one => one.href)"))
    assert f"{address}/api/generated/gibbsot.Oracle.html#gibbsot.Oracle" in links
    page.goto(f"{address}/guides/nmf.html", wait_until="domcontentloaded")
    links = page.eval_on_selector_all("main a[href]", "all => all.map(one => one.href)")
    assert any(link.startswith("https://scikit-learn.org/stable/modules/generated/sklearn") for link in links)


def test_search_finds_the_barycenter(page, address):
    page.goto(f"{address}/search.html?q=barycenter", wait_until="load")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    hits = page.eval_on_selector_all("#search-results li a", "all => all.map(one => one.href)")
    assert any("arycenter" in hit for hit in hits)
