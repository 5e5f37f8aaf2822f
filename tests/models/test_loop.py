"""The loop over epochs: history, callbacks, checkpoints and interrupts."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from gibbsot.models._history import Epoch
from gibbsot.models._loop import Checkpoints, Loop

RECORD = Epoch(1.0, float("nan"), float("nan"), 0.1, 1.0, 2.0)


def loop(history, published, checkpoints=None, **options) -> Loop:
    estimator = SimpleNamespace(**{"max_epochs": 5, "verbose": False, "callbacks": ()} | options)
    return Loop("test", estimator, time.perf_counter(), history, lambda: published.append(len(history)), checkpoints)


def test_all_epochs_are_recorded_and_published():
    history, published = [RECORD._replace(seconds=100.0)], []
    loop(history, published).run((RECORD, "") for _ in range(3))
    assert len(history) == 4
    assert [record.seconds >= 100 for record in history] == [True] * 4  # time before a resume counts
    assert published == [2, 3, 4, 4]


def test_a_callback_stops_before_the_generator_resumes():
    history, published, resumed = [], [], []

    def epochs():
        for k in range(5):
            yield RECORD, ""
            resumed.append(k)

    loop(history, published, callbacks=[lambda _: len(history) == 2, lambda _: "not True"]).run(epochs())
    assert len(history) == 2
    assert resumed == [0]


def test_an_interrupt_publishes():
    history, published = [], []

    def epochs():
        yield RECORD, ""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop(history, published).run(epochs())
    assert published == [1, 1]


def test_checkpoints_are_written_when_due():
    for seconds, expected in ((0.0, [1, 2, 3]), (1e6, [])):
        history, written = [], []
        checkpoints = Checkpoints(lambda _, history=history, written=written: written.append(len(history)), seconds)
        loop(history, [], checkpoints).run((RECORD, "") for _ in range(3))
        assert written == expected
