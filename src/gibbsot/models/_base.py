"""What the scikit-learn estimators share: the checks of data, costs and parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, metadata
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_non_negative, validate_data

from ..core import validation
from ..costs import Cost
from ..distributed import sources
from ..distributed.shard import ChainShard, Metadata, Shard
from ..distributed.shards import LocalShards, Shards, read_shards
from ..exact.certificate import PROVED, warning
from ..solvers.solve import solve_batch
from . import _costs
from .geometry import sets as _sets

Array = NDArray[np.float64]
C = TypeVar("C", bound=ChainShard[Any])

SMOOTHING = 0.01  # of initial weights: a weight of zero would stay zero
_NUMBERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("n_components", "max_epochs", "batch_size", "tau"), validation.count),
    "checkpoint_seconds": validation.positive,
    **dict.fromkeys(("alpha", "divergence", "gap", "tol"), validation.nonnegative),
    **dict.fromkeys(("max_memory", "max_seconds"), lambda x, name: x is None or validation.positive(x, name)),
    "temperature": lambda T, _: validation.initial_temperature(T),
}


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: notebooks link to their documentation, once it has an address."""

    def _get_doc_link(self) -> str:
        """Return the address of the API page, which scikit-learn puts into the HTML; empty if there is none."""
        try:
            urls = metadata("gibbsot").get_all("Project-URL") or []
        except PackageNotFoundError:
            return ""
        site = dict(url.split(", ", 1) for url in urls).get("Documentation")
        return f"{site.rstrip('/')}/api/generated/gibbsot.{type(self).__name__}.html" if site else ""


class MeasuresEstimator(Estimator):
    """Base of estimators whose data are measures as rows, dense or sparse."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


class MeasuresTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MeasuresEstimator):  # type: ignore[misc]
    """Base of transformers of measures."""


class ClientEstimator(MeasuresEstimator):
    """Base of estimators with a Dask client: copies and pickles have none, clones the same one."""

    client: Any

    def __getstate__(self) -> dict[str, Any]:
        known: dict[str, Any] = super().__getstate__()
        # the shards on the client's workers cannot be copied either
        return known if self.client is None else known | {"client": None, "_run": None}

    def __sklearn_clone__(self) -> Any:
        parameters = self.get_params(deep=False)
        client = parameters.pop("client")
        copy = type(self)(client=client, **{name: clone(value, safe=False) for name, value in parameters.items()})
        output = "_sklearn_output_config"  # of set_output, which scikit-learn's own clone keeps
        if output in self.__dict__:
            copy.__dict__[output] = dict(self.__dict__[output])
        return copy


def measures(estimator: Any, X: Any, reset: bool = False) -> Any:
    """Return validated rows of weights >= 0, dense or sparse, some with mass; warn of those without.

    Parameters
    ----------
    estimator : estimator
        The estimator that the data are for.
    X : array or sparse matrix of shape (n, m)
        Measures as rows.
    reset : bool
        Whether to set the estimator's number of features; otherwise X must have it.

    Returns
    -------
    array or CSR matrix of shape (n, m)
    """
    X = validation.checked_structure(X, "X")  # before scikit-learn reads its indices
    validation.check_array(X, "X")
    if isinstance(X, np.ndarray) and X.ndim > 2:
        raise ValueError(
            f"X: has shape {X.shape}; expected measures as rows, shape (n, m): images are to be flattened with "
            f"X.reshape(len(X), -1){_hint(estimator)}"
        )
    X = validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
    check_non_negative(X, f"{type(estimator).__name__} (X)")  # check_estimator expects the words of scikit-learn
    empty = validation.check_weights(X, "X", empty_rows=True) == 0
    validation.warn_of_empty(int(empty.sum()), int(empty.argmax()), len(empty))
    return X


def _hint(estimator: Any) -> str:
    """Return what an estimator has for a stack of clouds, for a message."""
    return ", and clouds need support='free'" if getattr(estimator, "support", "") == "fixed" else ""


def check_parameters(estimator: Any, **resolved: Any) -> None:
    """Check the numbers, the cost and the callbacks among the parameters of an estimator, or what they stand for."""
    parameters = estimator.get_params(deep=False) | resolved
    for name, value in parameters.items():
        if name in _NUMBERS:
            _NUMBERS[name](value, name)
        elif name in ("feature_vectors", "label_vectors"):
            _costs.check(parameters["cost"], value, name)
    validation.callbacks(estimator.callbacks)


def check_support(estimator: Any, fixed: tuple[str, ...], free: tuple[str, ...]) -> None:
    """Check the parameter ``support``, and that those of the other support have their defaults."""
    support = validation.choice(estimator.support, "support", ("fixed", "free"))
    parameters = signature(type(estimator)).parameters
    for name in free if support == "fixed" else fixed:
        value, default = getattr(estimator, name), parameters[name].default
        if not (isinstance(value, type(default)) and value == default):
            raise ValueError(
                f"{name}: does not apply to support={estimator.support!r}; expected its default, {default!r}"
            )


def cost_of(estimator: Any, data: Any) -> Cost:
    """Return the cost that the parameters ``cost`` and ``feature_vectors`` of an estimator stand for, for checked data.

    Parameters
    ----------
    estimator : estimator
        The estimator, which knows the number and perhaps the names of its features.
    data : array or sparse matrix of shape (n, m), or list of shards
        The data.

    Returns
    -------
    Cost
    """
    size, names = estimator.n_features_in_, getattr(estimator, "feature_names_in_", None)
    return _costs.feature_cost(estimator.cost, size, estimator.feature_vectors, data, names)


def seed(random_state: Any) -> int:
    """Return the seed of the sampler."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def smooth(x: Array, towards: Array) -> Array:
    """Return normalised rows mixed with a little of other weights, so that none is zero where those are not."""
    mass = x.sum(axis=1, keepdims=True)
    rows = np.divide(x, mass, out=np.tile(towards, (len(x), 1)), where=mass > 0)
    return (1 - SMOOTHING) * rows + SMOOTHING * towards


def shards_of(estimator: Any, kind: type[C], X: Any, reset: bool = False) -> Shards[C]:
    """Return data as shards of a class, in this process or on the workers of the estimator's client.

    Parameters
    ----------
    estimator : estimator
        The estimator that the data are for.
    kind : class
        The class of the shards.
    X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
        Measures as rows.
    reset : bool
        Whether to set the estimator's number of features; otherwise X must have it.

    Returns
    -------
    Shards
    """
    given = sources.split(X)
    if given is None:
        whole = measures(estimator, X, reset)
        return LocalShards([kind(whole)]) if estimator.client is None else read_shards(estimator.client, kind, [whole])
    found = read_shards(estimator.client, kind, given)
    try:
        check_shards(estimator, found.metadata, reset)
    except BaseException:
        found.close()
        raise
    return found


def batches(estimator: Any, X: Any, reset: bool = False) -> _sets.Batches:
    """Return data in batches, each of which is read when its turn comes, after a first reading that checks them all.

    Parameters
    ----------
    estimator, X, reset
        As for `shards_of`.

    Returns
    -------
    Batches
        Of valid rows: one for each shard, or one if the data do not come in shards.
    """
    given = sources.split(X)
    if given is None:
        whole = measures(estimator, X, reset)
        return _sets.Batches([whole], [whole.shape[0]], n_empty=int((validation.masses(whole) == 0).sum()))

    def read(source: Any, k: int) -> Any:
        return sources.read(source, f"X[{k}]")

    def size(X: Any) -> Metadata:
        return Metadata.of(X, validation.masses(X))

    metadata = [size(read(source, k)) for k, source in enumerate(given)]
    check_shards(estimator, metadata, reset)
    n_empty = sum(one.n_rows - one.n_measures for one in metadata)
    return _sets.Batches(given, [one.n_rows for one in metadata], read, n_empty)


def map_dask(estimator: Any, X: Any, function: Callable[[Any], Any], n_columns: int, dtype: Any = None) -> Any:
    """Return the Dask array of what a fitted estimator's function makes of each block of a Dask array."""
    from ..distributed.dask import map_rows  # an optional extra

    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(f"X: has shape {X.shape}; expected {estimator.n_features_in_} columns as in the fit")
    return map_rows(X, function, n_columns, dtype)


class SavedFit(NamedTuple):
    """A fit in a checkpoint: its shards without data, its state as arrays, the folder, the checksums of its files."""

    shards: Shards[Any]
    state: dict[str, Any]
    folder: str
    checksums: list[str]


def saved_parameters(model: BaseEstimator) -> dict[str, Any]:
    """Return the parameters of a model that files hold, as arrays; no file says where to write."""
    given = model.get_params(deep=False).items()
    return {
        f"parameter_{name}": value
        for name, value in given
        if isinstance(value, str | Real) and name not in ("cost", "checkpoint")
    }


def attach(estimator: Any, shards: Shards[Any], X: Any) -> None:
    """Give the shards of a fit that is resumed their data, or check that they have them; X is read once.

    Parameters
    ----------
    estimator : estimator
        The estimator that the data are for.
    shards : Shards
        The shards of the fit.
    X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
        The data of the fit.

    Raises
    ------
    ValueError
        If they differ from the data of the fit.
    """
    given = sources.split(X)
    if given is None:
        given = [measures(estimator, X)]
    attach_sources(shards, given)


def attach_sources(shards: Shards[Any], given: list[Any]) -> None:
    """Give each shard its data, or check that it has them; there is one entry for each.

    Parameters
    ----------
    shards : Shards
        The shards of a fit that is resumed.
    given : list of matrices, paths or objects of Dask
        The data of the fit.

    Raises
    ------
    ValueError
        If they differ from the data of the fit.
    """
    if len(given) != len(shards):
        expected = f"the same measures, in the same {len(shards)} shards"
        raise ValueError(f"X: differs from the data of the fit, it has {len(given)} shards; expected {expected}")
    shards.attach(given)


def mean_cost(
    P: Array, targets: Any, cost: Cost, weights: NDArray[np.floating] | None, **options: Any
) -> tuple[float, list[str]]:
    """Return the mean transport cost of predictions to targets, exact within a budget, and what stays open.

    Parameters
    ----------
    P, targets : arrays of shape (n, m), or sparse matrices
        Measures as rows, which are normalised.
    cost : Cost
        The cost.
    weights : array of shape (n,), optional
        Weights of the rows in the mean.
    **options
        Of `solve_batch`: ``n_jobs``, ``max_seconds`` and ``max_memory``.

    Returns
    -------
    value : float
        The mean of the costs of plans, certified upper bounds.
    reasons : list of str
        A sentence on the gaps that stay open; empty if there are none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the caller warns once
        result = solve_batch(P, targets, cost, normalize=True, **options)
    open_gaps = np.array([status not in PROVED for status in np.atleast_1d(result.status)])
    reasons = []
    if open_gaps.any():
        why = [reason for reason, left in zip(np.atleast_1d(result.reason), open_gaps, strict=True) if left]
        reasons = [warning(np.atleast_1d(result.gap)[open_gaps].tolist(), why, len(open_gaps), "exact costs")]
    return float(np.average(result.upper_bound if reasons else result.value, weights=weights)), reasons


def sample_weights(given: ArrayLike | None, shards: Shards[Any]) -> Array | None:
    """Return the weights of the measures with mass, from those of all rows; None if all are one."""
    if given is None:
        return None
    full = np.concatenate(shards.collect(Shard.has_mass))
    weights = validation.sample_weight(given, len(full))
    if not weights[full].any():
        raise ValueError("sample_weight: is zero for every measure with mass; expected a positive one")
    return np.asarray(weights[full])


def check_shards(estimator: Any, metadata: list[Metadata], reset: bool) -> None:
    """Check that shards have the same columns, and warn of rows without mass."""
    columns = metadata[0].n_columns
    for k, one in enumerate(metadata):
        if one.n_columns != columns:
            raise ValueError(f"X[{k}]: has {one.n_columns} columns; expected {columns} as in X[0]")
    if reset:
        estimator.n_features_in_ = columns
    elif columns != estimator.n_features_in_:
        raise ValueError(f"X: has {columns} columns; expected {estimator.n_features_in_} as in the fit")
    starts = np.cumsum([0, *(one.n_rows for one in metadata)])
    empty = (int(start) + one.first_empty for start, one in zip(starts, metadata, strict=False) if one.first_empty >= 0)
    n_empty = sum(one.n_rows - one.n_measures for one in metadata)
    validation.warn_of_empty(n_empty, next(empty, -1), int(starts[-1]))
