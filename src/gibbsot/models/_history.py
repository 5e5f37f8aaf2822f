"""What a model records of each epoch."""

from __future__ import annotations

from typing import NamedTuple


class Epoch(NamedTuple):
    """One entry of a model's history.

    Attributes
    ----------
    estimate : float
        The mean of V(z) over all measures, each when it was met.
    lower, upper : float
        Certified bounds of the mean transport cost of the sample that is looked at; NaN for epochs without a look.
    temperature, step : float
        T, and the share of ``step_size`` that was taken.
    sweeps : float
        The mean number of sweeps of a chain.
    seconds : float
        Since the fit began, its start included; the time between a fit and its `resume` does not count.
    """

    estimate: float
    lower: float
    upper: float
    temperature: float
    step: float
    sweeps: float
    seconds: float
