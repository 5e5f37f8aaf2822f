"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

import gibbsot
from gibbsot import mirror_descent, sampler, schedules
from gibbsot.models import _base


@pytest.mark.parametrize(
    "name", ["WassersteinNMF", "mixture_coordinates", "compat", "datasets", "mirror_descent", "plots"]
)
def test_lazy_names(name):
    code = f"import gibbsot, sys; assert {name!r} in dir(gibbsot) and 'sklearn' not in sys.modules; gibbsot.{name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dir_has_the_public_names_alone():
    shown = {name for name in dir(gibbsot) if not name.startswith("_")}
    assert {*gibbsot.__all__, "compat", "datasets", "mirror_descent", "plots", "topics"} <= shown
    assert not {"Any", "import_module", "find_spec", "TYPE_CHECKING"} & shown
    for name in shown - {"jax", "scverse", "torch"}:  # these are slow to import
        assert getattr(gibbsot, name) is not None
    datasets = gibbsot.datasets
    assert {name for name in dir(datasets) if not name.startswith("_")} == set(datasets.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jax", "scverse", "torch"])
def test_extras_are_attributes_and_a_missing_package_is_named(name):
    package = {"scverse": "anndata"}.get(name, name)
    code = (
        f"import sys; sys.modules[{package!r}] = None; import gibbsot\n"
        f"try: gibbsot.{name}\n"
        f"except ImportError as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert f"pip install 'gibbsot[{package}]'" in printed


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gibbsot.nothing  # noqa: B018


def test_modules_show_their_own_names_only():
    for module in (mirror_descent, sampler, schedules):
        assert not {"np", "NDArray", "validation", "annotations"} & set(vars(module))


def test_batches_compare_by_identity():
    one, other = (gibbsot.Problem(np.eye(2), np.eye(2), 1 - np.eye(2)) for _ in range(2))
    assert one != other
    assert len({one, other, sampler.init(one), sampler.init(one)}) == 4


@pytest.mark.parametrize("name", [name for name in gibbsot.__all__ if name.startswith("Wasserstein")])
def test_estimators_link_to_their_page_in_notebooks_once_there_is_one(name, monkeypatch):
    found = Message()
    monkeypatch.setattr(_base, "metadata", lambda _: found)
    assert "href=" not in getattr(gibbsot, name)()._repr_html_()
    found["Project-URL"] = "Paper, https://paper"
    assert "href=" not in getattr(gibbsot, name)()._repr_html_()
    found["Project-URL"] = "Documentation, https://site/"
    address = f"https://site/api/generated/gibbsot.{name}.html"
    assert f'href="{address}"' in getattr(gibbsot, name)()._repr_html_()
    index = Path(__file__).resolve().parents[1] / "docs" / "api" / "index.md"
    assert f"   {name}\n" in index.read_text(encoding="utf-8")
