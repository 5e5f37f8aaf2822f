"""What a cost is: the abstract base class, with the steps to add a cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..core import native
from ..core.backend import backend
from .network import Network

Array = NDArray[np.floating]
Exact = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]

if TYPE_CHECKING:
    from typing import Self

# The largest matrix that a cost makes of itself. Sweeps with a stored matrix are 3 to 10 times (in the plane) and 20 to
# 50 times (in 50 dimensions) faster than with distances that are computed on the way: python benchmarks/costs.py
MATRIX_BYTES = 512 * 2**20


class Geometry(NamedTuple):
    """Points whose distances are a cost: ``M_ij = |x_i - y_j|^power``, in one to four dimensions.

    Attributes
    ----------
    X, Y : arrays of float64, shape (m1, d) and (m2, d)
        The points.
    power : float
        1 or 2; on the line any number from 1.
    """

    X: Array
    Y: Array
    power: float


class Positions(NamedTuple):
    """Where the points of a cost are: the costs are a power of a norm, ``M_ij = |x_i - y_j|^power``.

    Attributes
    ----------
    X, Y : arrays of float64, shape (m1, d) and (m2, d)
        The points, in any dimension.
    norm : float
        The order of the norm: 2 for the Euclidean one, ``inf`` for the largest coordinate. Where it is the power, the
        costs are a sum over the axes.
    power : float
        At least 1.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    norm: float
    power: float


class Coarser(NamedTuple):
    """A coarser problem.

    Attributes
    ----------
    cost : Cost
        The cost between cells.
    between : Cost
        The cost between the points of the rows and the cells of the columns, which carries potentials of these.
    p, q : arrays of float64
        The weights of the cells.
    rows, columns : arrays of int
        The cell of each point.
    """

    cost: Cost
    between: Cost
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]


class Cost(ABC):
    """Base class of costs between ``shape[0]`` points of one measure and ``shape[1]`` points of another.

    The solvers use a cost only through the operations below, so that it need not store its matrix M.

    Attributes
    ----------
    shape : pair of int
        Number of rows (points of p) and of columns (points of q).
    dtype : numpy.dtype
        float32 or float64: the precision of all computations with this cost.
    finite : bool
        Whether no pair is forbidden by an infinite cost.
    depth : int
        Number of rounded operations behind one entry of a c-transform, those of the cost included; rounding errors
        grow with it.
    work : int
        Number of additions in one sweep of the sampler.
    labels : pair of pandas.Index or None, or None
        Labels of the rows and of the columns, where the cost was made from a DataFrame: `solve` then knows the places
        of labelled weights.
    bounded_search : bool
        Whether `nearest` is fast where few sums are below its bounds.
    row_shape, col_shape : tuple of int
        The sides of the grid on which the points lie, empty if there is none.

    Notes
    -----
    To add a cost, derive a class in this package that

    - checks its arguments in ``__init__`` with functions of ``core/validation.py``, sets the five attributes above, and
      makes its arrays read-only with `frozen`;
    - implements the abstract methods: ``_transform_one`` (the c-transform in NumPy, which is the specification that
      the compiled kernel is tested against), ``_mean``, ``at``, ``spread``, ``least`` and ``astype``;
    - returns the arrays that define it from ``arrays``, and is made again from them by ``of_arrays`` (for files, copies
      in other processes and comparisons); ``named_by`` is the array by which `from_arrays` recognises them;
    - says how far its entries are from the costs that are meant, by ``accuracy``, ``rounding`` and ``underflow``: the
      default is that they are exact, and certificates rely on it;
    - returns the edges of a graph from ``network`` if its entries are lengths of shortest paths, as on a tree;
    - names its compiled kernel in ``operand``. A cost that can be written as a matrix, as a sum over axes, as
      Euclidean distances or as shortest paths uses the kernels "dense", "grid", "points" or "graph"; any other needs an
      operator in ``native/operators.hpp`` and its arrays in ``native/arrays.hpp``, or None, which is slow.

    Then add it to ``KINDS`` in ``tests/cases.py``: the tests of costs, sampler and solvers run for every kind.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    finite: bool
    depth: int
    work: int
    bounded_search: bool = False
    row_shape: tuple[int, ...] = ()
    col_shape: tuple[int, ...] = ()
    labels: tuple[Any, Any] | None = None
    named_by: ClassVar[str]

    @abstractmethod
    def __repr__(self) -> str: ...

    def __eq__(self, other: object) -> bool:
        """Return whether both costs are defined by the same arrays."""
        if self is other or not isinstance(other, Cost):
            return self is other
        if (type(self), self.shape, self.dtype) != (type(other), other.shape, other.dtype):
            return False
        own, others = self.arrays(), other.arrays()
        return own.keys() == others.keys() and all(np.array_equal(x, others[name]) for name, x in own.items())

    def __hash__(self) -> int:
        return hash((type(self), self.shape, self.dtype))

    def __copy__(self) -> Self:
        return self  # costs do not change

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        made = type(self).of_arrays, (self.arrays(),)
        return made if self.labels is None else (*made, {"labels": self.labels})

    def _labelled(self, names: tuple[Any, Any] | None) -> Self:
        """Return this cost after its points have got labels, if there are any."""
        if names is not None and not (names[0] is None and names[1] is None):
            self.labels = names
        return self

    def geometry(self) -> Geometry | None:
        """Return points whose distances are the costs in double precision, or None if there are none.

        Returns
        -------
        Geometry or None
        """
        return None

    def positions(self) -> Positions | None:
        """Return points and the norm of which the cost is a power, or None if there are none.

        Rounded costs have them too: `geometry` has only those from which costs in double precision were computed.

        Returns
        -------
        Positions or None
        """
        return None

    @property
    def spacing(self) -> NDArray[np.float64] | None:
        """The distance of neighbours along each axis of the grid, None if there is none or it is not known."""
        return None

    @property
    def has_matrix(self) -> bool:
        """Whether the cost is a matrix, which `stored` returns as it is."""
        return False

    @property
    def inner_shape(self) -> tuple[int, int]:
        """The shape without the points that were added for mass that may be left over, which are the last."""
        return self.shape

    def forbidden(self) -> Counts | None:
        """Return how many pairs of each row and of each column are forbidden, None where it is not known.

        Returns
        -------
        rows, columns : arrays of int, or None
        """
        return None

    def network(self) -> Network | None:
        """Return the network in which the costs are shortest paths, or None if there is none.

        Returns
        -------
        Network or None
        """
        return None

    def evenness(self) -> float:
        """Return how much costs vary along the cheapest axis, relative to the dearest; 1 where there are no axes.

        Returns
        -------
        float
        """
        return 1.0

    def unrounded(self) -> Cost:
        """Return the cost in double precision, as it was before it was rounded to single precision where that is known.

        Returns
        -------
        Cost
        """
        return self.astype(np.float64)

    def symmetric(self) -> bool:
        """Return whether both measures have the same points and the cost is known to be the same in both directions.

        Returns
        -------
        bool
        """
        return False

    def row_min(self, h: ArrayLike, n_jobs: int | None = None) -> Array:
        r"""Return the c-transform of a potential of the columns.

        .. math:: U_i = \min_j (M_{ij} + h_j)

        Parameters
        ----------
        h : array of shape (m2,) or (n, m2)
            One potential or a batch of them; ``inf`` leaves a column out.
        n_jobs : int, optional
            Threads over the batch.

        Returns
        -------
        array of shape (m1,) or (n, m1)
        """
        return self._transform(h, True, n_jobs)

    def col_max(self, g: ArrayLike, n_jobs: int | None = None) -> Array:
        r"""Return the c-transform of a potential of the rows.

        .. math:: L_j = \max_i (g_i - M_{ij})

        Parameters
        ----------
        g : array of shape (m1,) or (n, m1)
            One potential or a batch of them; ``-inf`` leaves a row out.
        n_jobs : int, optional
            Threads over the batch.

        Returns
        -------
        array of shape (m2,) or (n, m2)
        """
        return -self._transform(-np.asarray(g, self.dtype), False, n_jobs)

    def nearest(
        self, x: ArrayLike, k: int = 1, by_rows: bool = True, below: ArrayLike | None = None, n_jobs: int | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the k columns of least ``M_ij + x_j`` of each row, the least first, and these sums.

        Parameters
        ----------
        x : array of shape (m2,), or (m1,) by columns
            A potential; ``inf`` leaves a point out.
        k : int
            The number of points; some costs find more.
        by_rows : bool
            If not, the rows of least ``M_ij + x_i`` of each column.
        below : array of shape (m1,), or (m2,) by columns, optional
            Only smaller sums count.
        n_jobs : int, optional
            Threads, where a search can use them.

        Returns
        -------
        found : array of int64, shape (m1, k) or (m2, k)
            Where the least sums are; -1 where there are fewer.
        sums : array of the same shape
            The sums; ``inf`` where there are fewer.

        Examples
        --------
        >>> from gibbsot import PointCost
        >>> found, sums = PointCost([0.0, 1.0, 3.0]).nearest([0.0, 0.0, -8.0], 2)
        >>> found.tolist(), sums.tolist()
        ([[0, 1], [2, 1], [2, 1]], [[0.0, 1.0], [-4.0, 0.0], [-8.0, 4.0]])
        """
        x = np.ascontiguousarray(x, self.dtype)
        size = self.shape[1 if by_rows else 0]
        if x.shape != (size,):
            raise ValueError(f"x: expected shape ({size},), got {x.shape}")
        if not 1 <= k <= size:
            raise ValueError(f"k: expected a number from 1 to {size}, got {k}")
        limit = None if below is None else np.ascontiguousarray(below, np.float64)
        return self._nearest(x, k, by_rows, limit, native.threads(n_jobs))

    def below(self, x: ArrayLike, bound: ArrayLike, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], ...]:
        """Return the pairs whose sum ``M_ij + x_j`` is below a bound of its row: of each row the k least ones.

        Parameters
        ----------
        x : array of shape (m2,)
            A potential; ``inf`` leaves a point out.
        bound : array of shape (m1,)
            The bounds.
        k : int
            The number of pairs of a row; some costs find more.
        n_jobs : int, optional
            Threads, where a search can use them.

        Returns
        -------
        rows, columns : arrays of int64
            The pairs.

        Examples
        --------
        >>> from gibbsot import PointCost
        >>> i, j = PointCost([0.0, 1.0, 3.0]).below([0.0, 0.0, -8.0], [1.0, -3.0, -8.0], 2)
        >>> list(zip(i.tolist(), j.tolist()))
        [(0, 0), (1, 2)]
        """
        found = self.nearest(x, k, below=bound, n_jobs=n_jobs)[0]
        i, place = np.nonzero(found >= 0)
        return i, found[i, place]

    @property
    def has_lists(self) -> bool:
        """Whether `listed` is fast without a matrix."""
        return False

    def listed(
        self, rows: NDArray[np.intp], x: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return what `nearest` does for some rows, and to single precision only.

        Parameters
        ----------
        rows : array of int
            The rows.
        x : array of float32, shape (m2,)
            A potential; ``inf`` leaves a column out.
        k : int
            The number of columns.

        Returns
        -------
        found : array of int64, shape (n, k)
            Where the least sums are; -1 where there are fewer.
        sums : array of float32, of the same shape
            The sums; ``inf`` where there are fewer.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lists")

    def mean(self, p: ArrayLike, q: ArrayLike, n_jobs: int | None = None) -> NDArray[np.float64]:
        r"""Return the mean of the finite costs under independent p and q, for each problem of a batch.

        .. math:: \sum_{ij} p_i q_j M_{ij} \Big/ \sum_{ij} p_i q_j

        Parameters
        ----------
        p, q : arrays of shape (n, m1) and (n, m2)
            Weights.
        n_jobs : int, optional
            Threads over the batch.

        Returns
        -------
        array of shape (n,)
        """
        p = np.ascontiguousarray(p, self.dtype)
        q = np.ascontiguousarray(q, self.dtype)
        if p.ndim != 2 or q.ndim != 2 or len(p) != len(q) or (p.shape[1], q.shape[1]) != self.shape:
            m1, m2 = self.shape
            raise ValueError(f"p, q: expected shapes (n, {m1}) and (n, {m2}), got {p.shape} and {q.shape}")
        return self._mean(p, q, native.threads(n_jobs))

    def _transform(self, x: ArrayLike, by_rows: bool, n_jobs: int | None) -> Array:
        x = np.asarray(x, self.dtype)
        name, size = ("h", self.shape[1]) if by_rows else ("g", self.shape[0])
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise ValueError(f"{name}: expected shape ({size},) or (n, {size}), got {x.shape}")
        batch = np.ascontiguousarray(np.atleast_2d(x))
        out = np.empty((len(batch), self.shape[0 if by_rows else 1]), self.dtype)
        self._transform_batch(batch, by_rows, out, native.threads(n_jobs))
        return out.reshape(*x.shape[:-1], out.shape[1])

    def _transform_batch(self, batch: Array, by_rows: bool, out: Array, threads: int) -> None:
        """Write the c-transform of each row of the batch to a row of ``out``."""
        backend().c_transform(self, batch, by_rows, out, threads)

    def _nearest(
        self, x: Array, k: int, by_rows: bool, below: NDArray[np.float64] | None, threads: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Return what `nearest` does, for arguments that have been checked."""
        found = np.empty((self.shape[0 if by_rows else 1], k), np.int64)
        self._nearest_into(x, by_rows, found)
        own, other = np.arange(len(found))[:, None], np.maximum(found, 0)
        sums = (self.at(own, other) if by_rows else self.at(other, own)) + x[other]
        kept = found >= 0 if below is None else (found >= 0) & (sums < below[:, None])
        return np.where(kept, found, -1), np.where(kept, sums, np.inf)

    def _nearest_into(self, x: Array, by_rows: bool, out: NDArray[np.int64]) -> None:
        """Write the indices of the smallest sums to ``out``."""
        backend().nearest(self, x, by_rows, out)

    @property
    def searchable(self) -> bool:
        """Whether k-d trees can search it: see `by_trees`."""
        return False

    @property
    def on_line(self) -> bool:
        """Whether the costs are a convex power of distances on the line: see `geometry`."""
        return False

    def by_trees(self) -> Cost | None:
        """Return the same cost as one that k-d trees search at every size, or None if they cannot.

        Only such a cost offers `subset`, and an `order` that follows the points.

        Returns
        -------
        Cost or None
        """
        return None

    def order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return orders of rows and columns in which neighbours in space have neighbouring numbers.

        Returns
        -------
        rows, columns : arrays of int
        """
        return np.arange(self.shape[0]), np.arange(self.shape[1])

    def subset(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Cost:
        """Return the same cost between fewer points.

        Parameters
        ----------
        rows, columns : arrays of int
            The points that stay, in their order.

        Returns
        -------
        Cost
        """
        raise NotImplementedError(f"{type(self).__name__} has no subset")

    def coarsen(self, p: NDArray[np.float64], q: NDArray[np.float64], smallest: int) -> Coarser | None:
        """Return a coarser problem, whose points are cells of these, or None if both sides have few points.

        Parameters
        ----------
        p, q : arrays of shape (m1,) and (m2,)
            Weights.
        smallest : int
            The number of points of a side that need not be made coarser.

        Returns
        -------
        Coarser or None
        """
        return None

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the cost; `from_arrays` makes the cost again from them.

        Returns
        -------
        dict of str to array
        """

    def rescaled(self, shift: float, root: float) -> Cost | None:
        """Return the cost ``(M - shift) / root^2``, or None if that takes a matrix that is too large.

        Parameters
        ----------
        shift : float
            The least cost.
        root : float
            A power of two.

        Returns
        -------
        Cost or None
        """
        from .dense import DenseCost  # which derives from this class

        return DenseCost((self.matrix().astype(np.float64) - shift) / root**2, self.dtype)

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the cost that `arrays` described.

        Parameters
        ----------
        arrays : mapping of str to array
            What `arrays` returned.

        Returns
        -------
        Cost
        """

    @abstractmethod
    def operand(self) -> tuple[str, Any] | None:
        """Return the name of the compiled kernel for this cost and its first argument, or None if there is no kernel.

        Returns
        -------
        kind : str
            "dense", "grid", "points" or "graph": the ending of the names of the kernel's functions.
        operand : array or tuple of arrays
            Passed to them.
        """

    @abstractmethod
    def _transform_one(self, x: Array, by_rows: bool) -> Array:
        """Return the minimum of M_ij + x_j over j (by rows) or of M_ij + x_i over i, in NumPy: the specification."""

    @abstractmethod
    def _mean(self, p: Array, q: Array, threads: int) -> NDArray[np.float64]:
        """Return what `mean` does, for arguments that have been checked."""

    @abstractmethod
    def astype(self, dtype: DTypeLike) -> Cost:
        """Return the same cost in another precision, or itself.

        Parameters
        ----------
        dtype : {float32, float64}
            The precision.

        Returns
        -------
        Cost

        Raises
        ------
        ValueError
            If the costs are out of the range of the precision.
        """

    @abstractmethod
    def at(self, i: ArrayLike, j: ArrayLike) -> Array:
        """Return the costs ``M[i, j]`` of pairs of points.

        Parameters
        ----------
        i, j : int or arrays of int
            Rows and columns, which broadcast.

        Returns
        -------
        array
        """

    def at_exact(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> Exact:
        """Return costs of pairs with twice the digits, for proofs.

        Parameters
        ----------
        i, j : arrays of int
            Rows and columns.

        Returns
        -------
        high, low : arrays of float64
            The costs, as unevaluated sums of two doubles.
        size : array of float64
            The sums of the absolute values of their terms.
        """
        costs = np.asarray(self.at(i, j), np.float64)
        return costs, np.zeros_like(costs), np.abs(costs)

    def rounding(self) -> float:
        """Return how far sums of terms that cancel may be from the costs of `at_exact`, beyond a relative error.

        Returns
        -------
        float
            Zero where costs have one term, or none is negative.
        """
        return 0.0

    def accuracy(self) -> float:
        """Return the relative error of rounded costs, none of them negative; zero where they are exact.

        Returns
        -------
        float
        """
        return 0.0

    def underflow(self) -> float:
        """Return how far any cost may be off, beyond the relative error, because terms are too small for doubles.

        Returns
        -------
        float
        """
        return 0.0

    def vanishing(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> float:
        """Return how much larger the costs of pairs may be because terms were too small for doubles.

        Parameters
        ----------
        i, j : arrays of int
            Rows and columns.

        Returns
        -------
        float
        """
        return 0.0

    @abstractmethod
    def spread(self) -> float:
        """Return the difference of the largest and smallest finite cost, or an upper bound of it.

        Returns
        -------
        float
            Centred potentials are no larger.
        """

    @abstractmethod
    def least(self) -> float:
        """Return the least cost, or a lower bound of it.

        Returns
        -------
        float
        """

    def stored(self) -> Array:
        """Return the matrix of costs, read-only and without a copy where it is stored.

        Returns
        -------
        array of shape (m1, m2)
        """
        return self.matrix()

    def matrix_memory(self) -> float:
        """Return the bytes that `stored` takes in double precision, beyond those of the cost.

        Returns
        -------
        float
        """
        return 18.0 * self.shape[0] * self.shape[1]

    def search_memory(self) -> float:
        """Return the bytes that c-transforms and searches without a matrix take beyond the cost.

        Returns
        -------
        float
        """
        return 0.0

    def sweep_memory(self) -> float:
        """Return the bytes that sweeps in single precision take beyond the cost and the chains.

        Returns
        -------
        float
        """
        nbytes = float(self.shape[0]) * self.shape[1]
        return 16 * nbytes if nbytes * self.dtype.itemsize <= MATRIX_BYTES else 0.0

    def operand_memory(self) -> float:
        """Return the bytes that sweeps in the precision of the cost take beyond the cost and the chains.

        Returns
        -------
        float
        """
        nbytes = float(self.shape[0]) * self.shape[1] * self.dtype.itemsize
        return 2 * nbytes if nbytes <= MATRIX_BYTES else 0.0

    def matrix(self, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None) -> Array:
        """Return the matrix of costs, or some of its rows and columns.

        Parameters
        ----------
        rows, columns : arrays of int, optional
            Which rows and columns; all by default.

        Returns
        -------
        array of shape (m1, m2), or as many rows and columns as asked for
        """
        rows, columns = (
            np.arange(m) if some is None else some for m, some in zip(self.shape, (rows, columns), strict=True)
        )
        return self.at(rows[:, None], columns)


def frozen(x: NDArray[Any]) -> NDArray[Any]:
    """Return the array, read-only from now on: a cost does not change after it was checked."""
    x.flags.writeable = False
    return x


def spread_of(costs: Array) -> float:
    """Return the difference of the largest and smallest finite cost of an array."""
    finite = costs[np.isfinite(costs)].astype(np.float64)
    return float(finite.max() - finite.min())
