"""Configuration of the documentation: `make docs`."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpydoc.docscrape_sphinx import SphinxDocString

import gibbsot

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
import _command_line  # noqa: E402
import inventories  # noqa: E402
import long_description  # noqa: E402

os.environ.setdefault("MPLBACKEND", "agg")

project = "gibbsot"
author = "The gibbsot developers"
copyright = f"2026, {author}"
version = release = gibbsot.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx-mathjax-offline",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "_inventories",
    "_measurements",
    "gallery/README.rst",
    "sg_execution_times.rst",
    "README.md",
]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc describes the types
# docstrings of the extras' modules are read where their packages are not installed, too
autodoc_mock_imports = [name for name in ("torch", "jax", "anndata", "pandas") if find_spec(name) is None]
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# a name in backquotes becomes a link if it can be imported; a link to nothing is a warning
default_role = "autolink"
nitpicky = True

# inventories are stored, so that the site builds without a network; see tools/inventories.py
intersphinx_mapping = {
    name: (address, str(inventories.FOLDER / f"{name}.inv")) for name, address in inventories.ADDRESSES.items()
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "image_scrapers": ("matplotlib",),
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "thumbnail_size": (600, 400),
    "default_thumb_file": str(HERE / "star-heart-card.png"),  # of an example that is not run
    "min_reported_time": 30,
    "reference_url": {"gibbsot": None},
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = "gibbsot"
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
if source := long_description.urls().get("Source"):  # the repository, once it is public
    html_theme_options["icon_links"] = [{"name": "Source", "url": source, "icon": "fa-brands fa-git-alt"}]
html_sidebars = {"index": [], "installation": [], "quickstart": []}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


def leave_out(_app: Any, _what: str, name: str, *_: Any) -> bool | None:
    """Leave out the methods that scikit-learn gives to every estimator."""
    return re.fullmatch("set_[a-z_]+_request|get_metadata_routing|set_output", name) is not None or None


def without_signature(_app: Any, _what: str, name: str, *_: Any) -> tuple[str, str] | None:
    """Leave out how results are made: `solve` makes them."""
    return ("", "") if re.fullmatch(r"gibbsot\.(OT|Partial)Result", name) else None


def described(self: SphinxDocString, name: str, text: Any, summary: bool) -> Any:
    """Keep what a class says of its attributes, which numpydoc replaces by the first sentence of a property."""
    return _described(self, name, text, summary and not text)


_described, SphinxDocString._process_param = SphinxDocString._process_param, described


def setup(app: Any) -> None:
    """Write the generated pages before the sources are read."""
    app.connect("builder-inited", _command_line.write)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-signature", without_signature)
