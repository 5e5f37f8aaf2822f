"""What the scikit-learn estimators share: how data, costs and parameters are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_non_negative, validate_data

from ..core import validation
from ..core.costs import Cost, GridCost, as_cost
from ..distributed import backend, shard
from ..distributed.local import Shards

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
    X = validation.checked_structure(X, "X")  # before scikit-learn reads its indices
    X = validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
    check_non_negative(X, f"{type(estimator).__name__} (X)")  # check_estimator expects the words of scikit-learn
    empty = validation.check_weights(X, "X", empty_rows=True) == 0
    validation.warn_of_empty(int(empty.sum()), int(empty.argmax()), len(empty), depth)
    return X


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
    validation.initial_temperature(estimator.temperature)
    validation.nonnegative(estimator.tol, "tol")
    validation.callbacks(estimator.callbacks)


def stopped(estimator: Any) -> bool:
    """Call all of a model's callbacks; return whether one of them wants it to stop."""
    return True in [callback(estimator) for callback in estimator.callbacks]


def seed(random_state: Any) -> int:
    """Return a seed of the sampler, the same for the same integer."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def smooth(x: Array, towards: Array) -> Array:
    """Return rows of weights moved a little towards others, so that none is zero where those are not."""
    mass = x.sum(axis=1, keepdims=True)
    rows = np.divide(x, mass, out=np.tile(towards, (len(x), 1)), where=mass > 0)
    return (1 - SMOOTHING) * rows + SMOOTHING * towards


def shards_of(estimator: Any, kind: Any, X: Any, reset: bool = False) -> Shards:
    """Return data as parts of a kind, in this process or on the workers of the estimator's client."""
    given = shard.sources(X)
    whole = None if given is not None else measures(estimator, X, reset, depth=5)
    if given is None and estimator.client is None:
        found = Shards([kind(whole)])
    else:
        found = backend.read(estimator.client, kind, [whole] if given is None else given)
    if given is not None:
        try:
            _check(estimator, found.facts, reset)
        except BaseException:
            found.close()
            raise
    return found


def _check(estimator: Any, facts: list[shard.Facts], reset: bool) -> None:
    """Check that parts go together, and warn of rows without mass."""
    for k, fact in enumerate(facts):
        if fact.columns != facts[0].columns:
            raise ValueError(f"X[{k}]: has {fact.columns} columns; expected {facts[0].columns} as in X[0]")
    if reset:
        estimator.n_features_in_ = facts[0].columns
    elif facts[0].columns != estimator.n_features_in_:
        raise ValueError(f"X: has {facts[0].columns} columns; expected {estimator.n_features_in_} as in the fit")
    starts = np.cumsum([0, *(fact.size for fact in facts)])
    validation.warn_of_empty(
        sum(fact.size - fact.full for fact in facts),
        next((int(start) + fact.empty for start, fact in zip(starts, facts, strict=False) if fact.empty >= 0), -1),
        int(starts[-1]),
        depth=5,
    )
