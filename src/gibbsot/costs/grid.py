"""Costs on grids: sums over the axes, whose matrix is never formed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..core import validation
from ..core.backend import backend
from ..core.double_double import DoubleDouble
from .base import Array, Coarser, Cost, Exact, Geometry, Positions, frozen, spread_of
from .network import Network
from .points import PointCost

if TYPE_CHECKING:
    from typing import Self


_LONGEST = 65_536  # points of an axis, whose matrix is stored


class GridCost(Cost):
    r"""A cost on a grid in one to three dimensions that is a sum over the axes.

    .. math:: M_{xy} = \sum_a |s_a (x_a - y_a)|^p

    A c-transform is a small c-transform per axis, so a sweep over m points costs ``2 m (n_1 + ... + n_d)``
    additions and the m x m matrix is never formed. A measure on the grid is a vector of m weights in C order, that is,
    ``image.ravel()``.

    Parameters
    ----------
    shape : tuple of int
        Sides of the grid, one to three; may be left out when ``matrices`` is given.
    power : float
        The power p, at least 1.
    spacing : float or sequence of float, optional
        Distance of neighbours, one for all axes or one per axis; by default one over the longest side, so that the cost
        does not depend on the resolution.
    matrices : sequence of arrays, optional
        The cost of each axis instead, rows for p and columns for q; ``inf`` forbids a move. They may be rectangular:
        then p and q live on grids of different sides.
    dtype : {float32, float64}, optional
        float64 by default, or that of the matrices if they are all float32.

    Attributes
    ----------
    axes : tuple of arrays
        The cost matrix of each axis, read-only.
    row_shape, col_shape : tuple of int
        The sides of the grid of p and of the grid of q.
    shape, dtype, finite, depth, work
        As of `Cost`.

    Examples
    --------
    >>> from gibbsot import GridCost
    >>> import numpy as np
    >>> cost = GridCost((2, 3), spacing=1.0)
    >>> cost.row_min(np.zeros(6)).reshape(2, 3)
    array([[0., 0., 0.],
           [0., 0., 0.]])
    >>> float(cost.at(0, 5))
    5.0
    """

    named_by = "axis0"

    def __init__(
        self,
        shape: int | Sequence[int] | None = None,
        power: float = 2,
        spacing: float | Sequence[float] | None = None,
        matrices: Sequence[ArrayLike] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if matrices is None:
            if shape is None:
                raise ValueError("shape: expected the sides of the grid, or matrices instead")
            sides = validation.sides(shape)
            if max(sides) > _LONGEST:
                raise ValueError(
                    f"shape: an axis of {max(sides):,} points takes a matrix of {8.0 * max(sides) ** 2:.1g} bytes; "
                    f"expected at most {_LONGEST:,}, or PointCost for points on a line"
                )
            spacings = validation.spacings(spacing, sides)
            axes = [_axis_cost(n, power, s) for n, s in zip(sides, spacings, strict=True)]
        else:
            axes = [validation.real(matrix, f"matrices[{a}]") for a, matrix in enumerate(matrices)]
            if not 1 <= len(axes) <= 3:
                raise ValueError(f"matrices: expected one to three axes, got {len(axes)}")
            for a, axis in enumerate(axes):
                if axis.ndim != 2 or 0 in axis.shape:
                    raise ValueError(f"matrices[{a}]: expected a matrix with rows and columns, got shape {axis.shape}")
            if shape is not None and validation.sides(shape) != tuple(len(axis) for axis in axes):
                raise ValueError(f"shape: {shape} differs from the rows of matrices, {tuple(len(a) for a in axes)}")
        self.dtype = validation.precision(dtype, *(axes if matrices is not None else ()))
        names = [f"matrices[{a}]" if matrices is not None else "power, spacing" for a in range(len(axes))]
        finite = [validation.check_costs(axis, name, self.dtype) for axis, name in zip(axes, names, strict=True)]
        # copies, as the arrays of the caller stay writeable
        self._axes = tuple(frozen(np.array(axis, self.dtype, order="C")) for axis in axes)
        self.row_shape = tuple(len(axis) for axis in axes)
        self.col_shape = tuple(axis.shape[1] for axis in axes)
        self.shape = (math.prod(self.row_shape), math.prod(self.col_shape))
        self.finite = all(finite)
        if matrices is None:
            self._adds_up = True  # distances are not negative
        self.depth = len(axes)
        self.work = sum(self.row_shape) * self.shape[0] + sum(self.col_shape) * self.shape[1]
        self._definition = None if matrices is not None else (np.array(spacings), float(power))

    def __repr__(self) -> str:
        precision = "" if self.dtype == np.float64 else f", dtype={self.dtype.name!r}"
        if self._definition is None:
            sides = zip(self.row_shape, self.col_shape, strict=True)
            return f"GridCost(matrices=<{', '.join(f'{n} x {m}' for n, m in sides)}>{precision})"
        spacings, power = self._definition
        steps = [_readable(float(step)) for step in spacings]
        spacing = steps[0] if len(set(steps)) == 1 else f"({', '.join(steps)})"
        exponent = int(power) if power.is_integer() else power
        return f"GridCost({self.row_shape}, power={exponent}, spacing={spacing}{precision})"

    @property
    def axes(self) -> tuple[Array, ...]:
        """The cost matrix of each axis, read-only."""
        return self._axes

    def geometry(self) -> Geometry | None:
        # a sum of squares is a squared distance, other powers only on the line; rounded costs are not those of points
        power = self.power
        points = self.points() if self.dtype == np.float64 and (power == 2 or self.on_line) else None
        return None if points is None or power is None else Geometry(points, points, power)

    def positions(self) -> Positions | None:
        points = self.points()
        return None if points is None or self.power is None else Positions(points, points, self.power, self.power)

    @property
    def searchable(self) -> bool:
        power = self.power
        known = power == 2 or (power == 1 and self.on_line)
        return known and self.dtype == np.float64 and backend().has_kd_trees

    @property
    def on_line(self) -> bool:
        return self._definition is not None and self.dtype == np.float64 and len(self.axes) == 1

    def by_trees(self) -> Cost | None:
        geometry = self.geometry() if self.searchable else None
        if geometry is None:
            return None
        return PointCost.searched(geometry.X, geometry.Y, "sqeuclidean" if geometry.power == 2 else "euclidean")

    def coarsen(self, p: NDArray[np.float64], q: NDArray[np.float64], smallest: int) -> Coarser | None:
        if max(self.shape) <= smallest:
            return None
        # rows stay fine for the c-transform, which carries potentials of coarse columns to fine rows
        halves = [_mean_of_pairs(axis.T).T for axis in self.axes]
        coarse = GridCost(matrices=[_mean_of_pairs(half) for half in halves])
        (a, rows), (b, columns) = (_pooled(w, shape) for w, shape in ((p, self.row_shape), (q, self.col_shape)))
        return Coarser(coarse, GridCost(matrices=halves), a, b, rows, columns)

    def network(self) -> Network | None:
        return self._network if self.power == 1 and self.dtype == np.float64 else None

    @cached_property
    def _network(self) -> Network:
        """The links between neighbours: the sum of the distances along the axes is a shortest path on them."""
        nodes = np.arange(self.shape[0], dtype=np.int32).reshape(self.row_shape)
        tails, heads, lengths = [], [], []
        for a, axis in enumerate(self.axes):
            moved = np.moveaxis(nodes, a, -1)
            tails.append(moved[..., :-1].ravel())
            heads.append(moved[..., 1:].ravel())
            # differences of neighbours are exact, so that their sums are the distances before these are rounded
            lengths.append(np.broadcast_to(np.diagonal(axis, 1), moved[..., 1:].shape).ravel())
        every, stacked = nodes.ravel(), np.concatenate(lengths)
        order = np.argsort(np.concatenate(tails), kind="stable")
        tail, head = np.concatenate(tails)[order], np.concatenate(heads)[order]
        length, accuracy = stacked[order].astype(np.float64), len(self.axes) * 2.0**-52
        return Network(len(every), tail, head, length, length, every, every, accuracy, closed_form=True)

    def sweep_memory(self) -> float:
        return 0.0

    def operand_memory(self) -> float:
        return 0.0

    def evenness(self) -> float:
        some = [spread for spread in map(spread_of, self.axes) if spread > 0]
        return min(some) / max(some) if some else 1.0

    def unrounded(self) -> GridCost:
        if self._definition is None or self.dtype == np.float64:
            return self.astype(np.float64)
        spacing, power = self._definition
        return GridCost(self.row_shape, power, spacing.tolist())

    @property
    def power(self) -> float | None:
        """The power of the distance, None if the matrices of the axes were given."""
        return None if self._definition is None else self._definition[1]

    @property
    def spacing(self) -> NDArray[np.float64] | None:
        """The distance of neighbours along each axis, None if the matrices of the axes were given."""
        return None if self._definition is None else self._definition[0]

    def points(self) -> NDArray[np.float64] | None:
        """Return the points of the grid in C order, or None if the matrices of the axes were given.

        Returns
        -------
        array of shape (m, d) or None

        Examples
        --------
        >>> from gibbsot import GridCost
        >>> GridCost((2, 2), spacing=1.0).points()
        array([[0., 0.],
               [0., 1.],
               [1., 0.],
               [1., 1.]])
        """
        if self._definition is None:
            return None
        axes = [n * step for n, step in zip(np.indices(self.row_shape), self._definition[0], strict=True)]
        return np.stack([axis.ravel() for axis in axes], axis=1)

    def symmetric(self) -> bool:
        return self.row_shape == self.col_shape and all(np.array_equal(axis, axis.T) for axis in self.axes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {f"axis{a}": axis for a, axis in enumerate(self.axes)}
        if self._definition is not None:
            arrays |= {"spacing": self._definition[0], "power": np.array(self._definition[1])}
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        n_axes = max(1, sum(name.startswith("axis") for name in arrays))  # a missing one is a KeyError
        cost = cls(matrices=[arrays[f"axis{a}"] for a in range(n_axes)])
        if "spacing" in arrays:
            if np.size(arrays["spacing"]) != n_axes:
                raise KeyError(f"axis{n_axes}")
            # a file may say anything: solvers take these for the distances of points, and never see the matrices then
            same = cls(cost.row_shape, arrays["power"].item(), np.ravel(arrays["spacing"]).tolist(), dtype=cost.dtype)
            pairs = zip(cost.axes, same.axes, strict=True)
            near = 1e4 * float(np.finfo(cost.dtype).eps)  # other machines may round powers otherwise
            if not all(a.shape == b.shape and np.allclose(a, b, rtol=near, atol=0) for a, b in pairs):
                raise ValueError("spacing, power: are not those of the costs along the axes")
            cost._definition = same._definition
        return cost

    def operand(self) -> tuple[str, Any]:
        return "grid", self.axes

    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        values = x.reshape(self.col_shape if by_rows else self.row_shape)
        for a, axis in reversed(list(enumerate(self.axes))):
            values = np.moveaxis(values, a, -1)
            # one row of the axis at a time, to need no more memory than the grid itself
            least = [(values + costs).min(axis=-1) for costs in (axis if by_rows else axis.T)]
            values = np.moveaxis(np.stack(least, axis=-1), -1, a)
        return values.ravel()

    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        total = np.zeros(len(p))
        for a, axis in enumerate(self.axes):
            finite = np.isfinite(axis)
            costs = np.where(finite, axis, 0).astype(np.float64)
            rows, columns = _marginal(p, self.row_shape, a), _marginal(q, self.col_shape, a)
            for b in range(len(p)):
                weight = rows[b, :, None] * columns[b]
                total[b] += (weight * costs).sum() / (weight * finite).sum()
        return total

    def astype(self, dtype: DTypeLike) -> GridCost:
        if self.dtype == np.dtype(dtype):
            return self
        cost = GridCost(matrices=self.axes, dtype=dtype)
        # costs that were rounded before keep their values
        cost._definition = self._definition if self.dtype == np.float64 else None
        return cost

    def rescaled(self, shift: float, root: float) -> GridCost:
        axes = [(axis.astype(np.float64) - float(axis.min())) / root**2 for axis in self.axes]
        arrays = {f"axis{a}": axis.astype(self.dtype) for a, axis in enumerate(axes)}
        if self._definition is not None and self._definition[1] == 2:  # the root is a power of two: these are the axes
            arrays |= {"spacing": self._definition[0] / root, "power": np.array(2.0)}
        return GridCost.of_arrays(arrays)

    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        i, j = np.asarray(i), np.asarray(j)
        # flattened: NumPy 2.4 gets the indices of a long column wrong
        rows = (r.reshape(i.shape) for r in np.unravel_index(i.ravel(), self.row_shape))
        columns = (c.reshape(j.shape) for c in np.unravel_index(j.ravel(), self.col_shape))
        return sum((axis[r, c] for axis, r, c in zip(self.axes, rows, columns, strict=True)), np.zeros((), self.dtype))

    def at_exact(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Exact:
        rows, columns = np.unravel_index(i, self.row_shape), np.unravel_index(j, self.col_shape)
        terms = [axis[r, c].astype(np.float64) for axis, r, c in zip(self.axes, rows, columns, strict=True)]
        total = DoubleDouble.of(terms[0])
        for term in terms[1:]:
            total = total.plus(DoubleDouble.of(term))
        return total.high, total.low, np.asarray(sum(np.abs(term) for term in terms))

    @cached_property
    def _adds_up(self) -> bool:
        """Whether no entry of an axis is negative, so that nothing cancels."""
        return all(float(axis.min()) >= 0 for axis in self.axes)

    def accuracy(self) -> float:
        # one addition, or some, whose errors are relative to sums that were rounded
        additions = len(self.axes) if len(self.axes) > 2 else 1
        return additions * 2.0**-53 if len(self.axes) > 1 and self._adds_up else 0.0

    def rounding(self) -> float:
        if len(self.axes) == 1 or self._adds_up:
            return 0.0
        largest = sum(
            float(np.abs(axis, where=np.isfinite(axis), out=np.zeros(axis.shape)).max()) for axis in self.axes
        )
        return len(self.axes) * float(np.finfo(self.dtype).eps) * largest

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        if rows is not None or columns is not None:
            return super().matrix(rows, columns)
        total = np.zeros((), self.dtype)
        for a, axis in enumerate(self.axes):
            before, after = (1,) * a, (1,) * (len(self.axes) - a - 1)
            total = total + axis.reshape(*before, len(axis), *after, *before, axis.shape[1], *after)
        return total.reshape(self.shape)

    def spread(self) -> float:
        return sum(map(spread_of, self.axes))

    def least(self) -> float:
        ends = [float(axis.min()) for axis in self.axes]
        total = math.fsum(ends)  # correctly rounded
        exact = sum(map(Fraction, ends))
        return total if Fraction(total) <= exact else math.nextafter(total, -math.inf)


def _axis_cost(n: int, power: float, spacing: float) -> Array:
    """Return ``|s (x - y)|^p`` for n points of a line."""
    if not 1 <= validation.number(power, "power") < np.inf:
        raise ValueError(f"power: expected a number of at least 1, got {power!r}")
    x = np.arange(n) * spacing
    return np.abs(x[:, None] - x) ** power


def _pooled(weights: NDArray[np.float64], shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sums of cells of two points per axis, of which the last of an odd side stands alone, and the cells."""
    image, cell = weights.reshape(shape), np.zeros((), np.int64)
    for a, n in enumerate(shape):
        image = np.add.reduceat(image, np.arange(0, n, 2), axis=a)
        cell = cell[..., None] * -(-n // 2) + np.arange(n) // 2
    return image.ravel(), cell.ravel()


def _mean_of_pairs(axis: Array) -> Array:
    """Return the means of the finite entries of neighbouring rows."""
    starts, finite = np.arange(0, len(axis), 2), np.isfinite(axis)
    count = np.add.reduceat(finite.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(finite, axis, 0.0), starts)
    return np.where(count > 0, sums / np.maximum(count, 1), np.inf)


def _readable(step: float) -> str:
    """Return a number as text, one over an integer as a fraction."""
    over = round(1 / step) if 1e-6 < step < 1 else 0
    return f"1/{over}" if over > 1 and 1 / over == step else repr(step)


def _marginal(weights: Array, shape: tuple[int, ...], axis: int) -> NDArray[np.float64]:
    """Return the marginals of measures on one axis."""
    # rows of one length are summed one by one, so that the result does not depend on the batch
    batch = weights.reshape(-1, *shape).astype(np.float64)
    rows = np.moveaxis(batch, axis + 1, 1).reshape(len(batch) * shape[axis], -1)
    return np.ascontiguousarray(rows).sum(axis=1).reshape(len(batch), shape[axis])
