"""The one place that decides what valid input is.

`check_weights` decides what a valid set of weights is, for arrays, sparse rows, files, tensors and estimators alike;
`sparse_rows` checks the structure of a sparse matrix before compiled code reads it. Every error names the argument,
what was found and what is expected. This module does not load scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from .backend import backend
from .warn import warn

Array = NDArray[np.floating]

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


# --- weights ---------------------------------------------------------------------------------------------------------


class SizeError(ValueError):
    """Measures do not have as many weights as expected."""


def check_weights(rows: Any, name: str, empty_rows: bool = False) -> NDArray[np.float64]:
    """Decide whether rows are valid weights: finite, nonnegative, with a positive sum that does not overflow.

    Parameters
    ----------
    rows : array of shape (n, m), or CSR matrix that `sparse_rows` returned
        The rows to check.
    name : str
        What the caller calls them.
    empty_rows : bool
        Whether a row may have no mass.

    Returns
    -------
    array of shape (n,)
        The sums of the rows.

    Raises
    ------
    ValueError
        If the rows are not valid weights.

    Examples
    --------
    >>> check_weights(np.array([[1.0, 0.0, 3.0]]), "p")
    array([4.])
    """
    values = rows if isinstance(rows, np.ndarray) else rows.data
    if values is rows and values.size:
        mass, low, high = backend().sum_rows(rows)
    else:
        mass, (low, high) = masses(rows), backend().extremes(values) if values.size else (0.0, 0.0)
    # NaN propagates through min and max, so that these two comparisons cover every case
    if not (low >= 0 and high < np.inf):
        _raise_first_bad_weight(rows, values, name)
    if values is rows and low > 0 and high < 1e300 / values.shape[1]:
        return mass  # the usual case, which must be fast for small problems
    if np.isinf(mass).any():
        where = named_row(np.isinf(mass).argmax(), len(mass))
        raise ValueError(f"{name}: {where}has a sum that overflows; scale the weights")
    if not empty_rows and not (mass > 0).all():
        where = named_row((mass == 0).argmax(), len(mass))
        raise ValueError(f"{name}: {where}has no mass; expected a positive weight in every measure")
    return mass


def named_row(row: Any, count: int, end: str = " ") -> str:
    """Return how errors name one of several rows: a measure alone has no number."""
    return f"row {row}{end}" if count > 1 else ""


def _raise_first_bad_weight(rows: Any, values: Array, name: str) -> None:
    bad = ~(np.isfinite(values) & (values >= 0))
    if sparse.issparse(rows):
        entry = np.flatnonzero(bad)[0]
        row, column, value = np.searchsorted(rows.indptr, entry, side="right") - 1, rows.indices[entry], values[entry]
    else:
        row, column = np.argwhere(bad)[0]
        value = values[row, column]
    what = "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else "negative"
    where = f"{named_row(row, rows.shape[0], ', ')}entry {column}"
    text = f"{name}: has {what} weights, the first at {where}; expected finite weights >= 0"
    if name in ("p", "q") and what == "negative" and rows.shape[0] == 1:
        text += "; values of a sample are points, not weights: solve(None, None, PointCost(x, y))"
    raise ValueError(text)


def masses(rows: Any) -> NDArray[np.float64]:
    """Return the sums of dense or sparse rows, inf where a sum overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(rows.sum(axis=1, dtype=np.float64)).ravel()


def measures(
    x: Any, name: str, size: int, *, shape: tuple[int, ...] = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return measures as dense rows of valid weights, not normalised, and their masses.

    Parameters
    ----------
    x : array, list or sparse matrix of shape (size,) or (n, size), or of the grid's shape or (n, *shape)
        The weights; a vector is one row.
    name : str
        What the caller calls them.
    size : int
        The number of weights in a row.
    shape : tuple of int
        The sides of the grid, if the points are on one: a measure or a stack of them may have it.

    Returns
    -------
    weights : array of shape (n, size)
    masses : array of shape (n,)

    Raises
    ------
    ValueError, TypeError
        If x has another shape, or is not valid by `check_weights`.

    Examples
    --------
    >>> measures([[1, 0], [3, 0]], "p", 4, shape=(2, 2))
    (array([[1., 0., 3., 0.]]), array([4.]))
    """
    given = real(x if isinstance(x, np.ndarray) or not sparse.issparse(x) else sparse_rows(x, name).toarray(), name)
    array = np.ascontiguousarray(given, np.float64)
    if array.size == 0:
        raise ValueError(f"{name}: is empty; expected weights of shape ({size},) or (n, {size})")
    if len(shape) > 1 and (array.shape == shape or (array.ndim == len(shape) + 1 and array.shape[1:] == shape)):
        array = array.reshape(-1, size)
    elif array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != size:
        each = " in each measure" if given.ndim > 1 else ""
        grid = f", or images of shape {shape}" if len(shape) > 1 else ""
        if given.ndim == 3 and given.shape[:2] == shape:  # channels
            grid += f" (one channel, or their mean: {name}.mean(axis=2))"
        raise SizeError(f"{name}: expected {size} weights{each}{grid}, got shape {given.shape}")
    return array, check_weights(array, name)


def weights(x: Any, name: str, size: int, *, count: int | None = None) -> NDArray[np.float64]:
    """Return the weights of `measures`, with a given number of rows if there is one."""
    array, _ = measures(x, name, size)
    if count is not None and len(array) != count:
        raise ValueError(f"{name}: expected {count} rows of {size} weights, got {len(array)}")
    return array


def sample_weight(x: Any, count: int) -> NDArray[np.float64]:
    """Return the weights of the measures, one for each; some may be zero."""
    found = np.ascontiguousarray(real(x, "sample_weight"), np.float64)
    if found.shape != (count,):
        raise ValueError(f"sample_weight: expected one for each of the {count} measures, got shape {found.shape}")
    check_weights(found[None], "sample_weight", empty_rows=True)
    return found


def sum_tolerance(x: Any, size: int) -> float:
    """Return how much the sum of n weights may differ, relatively, from that of others, because of rounding."""
    dtype = getattr(x, "dtype", None)
    if dtype == np.float64:
        return 1e-6
    if dtype is None and hasattr(x, "__array__"):  # a table
        dtype = np.asarray(x).dtype
    if isinstance(x, list | tuple):
        return max((sum_tolerance(one, size) for one in x if hasattr(one, "dtype")), default=1e-6)
    if dtype is not None and not isinstance(dtype, np.dtype):  # a tensor
        dtype = np.asarray(x).dtype
    return 1e-6 if dtype is None or dtype.kind != "f" else max(1e-6, 4 * float(np.finfo(dtype).eps) * size)


def rows(x: Any, name: str) -> Any:
    """Return data as rows of valid weights, dense or CSR, float32 or float64; rows without mass are allowed."""
    found = sparse_rows(x, name) if sparse.issparse(x) else real(x, name)
    if found.ndim != 2 or found.shape[1] == 0:
        raise ValueError(f"{name}: expected measures as rows, shape (n, m), got shape {found.shape}")
    check_weights(found, name, empty_rows=True)
    return found


def warn_of_empty(empty: int, first: int, count: int) -> None:
    """Warn of rows without mass; raise if no row has mass."""
    if empty == count:
        raise ValueError("X: has no mass in any row; expected measures")
    if empty:
        warn(f"X: {empty} rows have no mass, the first is row {first}; they are left out")


# --- arrays ----------------------------------------------------------------------------------------------------------


def sparse_rows(x: Any, name: str) -> sparse.csr_array:
    """Return a sparse matrix in canonical CSR format (sorted, no duplicates), after a full check of its indices.

    SciPy's compiled code does not check indices: a matrix whose index arrays were changed would make it read or write
    out of bounds. Duplicate entries are summed. The argument itself is not changed.

    Parameters
    ----------
    x : sparse matrix or array of any format
        A vector becomes one row.
    name : str
        What the caller calls it.

    Returns
    -------
    scipy.sparse.csr_array of float32 or float64

    Raises
    ------
    ValueError
        If indices are out of range, pointers are not monotone, or lengths differ.

    Examples
    --------
    >>> matrix = sparse.csr_array([[1.0, 0.0, 3.0]])
    >>> matrix.indices[0] = 10**7
    >>> sparse_rows(matrix, "p")
    Traceback (most recent call last):
        ...
    ValueError: p: is not a valid sparse matrix (indices must be < 3)
    """
    try:
        found = _compressed(x) if x.format in ("csr", "csc", "bsr") else _coordinates(x)
        if found.ndim == 1:
            found = found.reshape(1, -1)
        found = _compressed(sparse.csr_array(found))
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{name}: is not a valid sparse matrix ({error})") from None
    if found.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got a matrix of {found.dtype}")
    if found.dtype not in (np.float32, np.float64):
        found = found.astype(np.float64)
    if not found.has_canonical_format:
        found = found.copy()
        found.sum_duplicates()
    return found


def checked_structure(x: Any, name: str) -> Any:
    """Return what scikit-learn checks: a sparse matrix as `sparse_rows` does, and arrays that offer only DLPack."""
    if sparse.issparse(x):
        return sparse_rows(x, name)
    return from_dlpack(x) if hasattr(x, "__dlpack__") else x


def _compressed(x: Any) -> Any:
    """Return a view of a CSR, CSC or BSR matrix whose structure has been checked, without cached properties."""
    if x.indices.dtype.kind not in "iu" or x.indptr.dtype.kind not in "iu":
        raise ValueError("indices must be integers")
    view = type(x)((x.data, x.indices, x.indptr), shape=x.shape)
    view.check_format(full_check=True)
    if (np.diff(view.indptr) < 0).any():  # SciPy skips this where the last pointer is 0
        raise ValueError("indptr must be a non-decreasing sequence")
    return view


def _coordinates(x: Any) -> sparse.coo_array:
    """Return a matrix of another format by coordinates, which the constructor checks."""
    coo = x.tocoo()
    coordinates = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
    if any(index.dtype.kind not in "iu" for index in coordinates):
        raise ValueError("indices must be integers")
    return sparse.coo_array((coo.data, coordinates), shape=coo.shape)


def real(x: Any, name: str) -> Array:
    """Return a dense array of float32 or float64: integers become float64."""
    if type(x) is np.ndarray and x.dtype == _DOUBLE:
        return x
    if sparse.issparse(x):
        raise TypeError(f"{name}: expected a dense array, got a sparse one")
    check_mask(x, name)
    if getattr(x, "requires_grad", False):
        raise TypeError(f"{name}: is a tensor that requires a gradient; use gibbsot.torch, or {name}.detach()")
    if isinstance(x, list | tuple) and any(map(_is_array, set(map(type, x)))):
        x = [real(one, f"{name}[{k}]") for k, one in enumerate(x)]
    try:
        array = np.asarray(from_dlpack(x))
    except ValueError:
        raise ValueError(f"{name}: expected a rectangular array of numbers") from None
    except (
        TypeError,
        RuntimeError,
        BufferError,
    ) as error:  # a tensor of a type or on a device that NumPy does not know
        raise TypeError(f"{name}: expected an array of real numbers, got a {type(x).__name__} ({error})") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got {_text_columns(x) or f'an array of {array.dtype}'}")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _text_columns(x: Any) -> str:
    """Return which columns of a table, of pandas or polars, have no numbers; nothing for other arrays."""
    columns = getattr(x, "columns", None)
    if columns is None and hasattr(x, "dtype") and isinstance(getattr(x, "name", None), str):
        return f"text in column {x.name!r}"  # a Series
    if columns is None or not hasattr(x, "dtypes"):
        return ""
    bad = [str(name) for name in columns if np.asarray(x[name]).dtype.kind not in "fiub"]
    return f"text in column {', '.join(map(repr, bad[:3]))}" if bad else ""


def from_dlpack(x: Any) -> Any:
    """Return an array that offers DLPack and nothing that NumPy prefers as an array of NumPy; all else as it is."""
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return x


def check_mask(x: Any, name: str) -> None:
    """Refuse masked entries, which NumPy and scikit-learn take for valid ones."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.getmaskarray(x).any():
        raise ValueError(f"{name}: has masked entries; expected an array without a mask, see {name}.filled")


def check_array(x: Any, name: str) -> None:
    """Refuse what scikit-learn would misread, or would refuse without a word of what is expected."""
    check_mask(x, name)
    if hasattr(x, "columns") and hasattr(x, "dtypes"):
        columns = [one for one in x.columns if getattr(x[one], "ndim", 1) == 1]  # else several have this name
        text = [str(one) for one in columns if len(x) and isinstance(next(iter(x[one])), str)]
        if text:
            raise TypeError(f"{name}: expected real numbers, got text in column {', '.join(map(repr, text[:3]))}")
    if isinstance(x, list | tuple):
        for k, row in enumerate(x):
            check_mask(row, f"{name}[{k}]")
        if len(sizes := {len(row) for row in x if isinstance(row, list | tuple) or np.ndim(row)}) > 1:
            raise ValueError(f"{name}: has rows of several lengths; expected a rectangular array, got {sorted(sizes)}")


def _is_array(kind: type) -> bool:
    """Tell whether this is a type of arrays or tensors, not of numbers."""
    return hasattr(kind, "dtype") and not issubclass(kind, np.generic)


def precision(dtype: DTypeLike | None, *arrays: Array) -> np.dtype[Any]:
    """Return the given dtype, by default float32 if all arrays have it, else float64."""
    if dtype is None:
        for a in arrays:
            if a.dtype != _SINGLE:
                return _DOUBLE
        return _SINGLE if arrays else _DOUBLE
    try:
        precision = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype!r}") from None
    if precision not in (np.float32, np.float64):
        raise ValueError(f"dtype: expected float32 or float64, got {precision}")
    return precision


def ids(x: ArrayLike | None, n: int) -> NDArray[np.uint64]:
    """Return the ids of n problems, which with the key determine their noise; by default 0 to n - 1."""
    found = np.arange(n) if x is None else np.asarray(x)
    if found.dtype.kind not in "iu":
        raise TypeError(f"ids: expected integers, got {found.dtype}")
    if found.shape != (n,) or (found < 0).any():
        raise ValueError(f"ids: expected one number >= 0 for each of the {n} problems, got {x!r}")
    return found.astype(np.uint64)


def temperatures(x: ArrayLike, name: str, dtype: DTypeLike = np.float64) -> NDArray[np.float64]:
    """Return temperatures as float64: positive numbers in the normal range of the precision to compute in."""
    T, limits = real(x, name).astype(np.float64, copy=False), np.finfo(dtype)
    if not ((limits.tiny <= T) & (limits.max >= T)).all():
        raise ValueError(f"{name}: expected positive numbers in the range of {np.dtype(dtype)}")
    return T


# --- costs -----------------------------------------------------------------------------------------------------------


def check_costs(M: Array, name: str, dtype: np.dtype[Any]) -> bool:
    """Refuse NaN, -inf, rows and columns without a finite cost, and magnitudes beyond the precision.

    Return whether all costs are finite.
    """
    low, high = backend().extremes(M)  # NaN propagates
    largest = max(-low, high)
    finite = largest < np.inf
    if not finite:
        for value, found in (("NaN", np.isnan(low)), ("-inf", low == -np.inf)):
            if found:
                raise ValueError(f"{name}: has {value}; expected finite costs, or inf for a forbidden pair")
        allowed = np.isfinite(M)
        for axis, what in ((1, "row"), (0, "column")):
            empty = np.flatnonzero(~allowed.any(axis=axis))
            if len(empty):
                raise ValueError(
                    f"{name}: {what} {empty[0]} has only infinite costs; expected a finite one in every {what}"
                )
        largest = float(np.abs(M).max(where=allowed, initial=0.0))
    check_range(largest, name, dtype)
    return finite


def check_range(largest: float, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse a largest cost that is too large, or too small, for the precision."""
    if largest != 0 and not in_range(largest, dtype):
        raise ValueError(f"{name}: the largest cost is {largest:.3g}, beyond the range of {dtype}; scale the costs")


def in_range(largest: float, dtype: np.dtype[Any]) -> bool:
    """Tell whether a largest cost that is not zero suits the precision."""
    return _least_cost(dtype) <= largest <= largest_cost(dtype)


@cache
def largest_cost(dtype: np.dtype[Any]) -> float:
    """Return the largest cost that a precision allows."""
    return float(1e-6 * np.finfo(dtype).max)


@cache
def _least_cost(dtype: np.dtype[Any]) -> float:
    """Return the least largest cost that a precision allows."""
    return float(1e20 * np.finfo(dtype).tiny)


def points(X: ArrayLike, name: str) -> Array:
    """Return finite points as rows; a vector is a set of points on the line."""
    return points_and_extremes(X, name)[0]


def points_and_extremes(X: ArrayLike, name: str) -> tuple[Array, tuple[float, float]]:
    """Return `points`, and their least and largest coordinate, which were looked at to check them."""
    points = real(X, name)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"{name}: expected points as rows, shape (m, d), got shape {points.shape}")
    low, high = ends = backend().extremes(points)  # NaN propagates; a small problem takes as long as np.isfinite
    if not (low > -math.inf and high < math.inf):
        raise ValueError(f"{name}: has NaN or infinite coordinates; expected finite ones")
    return points, ends


def sides(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the sides of a grid in one to three dimensions."""
    sides = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in sides):
        raise TypeError(f"shape: expected integers, got {shape!r}")
    if not 1 <= len(sides) <= 3 or min(sides) < 1:
        raise ValueError(f"shape: expected one to three sides of at least 1, got {shape!r}")
    return tuple(int(n) for n in sides)


def spacings(spacing: float | Sequence[float] | None, sides: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the distance of neighbours along each axis of a grid, by default one over the longest side."""
    if spacing is None:
        spacing = 1 / max(sides)
    try:
        values = np.asarray(spacing, np.float64)
    except OverflowError:
        raise ValueError("spacing: expected numbers of at most 1.8e308") from None
    except (TypeError, ValueError):
        raise TypeError(f"spacing: expected numbers, got {spacing!r}") from None
    if values.ndim > 1 or (values.ndim == 1 and len(values) != len(sides)):
        raise ValueError(f"spacing: expected one number or one per axis ({len(sides)}), got shape {values.shape}")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"spacing: expected positive numbers, got {spacing!r}")
    return np.full(len(sides), values)  # np.broadcast_to takes as long as a small problem


def leading(first: Sequence[int], other: Sequence[int], name: str = "p", other_name: str = "q") -> tuple[int, ...]:
    """Return the shape that leading dimensions are broadcast to: one measure is paired with many.

    Shapes of different lengths, such as (B,) and (B, 1), would make all pairs, which nobody asks for in this way.
    """
    if len(first) == len(other) or {*first} <= {1} or {*other} <= {1}:
        n = max(len(first), len(other))
        pairs = list(zip(*((1,) * (n - len(x)) + tuple(x) for x in (first, other)), strict=True))
        if all(a == b or 1 in (a, b) for a, b in pairs):
            return tuple(b if a == 1 else a for a, b in pairs)
    match = f"that match those of {name}, {tuple(first)}, or one measure"
    raise ValueError(f"{other_name}: expected leading dimensions {match}; got {tuple(other)}")


# --- numbers and options ---------------------------------------------------------------------------------------------


def integer(x: Any, name: str) -> int:
    """Return an integer; a bool is refused."""
    if isinstance(x, bool) or not isinstance(x, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {x!r}")
    return int(x)


def count(x: Any, name: str, most: int | None = None) -> int:
    """Return a positive integer, of at most so much."""
    if integer(x, name) < 1:
        raise ValueError(f"{name}: expected at least 1, got {shown(x)}")
    if most is not None and x > most:
        raise ValueError(f"{name}: expected at most {most:,}, got {shown(x)}")
    return int(x)


def check_rng(rng: Any, bits: int = 64) -> None:
    """Refuse what is not a source of noise: see `noise_key`."""
    if not isinstance(rng, np.random.Generator | None) and not 0 <= integer(rng, "rng") < 2**bits:
        raise ValueError(
            f"rng: expected an integer from 0 to 2**{bits} - 1 or a numpy.random.Generator, got {shown(rng)}"
        )


def noise_key(rng: int | np.random.Generator | None, bits: int = 64) -> int:
    """Return the key of the noise: an integer is the key, a generator draws one, and None is 0."""
    check_rng(rng, bits)
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**bits, dtype=np.uint64))
    return 0 if rng is None else int(rng)


def number(x: Any, name: str) -> float:
    """Return a real number; a bool is refused."""
    if isinstance(x, bool) or not isinstance(x, int | float | np.number):
        raise TypeError(f"{name}: expected a number, got {x!r}")
    try:
        return float(x)
    except OverflowError:
        raise ValueError(f"{name}: expected a number of at most 1.8e308, got {shown(x)}") from None


def shown(x: Any) -> str:
    """Return a value for a message; of an integer with many digits only how large it is."""
    bits = x.bit_length() if isinstance(x, int) else 0
    return repr(x) if bits <= 128 else f"an integer of {bits} bits"


def positive(x: Any, name: str) -> float:
    """Return a positive and finite number."""
    if not 0 < number(x, name) < np.inf:
        raise ValueError(f"{name}: expected a positive number, got {x!r}")
    return float(x)


def nonnegative(x: Any, name: str) -> float:
    """Return a finite number that is not negative."""
    if not 0 <= number(x, name) < np.inf:
        raise ValueError(f"{name}: expected a number >= 0, got {x!r}")
    return float(x)


def positive_pair(x: Any, name: str, what: str) -> tuple[float, float]:
    """Return two positive numbers, given as a pair or as one number for both."""
    pair = (x, x) if isinstance(x, int | float | np.number) else x
    if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        raise ValueError(f"{name}: expected a number or one for {what}, got {x!r}")
    return positive(pair[0], name), positive(pair[1], name)


def initial_temperature(x: float | str) -> float | None:
    """Return an initial temperature, None for "auto"."""
    if isinstance(x, str):
        if x != "auto":
            raise ValueError(f"temperature: expected 'auto' or a positive number, got {x!r}")
        return None
    return positive(x, "temperature")


def flag(x: Any, name: str) -> bool:
    """Return True or False; other values are refused."""
    if not isinstance(x, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {x!r}")
    return bool(x)


def choice(x: Any, name: str, options: Sequence[str]) -> str:
    """Return one of the options."""
    if not isinstance(x, str) or x not in options:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, options))}, got {x!r}")
    return x


def callbacks(x: Any) -> None:
    """Check the functions that are called after every epoch."""
    if not isinstance(x, Sequence) or not all(map(callable, x)):
        raise ValueError(f"callbacks: expected a sequence of functions, got {x!r}")
