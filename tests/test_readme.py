from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from gibbsot.core import native

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.slow
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if native.name() == "numpy":
        pytest.skip("two hundred images are for the compiled kernels")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        if "import torch" not in block or importlib.util.find_spec("torch") is not None:
            exec(block, names)
    result, batch, again = names["result"], names["batch"], names["again"]
    assert result.lower_bound < result.value * 1.05
    assert len(batch) == 200
    assert again.n_sweeps.mean() < 40
