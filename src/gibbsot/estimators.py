"""What the scikit-learn estimators share: how data, costs and parameters are checked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_non_negative, validate_data

from . import checks
from .costs import Cost, GridCost, as_cost

Array = NDArray[np.float64]

SMOOTHING = 0.01  # of a start: a weight that is zero would stay zero


class OfMeasures(BaseEstimator):  # type: ignore[misc]
    """What estimators of measures share that take a Dask client: copies have none, and clones the same one."""

    client: Any

    def __getstate__(self) -> dict[str, Any]:
        known: dict[str, Any] = super().__getstate__()
        # what is on the client's workers cannot be copied either
        return known if self.client is None else known | {"client": None, "_run": None}

    def __sklearn_clone__(self) -> Any:
        parameters = self.get_params(deep=False)
        client = parameters.pop("client")
        return type(self)(client=client, **{name: clone(value, safe=False) for name, value in parameters.items()})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


def measures(estimator: Any, X: Any, reset: bool = False, depth: int = 4) -> Any:
    """Return data as rows of weights >= 0, dense or sparse, of which some have mass; warn of those that have none."""
    X = validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
    check_non_negative(X, f"{type(estimator).__name__} (X)")
    empty = _finite(masses(X), "X") == 0
    warn_of_empty(int(empty.sum()), int(empty.argmax()), len(empty), depth)
    return X


def rows(X: Any, name: str) -> Any:
    """Return data as rows of weights >= 0, dense or sparse, without an estimator."""
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=0, input_name=name)
    if X.shape[0]:
        check_non_negative(X, name)
    _finite(masses(X), name)
    return X


def warn_of_empty(empty: int, first: int, count: int, depth: int) -> None:
    """Warn the user, so many calls above, of rows without mass; raise if there are no others."""
    if empty == count:
        raise ValueError("X: has no mass in any row; expected measures")
    if empty:
        warnings.warn(f"X: {empty} rows have no mass, the first is row {first}; they are left out", stacklevel=depth)


def _finite(mass: Array, name: str) -> Array:
    if np.isinf(mass).any():
        row = np.flatnonzero(np.isinf(mass))[0]
        raise ValueError(f"{name}: row {row} has a sum that overflows; scale the weights")
    return mass


def masses(X: Any) -> Array:
    """Return the sums of rows."""
    with np.errstate(over="ignore"):
        return np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()


def square_cost(cost: Cost | ArrayLike | None, size: int) -> Cost:
    """Return the cost between bins, which by default lie on a line."""
    checked = GridCost(size) if cost is None else as_cost(cost)
    if checked.shape != (size, size):
        raise ValueError(
            f"cost: is for {checked.shape[0]} x {checked.shape[1]} points; expected {size} x {size} as in X"
        )
    if not checked.finite:
        raise ValueError("cost: has infinite costs; expected finite ones, as a model may put weight anywhere")
    return checked


def parameters(estimator: Any) -> None:
    """Check the parameters that all models have."""
    temperature(estimator.temperature)
    tolerance(estimator.tol)
    callbacks(estimator.callbacks)


def stopped(estimator: Any) -> bool:
    """Call all of a model's callbacks; return whether one of them wants it to stop."""
    return True in [callback(estimator) for callback in estimator.callbacks]


def temperature(value: float | str) -> None:
    """Check a first temperature."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"temperature: expected 'auto' or a positive number, got {value!r}")
    else:
        checks.positive(value, "temperature")


def tolerance(value: float) -> None:
    """Check a tolerance."""
    if checks.number(value, "tol") < 0:
        raise ValueError(f"tol: expected a number >= 0, got {value!r}")


def callbacks(value: Any) -> None:
    """Check what is called after every epoch."""
    if not isinstance(value, Sequence):
        raise ValueError(f"callbacks: expected a sequence of functions, got {value!r}")


def seed(random_state: Any) -> int:
    """Return a seed of the sampler, the same for the same integer."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def smooth(x: Array, towards: Array) -> Array:
    """Return rows of weights moved a little towards others, so that none is zero where those are not."""
    mass = x.sum(axis=1, keepdims=True)
    rows = np.divide(x, mass, out=np.tile(towards, (len(x), 1)), where=mass > 0)
    return (1 - SMOOTHING) * rows + SMOOTHING * towards
