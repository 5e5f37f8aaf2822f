"""The record that a model keeps of each epoch."""

from __future__ import annotations

from typing import NamedTuple


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
