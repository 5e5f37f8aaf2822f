"""Warm-started chains of fixed targets, from which the models take gradients. `Oracle` is for other losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .. import costs
from ..core import native, validation
from ..costs import Cost, as_cost
from ..costs.problems import Problem, pairs
from ..exact.methods import METHODS, choose
from ..exact.solution import Solution
from ..io import npz
from ..sampling import mixtures, sampler
from ..sampling.mixtures import MixtureGradients, Mixtures
from ..solvers.relaxed import Measures, Penalty, marginals, penalty_arrays, penalty_of
from .store import Field, Snapshot, Store, spans

Array = NDArray[np.floating]

_NAMES = ("P", "targets")
_MOST_SWEEPS = 1_000_000  # of a call, whose values are recorded
_COOLING_SWEEPS, _COOLING_RATIO = 50, 0.01  # before a crossover: sweeps, and last over first temperature


class _Pairs(NamedTuple):
    """Weights and masses of models and targets, how far these may differ, and what callers call both."""

    p: Measures
    q: Measures
    tolerance: float
    names: tuple[str, str]


class ChainInfo(NamedTuple):
    """Diagnostics of a call, one entry per problem.

    Attributes
    ----------
    sweeps : array of int, shape (n,)
        The number of sweeps of this call.
    mixed : array of bool, shape (n,)
        True if the chain stopped by its mixing test, False if it reached ``max_sweeps``.
    target_gradients : array of shape (n, m2)
        -L: the gradients of the values with respect to the targets.
    lower, upper : arrays of shape (n,), or None
        Certified bounds of W of each model and target; None unless the call had ``bounds=True``.
    """

    sweeps: NDArray[np.int64]
    mixed: NDArray[np.bool_]
    target_gradients: Array
    lower: NDArray[np.float64] | None
    upper: NDArray[np.float64] | None


class TargetChains:
    r"""Values and gradients of ``W(p_b, q_b)`` for fixed targets q_b and changing models p_b.

    One chain is kept for each target. A call resumes each chain from its last state and runs it until its mixing
    test holds. A call that fails or is interrupted does not change the chains.

    With a penalty, mass may be left over and costs this much for each unit, as in `solve` with ``penalty=``: the masses
    of models and targets need not agree, and they matter.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        The cost; its dtype is the precision of the computation.
    targets : array or sparse matrix of shape (n, m2), or sequence of pairs (support, weights)
        The target measures, dense, sparse, or each by the columns of its support and their weights.
    tau : int
        The lag of the mixing test in sweeps (see ``gibbsot.sampler.mixed``); larger follows the model more closely.
    max_sweeps : int, optional
        The largest number of sweeps of a chain in one call; ten times tau by default.
    rng : int or numpy.random.Generator, optional
        The key of the noise, 0 by default; a generator draws one. Results are deterministic for a given key.
    ids : array of int, shape (n,), optional
        The ids of the targets, which with the key determine their noise; by default 0 to n - 1.
    n_jobs : int, optional
        Threads over the problems; results are bit-identical for every number.
    penalty : float or pair, optional
        The cost of a unit of mass that is not transported: a number, or a pair for models and targets, each a number or
        an array with an entry for every point.
    stride : int
        The number of sweeps from one mixing test to the next; tau in the paper.

    Attributes
    ----------
    cost : Cost
        The cost.
    targets : scipy.sparse.csr_array of shape (n, m2)
        The targets, normalised unless there is a penalty.
    tau, max_sweeps, n_jobs, penalty, stride
        The parameters.
    key : int
        The key of the noise.
    ids : array of uint64, shape (n,)
        The ids of the targets.
    sweep : array of int64, shape (n,)
        The number of sweeps that each chain has done.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost
    >>> oracle = TargetChains(GridCost(3, spacing=1.0), np.eye(3)[:2])
    >>> values, gradients, info = oracle(np.eye(3)[[2, 2]], temperature=1e-4)
    >>> values.round(2)
    array([4., 1.])
    """

    def __init__(
        self,
        cost: Cost | ArrayLike,
        targets: Any,
        *,
        tau: int = 20,
        max_sweeps: int | None = None,
        rng: int | np.random.Generator | None = None,
        ids: ArrayLike | None = None,
        n_jobs: int | None = None,
        penalty: Penalty | None = None,
        stride: int = 1,
    ) -> None:
        self.cost, self.penalty = as_cost(cost), penalty
        self._marginals = marginals(self.cost, penalty)
        self.tau = validation.count(tau, "tau", _MOST_SWEEPS // (10 if max_sweeps is None else 1))
        self.stride = validation.count(stride, "stride")
        self.max_sweeps = 10 * self.tau if max_sweeps is None else validation.count(max_sweeps, "max_sweeps")
        if self.max_sweeps > _MOST_SWEEPS:
            raise ValueError(f"max_sweeps: expected at most {_MOST_SWEEPS:,}, got {self.max_sweeps}")
        self.n_jobs = n_jobs
        self.targets = target_rows(targets, self.cost, self._marginals.fixed)
        self.key, self.ids = validation.noise_key(rng), validation.ids(ids, len(self))
        self._points = self._marginals.chain_points(self.targets)  # with weight, of the chains
        sizes = np.diff(self._points.indptr).astype(np.intp)
        self._store = Store({"h": Field(self.cost.dtype, sizes), "sweep": Field(np.int64)}, len(self), fixed=True)
        self._alone = OneAtATime("these chains are at work in another thread; they take one call at a time")

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def sweep(self) -> NDArray[np.int64]:
        """The number of sweeps that each chain has done."""
        return self._store.read("sweep", np.arange(len(self)))

    @property
    def least(self) -> float:
        """The least value of problems of mass one, or a lower bound of it."""
        return self._marginals.least

    def __call__(
        self, P: Any, temperature: float | ArrayLike, indices: ArrayLike | slice | None = None, bounds: bool = False
    ) -> tuple[NDArray[np.float64], Array, ChainInfo]:
        r"""Estimate values and gradients for models P at a temperature.

        Parameters
        ----------
        P : array or sparse matrix of shape (n, m1), or (m1,) for one model of all
            The models, row b for target ``indices[b]``.
        temperature : float or array of shape (n,)
            The temperature, of all chains or of each.
        indices : array of int, mask or slice, optional
            The targets, each at most once; all by default.
        bounds : bool
            Whether to compute certified bounds of the exact values, by a run of the network simplex per problem.

        Returns
        -------
        values : array of shape (n,)
            V(z), estimates of W(p_b, q_b) for the models and targets of this call; they may be above or below it. Only
            the bounds of ``bounds=True`` are certified.
        gradients : array of shape (n, m1)
            U, estimates of the gradients with respect to P, centred, ``<p, U> = 0``, unless there is a penalty.
        info : ChainInfo
            Diagnostics of the call.

        Raises
        ------
        RuntimeError
            If another thread calls at the same time.
        """
        with self._alone:
            rows, measures = self._measures(P, indices)
            return self._run(rows, self._chains(measures), temperature, measures if bounds else None)

    def mixture_gradients(
        self, models: Mixtures, temperature: float | ArrayLike, first: int = 0, tau: int | None = None
    ) -> MixtureGradients:
        """Advance chains whose models are mixtures of components; return values and gradients for both factors.

        An error or an interrupt leaves some chains as they are after the call.

        Parameters
        ----------
        models : Mixtures
            The models of n targets, in integers.
        temperature : float or array of shape (n,)
            The temperature, of all chains or of each.
        first : int
            The first of the targets.
        tau : int, optional
            The lag of the mixing test in this call; that of the oracle by default.

        Returns
        -------
        MixtureGradients
            Bit-identical for every number of threads and every split of the targets.
        """
        n = len(models.memberships)
        T = self._temperatures(temperature, n)[:, 0]
        most = sampler.chains_per_call(self.cost, self.max_sweeps, native.threads(self.n_jobs))
        size = -(-n // -(-n // most))  # parts of one size keep all threads at work
        with self._alone:
            parts = []
            for start in range(0, n, size):
                own = T if len(T) == 1 else T[start : start + size]
                rows = models.rows(start, start + size)
                parts.append(self._mixture_part(rows, own, first + start, self.tau if tau is None else tau))
        return MixtureGradients.join(parts)

    def _mixture_part(self, models: Mixtures, T: NDArray[np.float64], first: int, tau: int) -> MixtureGradients:
        """Do what `mixture_gradients` does for a part that takes a fraction of a second."""
        rows = np.arange(first, first + len(models.memberships))
        starts = self.targets.indptr[first : first + len(rows) + 1]
        entries = slice(int(starts[0]), int(starts[-1]))
        targets = starts - starts[0], self.targets.indices[entries], self.targets.data[entries]
        h, sweep = self._store.read("h", rows), self._store.read("sweep", rows)
        options: dict[str, Any] = {"tau": tau, "stride": self.stride, "max_sweeps": self.max_sweeps}
        options |= {"seed": self.key, "ids": self.ids[rows], "n_jobs": self.n_jobs}
        found = mixtures.run(models, targets, self.cost, h, sweep, T, **options)
        if found is not None:
            self._store.write(rows, h=h, sweep=sweep)
            return found
        P, Q = models.models(), _dense(self.targets, rows)
        pair = Problem.checked(P, Q, self.cost, np.ones(len(rows)), p=P, q=Q)
        values, U, info = self._run(rows, pair, T, None, tau)
        return MixtureGradients(values, *models.gradients(U), info.sweeps)

    def _run(
        self,
        rows: NDArray[np.intp],
        pair: Problem,
        temperature: float | ArrayLike,
        bounded: _Pairs | None,
        tau: int | None = None,
    ) -> tuple[NDArray[np.float64], Array, ChainInfo]:
        """Do what a call does, with bounds for measures if they are given."""
        tau = self.tau if tau is None else tau
        schedule = np.repeat(self._temperatures(temperature, len(pair)), self.max_sweeps, axis=1)
        before = self._state(rows, pair)
        state, info = sampler.run(before, pair, schedule, tau=tau, stride=self.stride, n_jobs=self.n_jobs)
        sweeps = state.sweep - before.sweep
        lower = upper = None
        if bounded is not None:
            lower, upper = self._marginals.bounds(pair, bounded.p, bounded.q, info.U, n_jobs=self.n_jobs)
        self._set_state(rows, state)
        value, U, L = self._marginals.of_chains(pair, info)
        return value, U, ChainInfo(sweeps, sweeps < self.max_sweeps, -L, lower, upper)

    def exact(self, P: Any, temperature: float | ArrayLike, indices: ArrayLike | slice | None = None) -> list[Solution]:
        """Return the exact optima for models P; problems that cross over do so from cooled copies of the chains.

        Parameters
        ----------
        P : array or sparse matrix of shape (n, m1), or (m1,) for one model of all
            The models, row b for target ``indices[b]``.
        temperature : float or array of shape (n,)
            The temperature from which the copies are cooled.
        indices : array of int, mask or slice, optional
            The targets, each at most once; all by default.

        Returns
        -------
        list of Solution
            One per problem. Each is certified: ``lower <= W <= upper``, for the model and target of this call,
            normalised unless there is a penalty, and the cost as it is stored; that of a grid or of points in single
            precision is the one before it was rounded. The chains themselves do not change.
        """
        rows, measures = self._measures(P, indices)
        exact, chains = self._marginals.unrounded, self._chains(measures)
        pair = exact.problem(*measures)
        T = self._temperatures(temperature, len(pair)) * np.geomspace(1, _COOLING_RATIO, _COOLING_SWEEPS)
        U = None
        if METHODS[-1] in choose(pair):  # which begins with potentials
            with self._alone:
                state = self._state(rows, chains)
            U = sampler.run(state, chains, T, n_jobs=self.n_jobs)[1].U
        return exact.with_masses(pair, exact.solve(pair, U, n_jobs=self.n_jobs))

    def load_potentials(self, L: ArrayLike, indices: ArrayLike | slice | None = None) -> None:
        """Set the state of chains to potentials, such as the exact ones.

        Parameters
        ----------
        L : array of shape (n, m2)
            Potentials of the targets, finite where the target has weight.
        indices : array of int, mask or slice, optional
            The targets, each at most once; all by default.
        """
        rows, potentials = which_targets(indices, len(self)), validation.real(L, "L").astype(self.cost.dtype)
        if potentials.shape != (len(rows), self.cost.shape[1]):
            raise ValueError(f"L: expected shape {(len(rows), self.cost.shape[1])}, got {potentials.shape}")
        h = np.where(self._points[rows].toarray() > 0, self._marginals.chain_potentials(potentials), np.inf)
        with self._alone:
            self._set_state(rows, sampler.State(h, self._store.read("sweep", rows), self.key, self.ids[rows]))

    def snapshot(self) -> Snapshot:
        """Return a copy of the states of all chains.

        Returns
        -------
        Snapshot
            For `restore`.
        """
        return self._store.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Return all chains to an earlier state.

        Parameters
        ----------
        snapshot : Snapshot
            What `snapshot` returned.
        """
        self._store.restore(snapshot)

    def problem(self, P: Any, indices: ArrayLike | slice | None = None) -> tuple[Problem, sampler.State]:
        """Return the problems of models P and the states of their chains.

        Parameters
        ----------
        P : array or sparse matrix of shape (n, m1), or (m1,) for one model of all
            The models, row b for target ``indices[b]``.
        indices : array of int, mask or slice, optional
            The targets, each at most once; all by default.

        Returns
        -------
        Problem, sampler.State
        """
        rows, measures = self._measures(P, indices)
        pair = self._chains(measures)
        return pair, self._state(rows, pair)

    def arrays(self) -> dict[str, Any]:
        """Return the whole state of the oracle, for a file.

        Returns
        -------
        dict of str to array or number
        """
        return {
            **{f"cost_{name}": array for name, array in self.cost.arrays().items()},
            "weights": self.targets.data,
            "columns": self.targets.indices,
            "starts": self.targets.indptr,
            **self._store.arrays(),
            "ids": self.ids,
            "seed": np.uint64(self.key),
            "tau": self.tau,
            "max_sweeps": self.max_sweeps,
            **penalty_arrays(self.penalty),
            **({} if self.stride == 1 else {"stride": self.stride}),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_jobs: int | None = None) -> TargetChains:
        """Return the chains whose state `arrays` returned.

        Parameters
        ----------
        arrays : dict of str to array
            The state.
        n_jobs : int, optional
            Threads over the problems.

        Returns
        -------
        TargetChains
        """
        cost = costs.from_arrays(npz.with_prefix(arrays, "cost_"))
        targets = saved_targets(arrays, cost.shape[1])
        tau, max_sweeps, key = (int(arrays[name].item()) for name in ("tau", "max_sweeps", "seed"))
        penalty = penalty_of(arrays)
        options: dict[str, Any] = {
            "tau": tau,
            "max_sweeps": max_sweeps,
            "rng": key,
            "n_jobs": n_jobs,
            "penalty": penalty,
            "stride": int(arrays["stride"].item()) if "stride" in arrays else 1,
        }
        oracle = cls(cost, targets, ids=arrays["ids"], **options)
        oracle.targets = targets  # bit-identical: normalising again could change the last bit
        oracle._points = oracle._marginals.chain_points(targets)
        sweep, h = arrays["sweep"], arrays["h"]
        if sweep.dtype.kind not in "iu" or (sweep < 0).any() or (sweep >= 2**62).any():
            raise ValueError(f"sweep: expected integers of at least 0, got {sweep.dtype}")
        if h.dtype != cost.dtype or not np.isfinite(h).all():
            raise ValueError(f"h: expected finite numbers of {cost.dtype}, got {h.dtype}")
        oracle._store.load_state(arrays)
        return oracle

    def _measures(self, P: Any, indices: ArrayLike | slice | None) -> tuple[NDArray[np.intp], _Pairs]:
        """Return which targets are meant, and the pairs of models P and these."""
        rows = which_targets(indices, len(self))
        p, q = pairs(P, _dense(self.targets, rows), self.cost, _NAMES)
        if len(p[0]) != len(rows):
            raise ValueError(f"P: expected one model for each of the {len(rows)} targets, or one; got {len(p[0])}")
        return rows, _Pairs(p, q, validation.sum_tolerance(P, self.cost.shape[0]), _NAMES)

    def _chains(self, measures: _Pairs) -> Problem:
        """Return the problems of the chains."""
        return self._marginals.chains(*measures)

    def _temperatures(self, temperature: float | ArrayLike, n: int) -> NDArray[np.float64]:
        """Return temperatures of n chains as a column, of length one where they are the same."""
        T = validation.temperatures(temperature, "temperature", self.cost.dtype)
        if T.ndim > 1 or (T.ndim == 1 and len(T) not in (1, n)):
            raise ValueError(f"temperature: expected a number, or one for each of the {n} models; got shape {T.shape}")
        return T.reshape(-1, 1)

    def _state(self, rows: NDArray[np.intp], pair: Problem) -> sampler.State:
        """Return the states of some chains; points whose weights are negligible beside the masses have none."""
        h = np.full((len(rows), self._points.shape[1]), np.inf, self.cost.dtype)
        h.ravel()[_entries(self._points, rows)[0]] = self._store.read("h", rows)
        h[pair.q == 0] = np.inf
        return sampler.State(h, self._store.read("sweep", rows), self.key, self.ids[rows])

    def _set_state(self, rows: NDArray[np.intp], state: sampler.State) -> None:
        """Replace the states of some chains."""
        h = state.h.ravel()[_entries(self._points, rows)[0]]
        self._store.write(rows, h=np.where(np.isfinite(h), h, self._store.read("h", rows)), sweep=state.sweep)


def _entries(matrix: sparse.csr_array, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp] | slice]:
    """Return the positions of the entries of some rows of a matrix: in these rows, flattened, and in its data."""
    counts = matrix.indptr[rows + 1] - matrix.indptr[rows]
    position = spans(matrix.indptr[rows], counts)
    return np.repeat(np.arange(len(rows)) * matrix.shape[1], counts) + matrix.indices[position], position


def _dense(matrix: sparse.csr_array, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return some rows of a matrix."""
    found = np.zeros((len(rows), matrix.shape[1]))
    index, position = _entries(matrix, rows)
    found.ravel()[index] = matrix.data[position]
    return found


class OneAtATime:
    """A context that only one thread is in at a time; a second one gets an error and does not wait.

    Parameters
    ----------
    message : str
        What the error says.
    """

    def __init__(self, message: str) -> None:
        self._message, self._free = message, [True]  # empty inside; pop is atomic

    def __enter__(self) -> None:
        try:
            self._free.pop()
        except IndexError:
            raise RuntimeError(self._message) from None

    def __exit__(self, *error: object) -> None:
        self._free.append(True)


def which_targets(indices: ArrayLike | slice | None, n: int) -> NDArray[np.intp]:
    """Return which of n targets are meant, each at most once.

    Parameters
    ----------
    indices : array of int, mask or slice, optional
        All by default.
    n : int
        The number of targets.

    Returns
    -------
    array of int
    """
    rows = np.arange(n)
    if indices is None:
        return rows
    wanted = indices if isinstance(indices, slice) else np.asarray(indices)
    if isinstance(wanted, np.ndarray) and wanted.dtype.kind not in "iub":
        raise ValueError(f"indices: expected a list of different targets, got {indices!r}")
    rows = rows[wanted]
    if rows.ndim != 1 or len(rows) == 0 or len(np.unique(rows)) != len(rows):
        raise ValueError("indices: expected a list of different targets; each is used once in a call")
    return rows


def target_rows(targets: Any, cost: Cost, normalise: bool) -> sparse.csr_array:
    """Return target measures as CSR rows; weights below the cost's precision are dropped."""
    m2 = cost.shape[1]
    supports = isinstance(targets, Sequence) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in targets)
    if supports and len(targets):
        matrix = _from_supports(targets, m2)
    elif sparse.issparse(targets):
        matrix = validation.sparse_rows(targets, "targets").astype(np.float64)  # a copy
    else:
        matrix = sparse.csr_array(validation.weights(targets, "targets", m2))
    if matrix.shape[1] != m2 or matrix.shape[0] == 0:
        raise ValueError(f"targets: expected at least one row of {m2} weights to match the cost, got {matrix.shape}")
    mass = validation.check_weights(matrix, "targets")
    masses = np.repeat(mass, np.diff(matrix.indptr))
    if normalise:
        matrix.data /= masses
    matrix.data[matrix.data < np.finfo(cost.dtype).tiny * (1 if normalise else masses)] = 0
    matrix.eliminate_zeros()
    _ = matrix.has_canonical_format  # SciPy stores the answer in the matrix, which later only reads must not change
    return matrix


def saved_targets(arrays: Mapping[str, NDArray[Any]], m2: int) -> sparse.csr_array:
    """Return the targets whose weights, columns and starts of rows a file has."""
    for name in ("columns", "starts"):
        if arrays[name].dtype.kind not in "iu":
            raise ValueError(f"{name}: expected integers, got {arrays[name].dtype}")
    shape = (len(arrays["starts"]) - 1, m2)
    targets = sparse.csr_array((arrays["weights"], arrays["columns"], arrays["starts"]), shape=shape)
    targets = validation.sparse_rows(targets, "targets")  # SciPy's compiled code does not check indices
    targets.sum_duplicates()  # there are none; SciPy notes it, so that no query of a shard changes the matrix
    return targets


def _from_supports(pairs: Sequence[tuple[ArrayLike, ArrayLike]], m2: int) -> sparse.csr_array:
    """Return measures that are given by their supports as CSR rows."""
    supports = [np.asarray(support) for support, _ in pairs]
    masses = [np.asarray(mass, np.float64) for _, mass in pairs]
    for b, (support, mass) in enumerate(zip(supports, masses, strict=True)):
        if support.ndim != 1 or support.shape != mass.shape or support.dtype.kind not in "iu":
            raise ValueError(f"targets: pair {b} is not a support of column indices with as many weights")
        if len(support) == 0 or support.min() < 0 or support.max() >= m2 or len(np.unique(support)) < len(support):
            raise ValueError(f"targets: pair {b} needs different columns from 0 to {m2 - 1}")
    starts = np.concatenate([[0], np.cumsum([len(s) for s in supports])])
    rows = sparse.csr_array((np.concatenate(masses), np.concatenate(supports), starts), shape=(len(supports), m2))
    return validation.sparse_rows(rows, "targets").copy()
