"""The inventories of other projects in docs/_inventories, with which the site links to their pages without a network.

`python tools/inventories.py fetch [NAME...]` replaces them by those that the projects publish; it needs a network.
`python tools/inventories.py write` writes the small ones of scikit-learn, PyTorch and POT from the names below, where
the published ones are not at hand. `make docs` fails at a name that is in none: add it, or fetch.
"""

from __future__ import annotations

import sys
import urllib.request
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "_inventories"
ADDRESSES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "pot": "https://pythonot.github.io/",
}

Pages = dict[str, dict[str, tuple[str, ...]]]  # names by page and kind; $ in a page is the name
WRITTEN: dict[str, Pages] = {
    "sklearn": {
        "modules/generated/$.html": {
            "class": (
                "sklearn.decomposition.LatentDirichletAllocation",
                "sklearn.decomposition.NMF",
                "sklearn.feature_extraction.text.CountVectorizer",
                "sklearn.neighbors.KNeighborsTransformer",
            ),
            "exception": ("sklearn.exceptions.ConvergenceWarning",),
        },
    },
    "torch": {
        "generated/$.html": {
            "class": ("torch.nn.Module", "torch.no_grad"),
            "function": ("torch.compile", "torch.func.grad", "torch.func.vmap"),
        },
        "tensors.html": {"class": ("torch.Tensor",)},
        "data.html": {"class": ("torch.utils.data.DataLoader",)},
        "optim.html": {"class": ("torch.optim.Optimizer",)},
        "func.html": {"module": ("torch.func",)},
    },
    "pot": {"all.html": {"function": ("ot.emd", "ot.emd2", "ot.solve", "ot.solve_gromov", "ot.solve_sample")}},
}


def inventory(project: str, pages: Pages) -> bytes:
    """Return an inventory of version 2, as Sphinx writes it."""
    lines = []
    for page, kinds in pages.items():
        for kind, names in kinds.items():
            anchor = "#module-$" if kind == "module" else "#$"
            lines += [f"{name} py:{kind} 1 {page.replace('$', name)}{anchor} -\n" for name in names]
    header = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    header += "# The remainder of this file is compressed using zlib.\n"
    return header.encode() + zlib.compress("".join(sorted(lines)).encode(), 9)


def fetch(name: str) -> bytes:
    """Return the inventory that a project publishes."""
    with urllib.request.urlopen(ADDRESSES[name] + "objects.inv", timeout=60) as answer:
        return answer.read()


def main(words: list[str]) -> int:
    """Run the command line and return its exit status."""
    names = words[1:] or list(ADDRESSES)
    if words[:1] == ["write"] and not words[1:]:
        found = {name: inventory(name, pages) for name, pages in WRITTEN.items()}
    elif words[:1] == ["fetch"] and set(names) <= set(ADDRESSES):
        found = {name: fetch(name) for name in names}
    else:
        print(f"{__doc__}\nNAME: {', '.join(ADDRESSES)}", file=sys.stderr)
        return 2
    for name, data in found.items():
        (FOLDER / f"{name}.inv").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
