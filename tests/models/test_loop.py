"""The loop over epochs: history, callbacks, checkpoints and interrupts."""

from __future__ import annotations

import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from gibbsot import WassersteinBarycenter, WassersteinNMF
from gibbsot.models._loop import Checkpoints, Epoch, run_epochs

RECORD = Epoch(1.0, float("nan"), float("nan"), 0.1, 1.0, 2.0)


def run(epochs, history, published, checkpoints=None, **options) -> None:
    estimator = SimpleNamespace(**{"max_epochs": 5, "verbose": False, "callbacks": ()} | options)
    publish = lambda: published.append(len(history))  # noqa: E731
    run_epochs("test", estimator, epochs, history, publish, time.perf_counter(), checkpoints)


def test_all_epochs_are_recorded_and_published():
    history, published = [RECORD._replace(seconds=100.0)], []
    run(((RECORD, "") for _ in range(3)), history, published)
    assert len(history) == 4
    assert [record.seconds >= 100 for record in history] == [True] * 4  # time before a resume counts
    assert published == [2, 3, 4, 4]


def test_a_callback_stops_before_the_generator_resumes():
    history, published, resumed = [], [], []

    def epochs():
        for k in range(5):
            yield RECORD, ""
            resumed.append(k)

    run(epochs(), history, published, callbacks=[lambda _: len(history) == 2, lambda _: "not True"])
    assert len(history) == 2
    assert resumed == [0]


def test_an_interrupt_publishes():
    history, published = [], []

    def epochs():
        yield RECORD, ""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(epochs(), history, published)
    assert published == [1, 1]


def test_checkpoints_are_written_when_due():
    for seconds, expected in ((0.0, [1, 2, 3]), (1e6, [])):
        history, written = [], []
        checkpoints = Checkpoints(lambda _, history=history, written=written: written.append(len(history)), seconds)
        run(((RECORD, "") for _ in range(3)), history, [], checkpoints)
        assert written == expected


def test_a_checkpoint_that_fails_is_a_warning_and_tried_again():
    history, tried = [], []

    def write(_):
        tried.append(len(history))
        if len(tried) == 1:
            raise OSError(28, "No space left on device", "model.npz")

    with pytest.warns(
        RuntimeWarning, match=r"a checkpoint could not be written: .*No space left on device: 'model.npz'"
    ):
        run(((RECORD, "") for _ in range(3)), history, [], Checkpoints(write, 0.0))
    assert tried == [1, 2, 3]
    assert len(history) == 3


@pytest.mark.parametrize("kind", [WassersteinNMF, WassersteinBarycenter])
def test_nothing_of_others_is_lost_in_the_folder_of_checkpoints(tmp_path, kind):
    """The fit refuses a folder with anything in it, before it starts, and leaves alone what comes later."""
    options = {"cost": "line", "max_epochs": 3, "tau": 2, "random_state": 0, "checkpoint_seconds": 1e-9}
    options |= {"n_components": 2} if kind is WassersteinNMF else {"max_memory": 1.0}
    X = np.random.default_rng(0).random((6, 8))
    theirs = [tmp_path / "run" / "epoch-1" / "thesis.txt", tmp_path / "run" / "epoch-final-results" / "data.csv"]

    def put(*_):
        for path in theirs:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("years of work")

    put()
    with pytest.raises(ValueError, match=r"checkpoint: .*run has 'epoch-1', which is not a checkpoint"):
        kind(**options, checkpoint=tmp_path / "run").fit(X)
    assert [path.read_text() for path in theirs] == ["years of work"] * 2
    theirs = [tmp_path / "new" / path.relative_to(tmp_path / "run") for path in theirs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few epochs
        kind(**options, checkpoint=tmp_path / "new", callbacks=[put]).fit(X)
        kind.load(tmp_path / "new").set_params(max_epochs=6).resume(X)
    assert [path.read_text() for path in theirs] == ["years of work"] * 2
    assert len(list((tmp_path / "new").glob("epoch-0*"))) == 2


def test_a_file_does_not_say_where_checkpoints_go(tmp_path):
    """Or who sends a model could have the next fit write elsewhere, to a URL even."""
    X = np.random.default_rng(0).random((6, 8))
    model = WassersteinNMF(2, cost="line", max_epochs=2, tau=2, random_state=0, checkpoint=tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(checkpoint=str(tmp_path / "run")).fit(X).save(tmp_path / "a.npz")
    assert WassersteinNMF.load(tmp_path / "a.npz").checkpoint is None
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "b.npz", **arrays, parameter_checkpoint="s3://elsewhere")
    assert WassersteinNMF.load(tmp_path / "b.npz").checkpoint is None


def test_a_folder_without_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="is a folder without a checkpoint; expected one with, or a file"):
        WassersteinNMF.load(tmp_path)
