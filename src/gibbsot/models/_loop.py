"""The loop over epochs that all models share: history, progress bar, checkpoints, callbacks and interrupts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core.warn import warn
from ..io import progress


class Epoch(NamedTuple):
    """One entry of a model's history.

    Attributes
    ----------
    estimate : float
        The mean of V(z) over all measures, each at the time of its update.
    lower, upper : float
        Certified bounds of the mean transport cost of the sample that is evaluated exactly; NaN for epochs without an
        exact evaluation.
    temperature, step : float
        T, and the step as a multiple of ``step_size``.
    sweeps : float
        The mean number of sweeps of a chain.
    seconds : float
        The time since the start of the fit. The time between a fit and its `resume` does not count.
    """

    estimate: float
    lower: float
    upper: float
    temperature: float
    step: float
    sweeps: float
    seconds: float = 0.0


@dataclass
class Checkpoints:
    """A callback that writes a checkpoint of a model when enough time has passed since the last one.

    One that cannot be written is a warning: the fit goes on, and the next one is tried after the same time.
    """

    write: Callable[[Any], None]
    seconds: float

    def __post_init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, model: Any) -> None:
        if time.monotonic() - self.last >= self.seconds:
            self.attempt(model)
            self.last = time.monotonic()

    def attempt(self, model: Any) -> None:
        """Write a checkpoint, or warn that it was not possible."""
        try:
            self.write(model)
        except ConnectionError:  # of the scheduler: without it the fit cannot go on
            raise
        except OSError as error:
            warn(f"a checkpoint could not be written: {error}", RuntimeWarning)


def run_epochs(
    title: str,
    estimator: Any,
    epochs: Iterable[tuple[Epoch, str]],
    history: list[Epoch],
    publish: Callable[[], None],
    started: float,
    checkpoints: Checkpoints | None = None,
    max_seconds: float | None = None,
) -> bool:
    """Run the epochs of a fit until they end, a callback stops them or time is over.

    Parameters
    ----------
    title : str
        The title of the progress bar.
    estimator : estimator
        Its ``max_epochs``, ``verbose`` and ``callbacks`` are used.
    epochs : iterable of pairs (Epoch, str)
        Computes one epoch at a time, for example a generator; yields its record, in which this loop sets ``seconds``,
        and a note for the progress bar. It resumes after the callbacks.
    history : list of Epoch
        The records so far, to which new ones are appended.
    publish : function
        Sets the estimator's public attributes.
    started : float
        ``time.perf_counter()`` at the start of the fit.
    checkpoints : Checkpoints, optional
        Called after every epoch.
    max_seconds : float, optional
        The time from the start, after which no other epoch begins.

    Returns
    -------
    bool
        Whether time ended the fit.
    """
    spent = history[-1].seconds if history else 0.0
    total = max(1, estimator.max_epochs - len(history))
    try:
        with progress.bar(title, estimator.verbose) as advance:
            for record, note in epochs:
                history.append(record._replace(seconds=spent + time.perf_counter() - started))
                publish()
                advance(1 / total, note)
                if checkpoints is not None:
                    checkpoints(estimator)
                if True in [callback(estimator) for callback in estimator.callbacks]:  # all are called
                    return False
                if max_seconds is not None and time.perf_counter() - started >= max_seconds:
                    return True
    finally:
        publish()  # an interrupted epoch may have changed the best model
    return False
