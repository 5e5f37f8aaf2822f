"""Cooling schedules: the temperature of each sweep as an array, or a rule for `solve`.

The sampler takes any array of temperatures; these functions return the schedules of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation

__all__ = ["Adaptive", "Given", "Schedule", "constant", "epoch_decay", "geometric", "temperatures"]


@dataclass(frozen=True)
class Adaptive:
    r"""The paper's bound on the temperature as a schedule, without a scale to be chosen.

    .. math:: T = \eta \, \mathcal T(z)

    The chain is cooled in stages, each at this temperature for the z that the stage before has reached. calT(z) is the
    temperature at which V(z) stays unchanged on average (`theory.temperature_bound`, here estimated by
    `theory.sampled_bound`). A chain that has mixed has calT(z) = T up to noise, so that T falls by the factor eta in a
    stage, by eta / 2 at most, and never rises. It starts about where the value of the nearest points would rise to
    the mean cost, and ends where T = 6 V(z) / (m sqrt(sweeps)), with V(z) measured from the nearest points' value and m
    the number of points with weight: the remaining sweeps are done there.

    Parameters
    ----------
    eta : float
        From 0.1, a few long stages, to 0.9, many short ones.

    Attributes
    ----------
    eta : float
        The parameter.

    Examples
    --------
    >>> from gibbsot.schedules import Adaptive
    >>> from gibbsot import Gibbs, GridCost, solve
    >>> cost = GridCost(3, spacing=1e3)
    >>> round(solve([1, 0, 0], [0, 0, 1], cost, method=Gibbs(schedule=Adaptive(eta=0.5))).value / 4e6, 3)
    1.0
    """

    eta: float = 0.6

    def __post_init__(self) -> None:
        if not 0.1 <= validation.number(self.eta, "eta") <= 0.9:
            raise ValueError(f"eta: expected a number from 0.1 to 0.9, got {self.eta!r}")


Given = float | ArrayLike | Callable[[int], float]
Schedule = Adaptive | Given


def constant(T: float, n_sweeps: int) -> NDArray[np.float64]:
    """Return the same temperature for every sweep.

    Parameters
    ----------
    T : float
        The temperature.
    n_sweeps : int
        The number of sweeps.

    Returns
    -------
    array of shape (n_sweeps,)

    Examples
    --------
    >>> from gibbsot.schedules import constant
    >>> constant(0.5, 3)
    array([0.5, 0.5, 0.5])
    """
    return np.full(validation.count(n_sweeps, "n_sweeps"), validation.positive(T, "T"))


def geometric(T0: float, n_sweeps: int, ratio: float | None = None) -> NDArray[np.float64]:
    r"""Return the paper's geometric cooling.

    .. math:: T_n = T_0 \, r^{n / l}, \qquad n = 1, \ldots, l

    Parameters
    ----------
    T0 : float
        The temperature before the first sweep.
    n_sweeps : int
        The number of sweeps l.
    ratio : float, optional
        The last temperature divided by ``T0``, r; the paper's 1 / l^4 by default.

    Returns
    -------
    array of shape (n_sweeps,)

    Examples
    --------
    >>> from gibbsot.schedules import geometric
    >>> geometric(1.0, 4, ratio=1e-4)
    array([0.1   , 0.01  , 0.001 , 0.0001])
    """
    validation.count(n_sweeps, "n_sweeps")
    if ratio is None:
        ratio = float(n_sweeps) ** -4
    return validation.positive(T0, "T0") * validation.positive(ratio, "ratio") ** (
        np.arange(1, n_sweeps + 1) / n_sweeps
    )


def epoch_decay(T: float, m: int, m_bar: float) -> float:
    r"""Return the paper's temperature of the next epoch.

    .. math:: T \left(1 - \sqrt{1 / (m + \bar m)}\right)

    Parameters
    ----------
    T : float
        The temperature of this epoch.
    m : int
        The number of points of the model's measures.
    m_bar : float
        The mean number of points of the data's measures.

    Returns
    -------
    float

    Examples
    --------
    >>> from gibbsot.schedules import epoch_decay
    >>> epoch_decay(1.0, 60, 40.0)
    0.9
    """
    if not m + m_bar > 1:
        raise ValueError(f"m, m_bar: expected numbers of points, got {m!r} and {m_bar!r}")
    return validation.positive(T, "T") * (1 - sqrt(1 / (m + m_bar)))


def temperatures(schedule: Given, n_sweeps: int | None) -> NDArray[np.float64]:
    """Return the temperature of each sweep for a number, an array or a function of the sweep's number (from 1).

    Parameters
    ----------
    schedule : float, array of shape (n_sweeps,), or callable
        The temperature of all sweeps, of each, or as a function of the sweep's number.
    n_sweeps : int, optional
        The number of sweeps; an array has its own.

    Returns
    -------
    array of shape (n_sweeps,)

    Raises
    ------
    ValueError
        If temperatures are not positive, or their number is not known or contradictory.

    Examples
    --------
    >>> from gibbsot.schedules import temperatures
    >>> temperatures(lambda n: 1 / n, 3)
    array([1.        , 0.5       , 0.33333333])
    >>> temperatures([3.0, 2.0], None)
    array([3., 2.])
    """
    if callable(schedule):
        if n_sweeps is None:
            raise ValueError("n_sweeps: expected the number of sweeps, as the schedule is a function of the sweep")
        result = np.array([schedule(n) for n in range(1, n_sweeps + 1)], np.float64)
    else:
        try:
            result = np.asarray(schedule, np.float64)
        except OverflowError:
            raise ValueError("schedule: expected temperatures of at most 1.8e308") from None
        except (TypeError, ValueError):
            what = "Adaptive(), a number, an array or a function"
            raise TypeError(f"schedule: expected {what}, got {schedule!r}") from None
        if result.ndim == 0:
            T = validation.positive(float(result), "schedule")
            if n_sweeps is None:
                raise ValueError("n_sweeps: expected the number of sweeps, as the schedule is one temperature")
            result = np.repeat(T, n_sweeps)
    if result.ndim != 1 or result.size == 0:
        raise ValueError(f"schedule: expected one temperature per sweep, got shape {result.shape}")
    if n_sweeps is not None and len(result) != n_sweeps:
        raise ValueError(f"n_sweeps: {n_sweeps} differs from the {len(result)} temperatures of schedule")
    return validation.temperatures(result, "schedule")
