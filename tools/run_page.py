"""Run the Python blocks of Markdown pages, each page from top to bottom: `python tools/run_page.py docs/quickstart.md`.

It needs nothing but the package, so that an installed wheel can be tried in an environment of its own.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

_EXTRAS = ("torch", "jax", "anndata")


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page; blocks that are not run are directives, ``{code-block}``."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def run(page: Path) -> None:
    """Run the blocks of a page in one namespace, without those that import an extra that is not installed."""
    names: dict[str, object] = {}
    for block in blocks(page):
        if not [x for x in _EXTRAS if re.search(rf"\b{x}\b", block) and importlib.util.find_spec(x) is None]:
            exec(compile(block, str(page), "exec"), names)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(Path(name))
        print(f"{name}: all blocks ran")
