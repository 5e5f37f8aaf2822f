from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import matplotlib.image
import numpy as np
import pytest

from gibbsot.core import native
from gibbsot.models.nmf.estimator import WassersteinNMF

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = pytest.mark.skipif(native.name() == "numpy", reason="slow without compiled kernels; `make demo` runs it")


def run(example: str, *options: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *options], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_picture(path: Path) -> None:
    picture = matplotlib.image.imread(path)[..., :3]
    assert min(picture.shape[:2]) > 100
    assert picture.std() > 0.05


@pytest.mark.slow
def test_toys_write_their_picture(tmp_path):
    assert "two electrons" in run("toys.py", "--out", tmp_path)
    check_picture(tmp_path / "plans.png")


@pytest.mark.slow
def test_barycenters_write_their_picture(tmp_path):
    printed = run("barycenters.py", "--quick", "--out", tmp_path / "new")
    assert "ellipses: their mean" in printed
    assert printed.count("   gibbsot  ") == printed.count("POT, reg 0.004") == 2
    assert printed.count("   gibbsot, smooth") == 1  # of the fives
    check_picture(tmp_path / "new" / "barycenters.png")


@pytest.mark.slow
def test_pictures_of_the_front_page(tmp_path):
    run("pictures.py", "--out", tmp_path)
    for name in ("star-heart", "colours"):
        check_picture(tmp_path / f"{name}.png")


@pytest.mark.slow
def test_graphs_write_their_pictures(tmp_path):
    printed = run("graphs.py", tmp_path, "10")
    assert re.search(r"barycenter: objective 0\.4\d+, gap .*, (gap reached|budget spent)", printed)
    assert float(re.search(r"centres at most ([.\d]+)", printed)[1]) < 0.1
    for name in ("barycenter", "components"):
        check_picture(tmp_path / f"graph-{name}.png")


@pytest.mark.slow
def test_demo_writes_its_pictures(tmp_path):
    printed = run("nmf.py", "--quick", "--epochs", "6", "--out", tmp_path / "new")
    assert "scikit-learn's NMF" in printed
    assert "40 images of 28 x 28" in printed
    for name in ("components", "reconstruction", "convergence"):
        check_picture(tmp_path / "new" / f"{name}.png")
    assert WassersteinNMF.load(tmp_path / "new" / "model.npz").n_iter_ == 6


@pytest.mark.slow
def test_topics_print_both_models_and_draw_them(tmp_path):
    pytest.importorskip("lda")
    printed = run("topics.py", "--quick", "--out", tmp_path)
    assert "90 documents, 30 held out, 200 words" in printed
    rows = [line for line in printed.splitlines() if re.search(r" s \S$", line)]  # those with a time
    held_out = [float(re.findall(r"\d\.\d{4}", row)[1]) for row in rows]
    assert len(held_out) == 5
    assert held_out[3] < min(held_out[:3])  # of the loss that Wasserstein NMF minimises; seeds are fixed
    check_picture(tmp_path / "topics.png")


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "nmf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def blobs(tmp_path):
    """A file of images 16 x 12 with two blobs each."""
    y, x = np.mgrid[:16, :12]
    centres = np.random.default_rng(0).uniform(2, 10, (12, 2, 2))
    images = [sum(np.exp(-((y - a) ** 2 + (x - b) ** 2) / 4) for a, b in pair) for pair in centres]
    np.savez(tmp_path / "blobs.npz", images=np.round(255 * np.array(images)).astype(np.uint8))
    return tmp_path / "blobs.npz"


def test_interrupted_and_resumed(demo, blobs, tmp_path, monkeypatch, capsys):
    class Interrupted(WassersteinNMF):
        def fit(self, X, y=None):
            self.callbacks = (*self.callbacks, lambda m: m.n_iter_ == 3 and signal.raise_signal(signal.SIGINT))
            return super().fit(X, y)

    def main(out, *more):
        options = ("--data", blobs, "--shape", "8", "6", "--components", "3", "--epochs", "8", "--out", out, *more)
        monkeypatch.setattr(sys, "argv", ["nmf.py", *map(str, options)])
        return demo.main()

    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    before = signal.getsignal(signal.SIGINT)  # in the background it is ignored
    with monkeypatch.context() as patch:
        patch.setattr(demo, "WassersteinNMF", Interrupted)
        assert main(stopped) == 130
    assert capsys.readouterr().out.rstrip().endswith("--resume")
    assert signal.getsignal(signal.SIGINT) is before
    assert WassersteinNMF.load(stopped / "model.npz").n_iter_ < 8
    assert not (stopped / "components.png").exists()

    assert main(stopped, "--resume") == 0
    assert main(whole) == 0
    resumed, straight = (WassersteinNMF.load(folder / "model.npz") for folder in (stopped, whole))
    assert resumed.n_iter_ == straight.n_iter_ == 8
    np.testing.assert_array_equal(resumed.components_, straight.components_)
    check_picture(stopped / "reconstruction.png")


@pytest.mark.parametrize("options", [("--data", "nowhere.npz"), ("--resume",), ("--shape", "9", "99")])
def test_errors_are_one_line(demo, blobs, tmp_path, monkeypatch, capsys, options):
    monkeypatch.setattr(sys, "argv", ["nmf.py", "--data", str(blobs), "--out", str(tmp_path / "out"), *options])
    assert demo.main() == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1


@pytest.mark.slow
def test_clusters_are_compared_and_drawn(tmp_path):
    printed = run("clusters.py", "--quick", "--out", tmp_path)
    assert "100 digits" in printed
    assert "40 palettes" in printed
    check_picture(tmp_path / "clusters.png")
