"""All Python blocks of the README and of the pages of the site run, each page from top to bottom.

Blocks that need a cluster or the network are not marked ``python`` but ``{code-block}``.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from gibbsot.core import native

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
EXTRAS = ("torch", "jax", "anndata")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_pages_have_code():
    assert sum(len(blocks(page)) for page in PAGES) >= 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if native.name() == "numpy":
        pytest.skip("hundreds of images are for the compiled kernels")
    names: dict[str, object] = {}
    for block in blocks(page):
        missing = [x for x in EXTRAS if f"import {x}" in block and importlib.util.find_spec(x) is None]
        if not missing:
            exec(compile(block, str(page), "exec"), names)
