r"""An interior-point method for transport from one free measure to several fixed ones, on lists of arcs.

.. math::

    \min_{w, \pi} \sum_i \langle c_i, \pi_i \rangle \quad \text{with} \quad \sum_j \pi_{i,aj} = (B^T w)_a, \quad
    \sum_a \pi_{i,aj} = x_{ij}, \quad \sum_k w_k = 1, \quad w, \pi \ge 0

B is the identity for a barycenter, and has the components as rows for a mixture. The normal equations of a step are
solved by elimination: the potentials of the measures one by one, in dense blocks as large as their supports, then w.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import get_lapack_funcs, lapack

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_TO_BOUNDARY = 0.995  # share of the longest step
_CORRECTORS, _LONGER = 2, 0.3  # the most correctors of a step, and by what each should lengthen it
_PRECISION, _REFINEMENTS = 1e-5, 12  # of the conjugate gradients that refine a step
_FAILED = 1e-2  # relative residual of a step that rounding has spoilt
_ENTRIES = 8_000_000  # of the largest intermediate matrix
_RIDGE = {np.float64: 1e-14, np.float32: 1e-6}  # relative to the diagonal: nearly separate groups of points exist
_LARGE = 300  # support from which blocks are factorised in single precision, as long as few refinements suffice
_FEW = 6


class MeasureArcs(NamedTuple):
    """Arcs of all measures, sorted by their targets.

    Attributes
    ----------
    measure, point : arrays of int
        The measure that an arc belongs to, and the point of the free measure.
    target : array of int
        The point of the support, counted over all measures.
    cost : array
        Its cost, of order one.
    """

    measure: Indices
    point: Indices
    target: Indices
    cost: Array


class Dual(NamedTuple):
    """Potentials of the points of the free measure, of shape (n, points), those of all supports, and the value."""

    u: Array
    v: Array
    theta: float


class PrimalDual(NamedTuple):
    """Positive masses x of the arcs and weights w, the dual variables, and positive reduced costs of both."""

    x: Array
    w: Array
    dual: Dual
    z: Array
    zw: Array


class Iterate(NamedTuple):
    """An iterate, the objectives of x and of the dual variables, and the largest violation of a marginal."""

    at: PrimalDual
    primal: float
    value: float
    residual: float

    @property
    def gap(self) -> float:
        """The difference of the objectives."""
        return self.primal - self.value


class InteriorPoint:
    """The programme on given arcs.

    Parameters
    ----------
    targets : list of arrays
        The positive weights of each measure, with sum one.
    arcs : MeasureArcs
        Every target, and in every measure every point, has one.
    n_points : int
        The number of points of the free measure.
    components : array of shape (K, n_points), optional
        The rows of B; by default the identity.
    """

    def __init__(self, targets: list[Array], arcs: MeasureArcs, n_points: int, components: Array | None = None) -> None:
        self.n, self.points, self.B = len(targets), n_points, components
        self._correctors = _CORRECTORS if components is None else 0  # for mixtures, they cost as much as they save
        self.b, self.c = np.concatenate(targets), arcs.cost
        large = components is None and max(map(len, targets)) >= _LARGE
        self._type: type[np.floating] = np.float32 if large else np.float64
        self.row, self.column = arcs.measure * n_points + arcs.point, arcs.target
        starts = np.cumsum([0, *map(len, targets)])
        self.support = [slice(*pair) for pair in pairwise(starts)]
        self._first = np.searchsorted(self.column, np.arange(len(self.b) + 1)).astype(np.int32)  # arc of each target
        self._own = [slice(self._first[one.start], self._first[one.stop]) for one in self.support]
        most = max(1, _ENTRIES // (n_points * max(map(len, targets))))
        self._groups = [(i, min(i + most, self.n)) for i in range(0, self.n, most)]
        self._point = arcs.point.astype(np.int32)
        self._ground = [int(x.argmax()) for x in targets]  # one potential of each measure is zero

    def iterates(self, start: PrimalDual | None = None, most: int = 60) -> Iterator[Iterate]:
        """Run Mehrotra's predictor-corrector method until rounding stops it; yield the iterates.

        Every iterate has x, w, z, zw > 0: steps end a little before the boundary. Neither the marginals of x and w nor
        the equations ``A' dual + z = c`` hold before the last iterates: each step closes the share of both residuals
        that it is long, and all of it where it is full. So a caller may use an iterate only as an estimate, and proves
        bounds by c-transforms of its potentials. The arrays of an iterate are never written to again: it may be kept,
        and be the start of a later call. A step has one factorisation and two solves, three or four with correctors.
        Where factors in single precision fail, the same iterate is yielded once more, with double precision to follow.
        """
        x, w, dual, z, zw = start or self._start()
        none = Dual(np.zeros_like(dual.u), np.zeros_like(dual.v), 0.0)
        for _ in range(most):
            marginals = self._product(x, w)
            missing = Dual(-marginals.u, self.b - marginals.v, 1 - marginals.theta)
            residual = max(float(np.abs(part).max()) for part in missing)
            a, aw = self._transposed(dual)
            value = float(self.b @ dual.v + dual.theta)
            yield Iterate(PrimalDual(x, w, dual, z, zw), float(self.c @ x), value, residual)
            errors = self.c - a - z, -aw - zw
            if not self._factorise(x / z, w / zw):
                if self._to_double():
                    continue
                return
            mu = (x @ z + w @ zw) / (len(x) + len(w))
            dx, dw, dz, dzw, _, _ = self._step(x, w, z, zw, missing, errors, -x * z, -w * zw)
            primal, dual_step = min(_longest(x, dx), _longest(w, dw)), min(_longest(z, dz), _longest(zw, dzw))
            after = (x + primal * dx) @ (z + dual_step * dz) + (w + primal * dw) @ (zw + dual_step * dzw)
            centre = float(mu * (after / (len(x) + len(w)) / mu) ** 3)
            right = centre - x * z - dx * dz, centre - w * zw - dw * dzw
            dx, dw, dz, dzw, change, failed = self._step(x, w, z, zw, missing, errors, *right)
            if failed:
                if self._to_double():
                    continue
                return
            primal, dual_step = min(_longest(x, dx), _longest(w, dw)), min(_longest(z, dz), _longest(zw, dzw))
            for _ in range(self._correctors):  # Gondzio's, which lengthen the step
                p, q = min(1.0, primal + _LONGER), min(1.0, dual_step + _LONGER)
                right = _outliers((x + p * dx) * (z + q * dz), centre), _outliers((w + p * dw) * (zw + q * dzw), centre)
                ex, ew, ez, ezw, more, failed = self._step(x, w, z, zw, none, (0.0, 0.0), *right)
                ex, ew, ez, ezw = ex + dx, ew + dw, ez + dz, ezw + dzw
                p, q = min(_longest(x, ex), _longest(w, ew)), min(_longest(z, ez), _longest(zw, ezw))
                if failed or p + q < primal + dual_step + 0.1 * _LONGER:
                    break
                dx, dw, dz, dzw, change, primal, dual_step = ex, ew, ez, ezw, _add(change, 1.0, more), p, q
            primal, dual_step = min(1.0, _TO_BOUNDARY * primal), min(1.0, _TO_BOUNDARY * dual_step)
            x, w = x + primal * dx, w + primal * dw
            z, zw = z + dual_step * dz, zw + dual_step * dzw
            dual = _add(dual, dual_step, change)

    def _start(self) -> PrimalDual:
        """Return Mehrotra's first iterate: least squares, shifted inwards."""
        K = self.points if self.B is None else len(self.B)
        if not self._factorise(np.ones(len(self.c)), np.ones(K)) and self._to_double():
            self._factorise(np.ones(len(self.c)), np.ones(K))
        x, w = self._transposed(self._solve(Dual(np.zeros((self.n, self.points)), self.b, 1.0)))
        dual = self._solve(self._product(self.c, np.zeros(K)))
        a, aw = self._transposed(dual)
        z, zw = self.c - a, -aw
        shifts = [max(-1.5 * min(one.min(), other.min()), 0.0) for one, other in ((x, w), (z, zw))]
        x, w, z, zw = x + shifts[0], w + shifts[0], z + shifts[1], zw + shifts[1]
        inner = 0.5 * (x @ z + w @ zw)
        shifts = [max(inner / max(one.sum() + other.sum(), 1e-300), 1e-8) for one, other in ((z, zw), (x, w))]
        return PrimalDual(x + shifts[0], w + shifts[0], dual, z + shifts[1], zw + shifts[1])

    def _to_double(self) -> bool:
        """Factorise blocks in double precision from now on; return whether that is a change."""
        before, self._type = self._type, np.float64
        return before is not np.float64

    def _step(
        self,
        x: Array,
        w: Array,
        z: Array,
        zw: Array,
        missing: Dual,
        errors: tuple[Array | float, Array | float],
        r: Array,
        rw: Array,
    ) -> tuple[Array, Array, Array, Array, Dual, bool]:
        """Return Newton's step for the products r of masses and reduced costs, and whether rounding has spoilt it."""
        d, dw = x / z, w / zw
        right = _add(missing, 1.0, self._product(d * errors[0] - r / z, dw * errors[1] - rw / zw))
        change, failed = self._refined(right, d, dw)
        a, aw = self._transposed(change)
        dz, dzw = errors[0] - a, errors[1] - aw
        return (r - x * dz) / z, (rw - w * dzw) / zw, dz, dzw, change, failed

    def _refined(self, right: Dual, d: Array, dw: Array) -> tuple[Dual, bool]:
        """Solve the normal equations by conjugate gradients with the factors as a preconditioner."""
        found, rest, size = Dual(np.zeros_like(right.u), np.zeros_like(right.v), 0.0), right, _dot(right, right)
        direction, before = found, 1.0
        for k in range(_REFINEMENTS):
            near = self._solve(rest)
            product = _dot(rest, near)
            direction = near if k == 0 else _add(near, product / before, direction)
            a, aw = self._transposed(direction)
            curvature = float((d * a) @ a + (dw * aw) @ aw)
            if not (product > 0 and 0 < curvature < np.inf):
                break
            found = _add(found, product / curvature, direction)
            rest = _add(rest, -product / curvature, self._product(d * a, dw * aw))
            before = product
            if k >= _FEW:
                self._to_double()  # from the next step on
            if _dot(rest, rest) <= _PRECISION**2 * size:
                break
        return found, not _dot(rest, rest) <= _FAILED**2 * size

    def _product(self, x: Array, w: Array) -> Dual:
        """Return the marginals of masses, less those of w, and the sum of w."""
        rows = np.bincount(self.row, x, self.n * self.points).reshape(self.n, self.points)
        mixed = w if self.B is None else w @ self.B
        columns = np.bincount(self.column, x, len(self.b)).astype(np.float64, copy=False)
        return Dual(rows - mixed, columns, float(w.sum()))

    def _transposed(self, y: Dual) -> tuple[Array, Array]:
        """Return the product of dual variables with the transposed matrix of the constraints."""
        total = y.u.sum(axis=0)
        return y.u.ravel()[self.row] + y.v[self.column], y.theta - (total if self.B is None else self.B @ total)

    def _factorise(self, d: Array, dw: Array) -> bool:
        """Factorise the normal equations for scalings d; return whether that went well."""
        self._d, self._rows = d, np.bincount(self.row, d, self.n * self.points)
        columns = np.bincount(self.column, d, len(self.b)).astype(np.float64, copy=False)
        shares = d / self._rows[self.row]
        inverse_rows = (1 / self._rows).reshape(self.n, self.points).sum(axis=0)
        H = np.diag(1 / dw)
        if self.B is None:
            H[np.diag_indices(self.points)] += inverse_rows
        else:
            H += (self.B * inverse_rows) @ self.B.T
        self._inverse = []
        for i, own in enumerate(self.support):
            products = self._matrix(shares, i, i + 1) @ self._matrix(d, i, i + 1).T
            inverse = _grounded_inverse(columns[own], products.toarray(), self._ground[i], self._type)
            if inverse is None:
                return False
            self._inverse.append(inverse)
        for start, stop in self._groups:
            R = self._matrix(shares.astype(self._type, copy=False), start, stop)
            mixed: Any = R if self.B is None else R @ self.B.T
            first = self.support[start].start
            middle = np.empty(mixed.shape, mixed.dtype)
            for i in range(start, stop):
                own = slice(self.support[i].start - first, self.support[i].stop - first)
                middle[own] = (mixed[own].T @ self._inverse[i]).T
            H += mixed.T @ middle
        self._H, info = lapack.dpotrf(H.T, lower=1, overwrite_a=1)
        return bool(info == 0)

    def _matrix(self, values: Array, start: int, stop: int) -> sparse.csr_array:
        """Return values of the arcs of some measures as a matrix, of targets by points."""
        arcs = slice(self._own[start].start, self._own[stop - 1].stop)
        first = self._first[self.support[start].start : self.support[stop - 1].stop + 1]
        shape = len(first) - 1, self.points
        return sparse.csr_array((values[arcs], self._point[arcs], first - first[0]), shape=shape)

    def _solve(self, right: Dual) -> Dual:
        """Solve the normal equations by the factors."""
        alone = self._solve_fixed(right.u, right.v)[0].sum(axis=0)
        sides = np.stack([-alone if self.B is None else -self.B @ alone, np.ones(len(self._H))], axis=1)
        first, ones = lapack.dpotrs(self._H, sides, lower=1)[0].T
        theta = (right.theta - first.sum()) / ones.sum()
        q = first + theta * ones
        return Dual(*self._solve_fixed(right.u + (q if self.B is None else q @ self.B), right.v), float(theta))

    def _solve_fixed(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Solve the equations of each measure, for fixed weights."""
        r = u.ravel()
        s = v - np.bincount(self.column, self._d * (r / self._rows)[self.row], len(v))
        t = s.astype(self._inverse[0].dtype, copy=False)
        found = np.concatenate(
            [one @ t[own] for one, own in zip(self._inverse, self.support, strict=True)], dtype=s.dtype
        )
        r = (r - np.bincount(self.row, self._d * found[self.column], len(r))) / self._rows
        return r.reshape(u.shape), found


def _grounded_inverse(diagonal: Array, products: Array, ground: int, dtype: type[np.floating]) -> Any:
    """Return the inverse of ``diag - products`` without a row and column, which are zero in it; None if it fails."""
    C = -products
    C[np.diag_indices(len(C))] += diagonal * (1 + _RIDGE[dtype])
    C[ground], C[:, ground], C[ground, ground] = 0, 0, 1
    potrf, potri = get_lapack_funcs(("potrf", "potri"), dtype=dtype)
    factor, info = potrf(C.astype(dtype, copy=False).T, lower=1, overwrite_a=1)
    if info:
        return None
    inverse, _ = potri(factor, lower=1, overwrite_c=1)  # its upper half is zero
    diagonal = inverse.diagonal().copy()
    inverse = inverse + inverse.T
    inverse[np.diag_indices(len(C))] = diagonal
    inverse[ground] = inverse[:, ground] = 0
    return np.ascontiguousarray(inverse)


def _add(x: Dual, factor: float, y: Dual) -> Dual:
    """Return ``x + factor * y``."""
    return Dual(x.u + factor * y.u, x.v + factor * y.v, x.theta + factor * y.theta)


def _dot(x: Dual, y: Dual) -> float:
    """Return the inner product."""
    return float(x.u.ravel() @ y.u.ravel() + x.v @ y.v + x.theta * y.theta)


def _longest(x: Array, dx: Array) -> float:
    """Return the longest step up to one that keeps x nonnegative."""
    return 1 / max(1.0, float((-dx / x).max()))


def _outliers(products: Array, centre: float) -> Array:
    """Return what brings products to between a tenth of the centre and ten times it, of limited size."""
    return np.maximum(np.clip(products, 0.1 * centre, 10 * centre) - products, -10 * centre)
