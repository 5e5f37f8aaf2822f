"""The loop over epochs that all models share: history, progress bar, checkpoints, callbacks and interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..io import progress
from . import _base
from ._history import Epoch


@dataclass
class Checkpoints:
    """A callback that writes a checkpoint of a model when enough time has passed since the last one."""

    write: Callable[[Any], None]
    seconds: float

    def __post_init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, model: Any) -> None:
        if time.monotonic() - self.last >= self.seconds:
            self.write(model)
            self.last = time.monotonic()


@dataclass
class Loop:
    """Runs the epochs of a fit.

    Attributes
    ----------
    title : str
        The title of the progress bar.
    estimator : estimator
        Its ``max_epochs``, ``verbose`` and ``callbacks`` are used.
    started : float
        ``time.perf_counter()`` at the start of the fit.
    history : list of Epoch
        The records so far, to which new ones are appended.
    publish : function
        Sets the estimator's public attributes.
    checkpoints : Checkpoints, optional
        Called after every epoch.
    """

    title: str
    estimator: Any
    started: float
    history: list[Epoch]
    publish: Callable[[], None]
    checkpoints: Checkpoints | None = None

    def run(self, epochs: Iterable[tuple[Epoch, str]]) -> None:
        """Run epochs until they end or a callback stops them.

        Parameters
        ----------
        epochs : iterable of pairs (Epoch, str)
            Computes one epoch at a time, for example a generator; yields its record, in which this loop sets
            ``seconds``, and a note for the progress bar. It resumes after the callbacks.
        """
        spent = self.history[-1].seconds if self.history else 0.0
        total = max(1, self.estimator.max_epochs - len(self.history))
        try:
            with progress.bar(self.title, self.estimator.verbose) as advance:
                for record, note in epochs:
                    seconds = spent + time.perf_counter() - self.started
                    self.history.append(record._replace(seconds=seconds))
                    self.publish()
                    advance(1 / total, note)
                    if self.checkpoints is not None:
                        self.checkpoints(self.estimator)
                    if _base.stopped(self.estimator):
                        break
        finally:
            self.publish()  # an interrupted epoch may have changed the best model
