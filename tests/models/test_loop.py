"""The loop over epochs: history, callbacks, checkpoints and interrupts."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

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
