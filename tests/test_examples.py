from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

from gibbsot import kernels

ROOT = Path(__file__).resolve().parents[1]


def test_demo_writes_its_picture(tmp_path):
    if kernels.name() == "numpy":
        pytest.skip("slow without compiled kernels; `make demo` runs it")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "toys.py", "--out", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "two electrons" in done.stdout
    picture = matplotlib.image.imread(tmp_path / "plans.png")
    assert picture.shape[0] > 400
    assert picture.std() > 0.05
