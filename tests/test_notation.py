"""The page of notation names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gibbsot
from gibbsot import mirror_descent, sampler, schedules, theory

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "notation.md"
MODULES = {"theory": theory, "schedules": schedules, "sampler": sampler, "mirror_descent": mirror_descent}


@pytest.mark.skipif(not PAGE.exists(), reason="needs the folder docs")
def test_names_exist():
    text = PAGE.read_text("utf-8")
    names = set(re.findall(r"`(\w+)\.(\w+)", text))
    known = {pair for pair in names if pair[0] in MODULES}
    assert len(known) > 15
    for module, name in known:
        assert hasattr(MODULES[module], name), f"{module}.{name}"
    for field in {name for owner, name in names if owner == "Info"}:
        assert field in sampler.Info._fields
    for field in {name for owner, name in names if owner == "result"}:
        assert hasattr(gibbsot.OTResult, field), field


@pytest.mark.skipif(not (ROOT / "paper").exists(), reason="needs the folder paper")
def test_slips_are_shown_by_what_exists():
    from paper.slips import SLIPS

    assert any("max_i" in slip.printed and "min_i" in slip.right for slip in SLIPS)
    for slip in SLIPS:
        file, _, name = slip.shown.partition("::")
        assert (ROOT / file).is_file(), slip
        assert f"def {name}(" in (ROOT / file).read_text("utf-8") if name else True, slip
