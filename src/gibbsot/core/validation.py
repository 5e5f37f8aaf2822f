"""What counts as good input: every error names the argument, what was wrong and what is expected."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

Array = NDArray[np.floating]


def real(x: ArrayLike, name: str) -> Array:
    """Return an array of float32 or float64: integers become float64."""
    if sparse.issparse(x):
        raise TypeError(f"{name}: expected a dense array, got a sparse one; use .toarray()")
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name}: expected a rectangular array of numbers") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got an array of {array.dtype}")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def seed(x: int) -> int:
    """Return a seed of the noise: an integer of 64 bits."""
    if not 0 <= integer(x, "seed") < 2**64:
        raise ValueError(f"seed: expected an integer from 0 to 2**64 - 1, got {x}")
    return int(x)


def precision(dtype: DTypeLike | None, *arrays: Array) -> np.dtype[Any]:
    """Return the dtype asked for, or that of the arrays: float32 if all are, else float64."""
    if dtype is None:
        return np.dtype(np.float32 if arrays and all(a.dtype == np.float32 for a in arrays) else np.float64)
    try:
        precision = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype!r}") from None
    if precision not in (np.float32, np.float64):
        raise ValueError(f"dtype: expected float32 or float64, got {precision}")
    return precision


def check_costs(M: Array, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse NaN, -inf, rows and columns without a finite cost, and sizes beyond the precision."""
    finite = np.isfinite(M)
    if not finite.all():
        for value, found in (("NaN", np.isnan(M).any()), ("-inf", np.isneginf(M).any())):
            if found:
                raise ValueError(f"{name}: has {value}; expected finite costs, or inf for a forbidden pair")
        for axis, what in ((1, "row"), (0, "column")):
            empty = np.flatnonzero(~finite.any(axis=axis))
            if len(empty):
                raise ValueError(
                    f"{name}: {what} {empty[0]} has only infinite costs; expected a finite one in every {what}"
                )
    largest, limits = np.abs(M).max(where=finite, initial=0.0), np.finfo(dtype)
    if largest > 1e-6 * limits.max or 0 < largest < 1e20 * limits.tiny:
        raise ValueError(
            f"{name}: the largest cost is {largest:.3g}, beyond what {dtype} computes with; scale the costs"
        )


def points(X: ArrayLike, name: str) -> Array:
    """Return points as rows; a vector stands for points on the line."""
    points = real(X, name)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"{name}: expected points as rows, shape (m, d), got shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError(f"{name}: has NaN or infinite coordinates; expected finite ones")
    return points


def sides(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the sides of a grid."""
    sides = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in sides):
        raise TypeError(f"shape: expected integers, got {shape!r}")
    if not 1 <= len(sides) <= 3 or min(sides) < 1:
        raise ValueError(f"shape: expected one to three sides of at least 1, got {shape!r}")
    return tuple(int(n) for n in sides)


def spacings(spacing: float | Sequence[float] | None, sides: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the distance of neighbours along each axis."""
    if spacing is None:
        spacing = 1 / max(sides)
    try:
        values = np.asarray(spacing, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"spacing: expected numbers, got {spacing!r}") from None
    if values.ndim > 1 or (values.ndim == 1 and len(values) != len(sides)):
        raise ValueError(f"spacing: expected one number or one an axis ({len(sides)}), got shape {values.shape}")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"spacing: expected positive numbers, got {spacing!r}")
    return np.broadcast_to(values, (len(sides),))


def integer(x: Any, name: str) -> int:
    """Return an integer, which True is not."""
    if isinstance(x, bool) or not isinstance(x, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {x!r}")
    return int(x)


def count(x: Any, name: str) -> int:
    """Return a positive integer."""
    if integer(x, name) < 1:
        raise ValueError(f"{name}: expected at least 1, got {x}")
    return int(x)


def number(x: Any, name: str) -> float:
    """Return a real number, which True is not."""
    if isinstance(x, bool) or not isinstance(x, int | float | np.number):
        raise TypeError(f"{name}: expected a number, got {x!r}")
    return float(x)


def positive(x: Any, name: str) -> float:
    """Return a positive and finite number."""
    if not 0 < number(x, name) < np.inf:
        raise ValueError(f"{name}: expected a positive number, got {x!r}")
    return float(x)


def rows(X: Any, name: str) -> Any:
    """Return data as rows of weights >= 0, dense or sparse, without an estimator."""
    from sklearn.utils.validation import check_array, check_non_negative  # slow to load

    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=0, input_name=name)
    if X.shape[0]:
        check_non_negative(X, name)
    finite_masses(masses(X), name)
    return X


def warn_of_empty(empty: int, first: int, count: int, depth: int) -> None:
    """Warn the user, so many calls above, of rows without mass; raise if there are no others."""
    if empty == count:
        raise ValueError("X: has no mass in any row; expected measures")
    if empty:
        warnings.warn(f"X: {empty} rows have no mass, the first is row {first}; they are left out", stacklevel=depth)


def finite_masses(mass: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return sums of rows, if none of them overflows."""
    if np.isinf(mass).any():
        row = np.flatnonzero(np.isinf(mass))[0]
        raise ValueError(f"{name}: row {row} has a sum that overflows; scale the weights")
    return mass


def masses(X: Any) -> NDArray[np.float64]:
    """Return the sums of rows."""
    with np.errstate(over="ignore"):
        return np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
