"""Run the Python blocks of Markdown pages, each page from top to bottom: `python tools/run_page.py docs/quickstart.md`.

A block of `text` right after one is what it prints, with the value of its last expression; it is compared, with ``...``
for anything. It needs nothing but the package, so that an installed wheel can be tried in an environment of its own.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import io
import re
import sys
from pathlib import Path

_EXTRAS = ("torch", "jax", "anndata")
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the Python blocks of a page and what they print; blocks that are not run are directives."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def output(block: str, name: str, names: dict[str, object]) -> str:
    """Run a block and return what it prints, and the value of its last expression."""
    module = ast.parse(block)
    last = ast.Interactive([module.body.pop()]) if isinstance(module.body[-1], ast.Expr) else ast.Interactive([])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(module, name, "exec"), names)
        exec(compile(last, name, "single"), names)  # prints its value
    return printed.getvalue()


def run(page: Path) -> None:
    """Run the blocks of a page in one namespace, without those that import an extra that is not installed."""
    names: dict[str, object] = {}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for block, expected in blocks(page):
        if not [x for x in _EXTRAS if re.search(rf"\b{x}\b", block) and importlib.util.find_spec(x) is None]:
            found = output(block, str(page), names)
            if expected and not doctest.OutputChecker().check_output(expected, found, flags):
                raise AssertionError(f"{page}: after\n{block}the page has\n{expected}and the block prints\n{found}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(Path(name))
        print(f"{name}: all blocks ran")
