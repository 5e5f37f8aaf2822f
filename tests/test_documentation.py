"""All Python blocks of the README and of the pages of the site run, and the version is the same everywhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gibbsot
from gibbsot.core import native

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_page = load_tool("run_page")
WITH_CODE = [page for page in PAGES if run_page.blocks(page)]


def test_pages_have_code():
    assert len(WITH_CODE) >= 9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if native.name() == "numpy":
        pytest.skip("hundreds of images are for the compiled kernels")
    monkeypatch.chdir(tmp_path)
    run_page.run(page)


def test_the_citation_has_the_version():
    assert f"version: {gibbsot.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
