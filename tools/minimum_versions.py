"""Print the lowest versions that pyproject.toml allows as constraints of pip: `python tools/minimum_versions.py`.

`make test-minimum` installs these and runs the fast tests. Packages that have no lower bound, or are tools of
development alone, are left to pip.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

EXTRAS = ("progress", "plots", "pot", "cli", "parquet", "anndata", "dask")  # of what the package itself imports


def minimum_versions(project: str) -> list[str]:
    """Return constraints ``name==version`` from the text of pyproject.toml."""
    blocks = [re.search(r"^dependencies = \[(.*?)\]\n", project, re.DOTALL | re.MULTILINE)]
    blocks += [re.search(rf"^{extra} = \[(.*?)\]( +#.*)?\n", project, re.DOTALL | re.MULTILINE) for extra in EXTRAS]
    found = {}
    for block in blocks:
        assert block is not None
        for requirement in re.findall(r'"([^"]+)"', block.group(1)):
            if match := re.match(r"([A-Za-z0-9_-]+)(?:\[[a-z,]+\])?>=([0-9.]+)", requirement):
                found[match[1]] = match[2]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    print(*minimum_versions(text), sep="\n")
    sys.exit(0)
