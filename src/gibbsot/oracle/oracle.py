"""An oracle for any Wasserstein loss: values and gradients of many transport costs, with warm state and no knobs."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import costs
from ..core import validation
from ..costs import Cost, as_cost
from ..costs.problems import check_sums, pairs
from ..exact.solution import Solution
from ..io import npz, schemas
from ..sampling.annealing.adaptive import AdaptiveCooling
from ..solvers.kl import divergence_weights, marginals_of
from ..solvers.relaxed import Penalty, check_normalize, penalty_arrays, penalty_of
from .chains import OneAtATime, saved_targets, target_rows, which_targets
from .gradients import Weights
from .pairs import NEW, AutoOracle, ChainOracle, OracleInfo, PairOracle, pair_oracle

Array = NDArray[np.float64]

_STATE = "state_"  # begins the names of what is kept, in a file


class OracleResult(NamedTuple):
    """Values of transport costs, and their gradients.

    Attributes
    ----------
    values : array of shape (n,)
        W(p_b, q_b). With chains estimates that may be above or below it. With exact duals W itself, or where measures
        have moved little since the duals were optimal, a certified lower bound.
    grad_p, grad_q : arrays of shape (n, m1) and (n, m2)
        The gradients of the values with respect to P and Q: potentials, centred so that their entries sum to zero,
        unless there is a penalty or there are divergences.
    info : OracleInfo
        Diagnostics of the call.
    """

    values: Array
    grad_p: Array
    grad_q: Array
    info: OracleInfo


class Oracle:
    r"""Values and gradients of ``W(p_b, q_b)``, of any number of pairs whose measures move from call to call.

    .. math:: W(p, q) = \langle p, f \rangle + \langle q, g \rangle, \qquad \nabla_p W = f, \quad \nabla_q W = g

    It keeps what it has found for each pair, and starts from there in the next call. With fixed targets,
    ``oracle(P)`` pairs row b of P with target b; without, ``oracle(P, Q)`` pairs the rows of P and Q, and both move.
    A call that fails or is interrupted does not change what is kept.

    Parameters
    ----------
    cost : Cost or array of shape (m1, m2)
        The cost.
    targets : array or sparse matrix of shape (n, m2), or sequence of pairs (support, weights), optional
        The measures that stay: dense, sparse, or each by the columns of its support and their weights.
    method : {"auto", "gibbs", "kept", "exact"}
        "exact": exact duals, solved in every call from the last basis. "kept": exact duals, which are used again while
        little mass has moved. "gibbs": the paper's chains. "auto" chooses by rules that never depend on a clock; see
        Notes.
    temperature : "auto", float or AdaptiveCooling
        Of chains: by default the oracle's own business. It starts as those of the models do, follows the values, and
        falls when exact evaluations of some pairs show that the values have stalled, by the annealer of
        `WassersteinNMF`; `gibbsot.schedules.AdaptiveCooling` has its constants. A number is the temperature itself.
    normalize : bool
        Divide measures by their sums first; gradients are then those of the quotients.
    penalty : float or pair, optional
        The cost of a unit of mass that is not transported, as in `solve`: a number, or a pair for P and Q, each a
        number or an array with an entry for every point. Masses need not agree then, and gradients are not centred.
    kl : float or pair of float, optional
        Unbalanced transport, as in `solve`, to a certified gap of 1e-6: a number rho, or a pair (rho1, rho2), of which
        one may be infinite. Gradients are ``rho1 (1 - exp(-f / rho1))`` and the same of g, not centred. Not with
        ``method="gibbs"``; "auto" keeps exact duals.
    drift : float, optional
        Of kept duals: the share of the mass that may have moved since they were optimal, 0.01 by default.
    max_sweeps : int, optional
        Of chains: the largest number of sweeps in one call, 400 by default. A chain ends earlier when V(z) has not
        risen over a tenth of them: with a larger number chains follow measures more closely.
    capacity : int, optional
        The number of pairs that are kept, where both move: the least recently used are dropped. By default 10,000, and
        50,000 chains.
    rng : int or numpy.random.Generator, optional
        Of chains: the key of their noise, 0 by default; a generator draws one. Results are deterministic for a given
        key.
    n_jobs : int, optional
        Threads over the pairs; results are bit-identical for every number.

    Attributes
    ----------
    cost : Cost
        The cost.
    targets : scipy.sparse.csr_array of shape (n, m2), or None
        The targets.
    method, normalize, penalty, n_jobs
        The parameters.
    kl : pair of float, or None
        The weights of the divergences; None where both marginals are fixed.
    temperature : float or None
        That of the next call, None if it is not known yet or there are no chains; it can be set.

    Notes
    -----
    The rules of "auto":

    - Where both measures move, exact duals are kept.
    - With fixed targets, chains are used where a sweep is cheap and exact solutions are not: the cost is that of a
      grid, or another whose c-transforms add at most a quarter of the pairs of points, and there are at least 65,536
      pairs of points with weight. They are used as long as models move by more than a tenth of their mass from one
      call to the next; exact solutions are cheaper the less they move, and exact duals follow.
    - Otherwise exact duals are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot import GridCost, Oracle
    >>> oracle = Oracle(GridCost(3, spacing=1.0), np.eye(3)[:2])
    >>> found = oracle(np.eye(3)[[2, 2]])
    >>> found.values
    array([4., 1.])
    >>> found.grad_p[0]
    array([-1.66666667, -0.66666667,  2.33333333])
    >>> both = Oracle(GridCost(3, spacing=1.0))
    >>> both([[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]).values
    array([1.])
    """

    def __init__(
        self,
        cost: Cost | ArrayLike,
        targets: Any = None,
        *,
        method: str = "auto",
        temperature: float | str | AdaptiveCooling | None = None,
        normalize: bool = False,
        penalty: Penalty | None = None,
        kl: float | tuple[float, float] | None = None,
        drift: float | None = None,
        max_sweeps: int | None = None,
        capacity: int | None = None,
        rng: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.cost, self.method, self.penalty, self.n_jobs = as_cost(cost), method, penalty, n_jobs
        self.normalize = validation.flag(normalize, "normalize")
        check_normalize(normalize, penalty, kl)
        self.kl = divergence_weights(kl, penalty)
        self.targets = None
        if targets is not None:
            self.targets = target_rows(targets, self.cost, normalize)
            if capacity is not None:
                raise ValueError("capacity: all targets are kept; expected None with targets")
            capacity = self.targets.shape[0]
        key = None if rng is None else validation.noise_key(rng)
        given = {"drift": drift, "max_sweeps": max_sweeps, "capacity": capacity, "rng": key}
        self._options: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
        more = {} if temperature is None else {"temperature": temperature}
        own = self._options | more | {"n_jobs": n_jobs}
        self._pairs: PairOracle = pair_oracle(self.cost, penalty, method, kl=self.kl, **own)
        self._alone = OneAtATime("this Oracle is at work in another thread; it takes one call at a time")

    def __len__(self) -> int:
        return 0 if self.targets is None else int(self.targets.shape[0])

    @property
    def _chains(self) -> ChainOracle | None:
        """The chains, where there may be any."""
        found = self._pairs.chains if isinstance(self._pairs, AutoOracle) else self._pairs
        return found if isinstance(found, ChainOracle) else None

    @property
    def temperature(self) -> float | None:
        """The temperature of the next call."""
        return None if self._chains is None else self._chains.temperature

    @temperature.setter
    def temperature(self, T: float) -> None:
        if self._chains is None:
            raise ValueError(f"temperature: belongs to chains, this oracle has method={self.method!r}")
        self._chains.temperature = T

    def __call__(self, P: Any, Q: Any = None, *, indices: ArrayLike | slice | None = None) -> OracleResult:
        """Return values and gradients of pairs of measures.

        Parameters
        ----------
        P : array or sparse matrix of shape (n, m1), or (m1,) for one measure paired with all
            The models, row b for target ``indices[b]`` or for row b of Q.
        Q : array or sparse matrix of shape (n, m2), or (m2,), optional
            The other measures, where there are no fixed targets.
        indices : array of int, mask or slice, optional
            With targets: those that are meant, each at most once; all by default. Where both measures move: numbers
            that tell which pair of earlier calls each one is; by default their positions.

        Returns
        -------
        OracleResult

        Raises
        ------
        ValueError
            If measures do not fit each other or the cost; with masses that differ, the message names ``penalty=`` and
            ``normalize=``.
        RuntimeError
            If another thread calls the oracle at the same time.
        """
        with self._alone:
            ids, p, q, tolerance = self._measures(P, Q, indices)
            moves = self.targets is None
            found = self._pairs.evaluate(p.rows, q.rows, ids, True, tolerance, moves)
        return OracleResult(found.value, p.gradient(found.p), q.gradient(found.q), found.info)

    def exact(self, P: Any, Q: Any = None, *, indices: ArrayLike | slice | None = None) -> list[Solution]:
        """Return the exact optima of pairs of measures; what is kept does not change.

        Parameters
        ----------
        P, Q, indices
            As in a call.

        Returns
        -------
        list of Solution
            One per pair: its ``value``, certified bounds ``lower <= W <= upper``, ``plan``, ``f`` and ``g``, for
            measures that are divided by their sums unless there is a penalty or there are divergences.
        """
        _, p, q, tolerance = self._measures(P, Q, indices)
        exact = marginals_of(self.cost, self.penalty, self.kl).unrounded
        (a, b), sums = (p.rows, q.rows), (p.rows.sum(axis=1), q.rows.sum(axis=1))
        pair = exact.problem((a, sums[0]), (b, sums[1]), tolerance, ("P", "Q"))
        return exact.with_masses(pair, exact.solve(pair, n_jobs=self.n_jobs))

    def _measures(self, P: Any, Q: Any, indices: ArrayLike | slice | None) -> tuple[list[int], Weights, Weights, float]:
        """Return the ids of pairs, their measures, and how far sums may differ."""
        if self.targets is None:
            if Q is None:
                raise ValueError("Q: expected the other measures, as this oracle has no targets")
            given, name = Q, "Q"
        else:
            if Q is not None:
                raise ValueError("Q: expected None, as this oracle has targets")
            rows = which_targets(indices, len(self))
            given, name = self.targets[rows].toarray(), "targets"
        (p, a), (q, b) = pairs(P, given, self.cost, ("P", name))
        n = len(p)
        if self.targets is None:
            ids = self._ids(indices, n)
        elif n != len(rows):
            raise ValueError(f"P: expected one model for each of the {len(rows)} targets, or one; got {n}")
        else:
            ids = rows.tolist()
        tolerance = max(validation.sum_tolerance(P, self.cost.shape[0]), validation.sum_tolerance(given, len(q[0])))
        if self.penalty is None and self.kl is None and not self.normalize:
            check_sums(a, b, ("P", name), tolerance)
        return ids, Weights(p, "P", self.normalize), Weights(q, name, self.normalize), tolerance

    def _ids(self, indices: ArrayLike | slice | None, n: int) -> list[int]:
        """Return the numbers of pairs whose measures both move."""
        if indices is None:
            return list(range(n))
        given = np.asarray(indices)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise ValueError(f"indices: expected a number for each of the {n} pairs, got {indices!r}")
        ids = [int(id) for id in given.tolist()]
        if len(set(ids)) < n or min(ids) < 0 or max(ids) >= NEW // 2:
            raise ValueError("indices: expected a different number of at least 0 for each pair")
        return ids

    def snapshot(self) -> Any:
        """Return a copy of what is kept.

        Returns
        -------
        object
            For `restore`.
        """
        return self._pairs.snapshot()

    def restore(self, snapshot: Any) -> None:
        """Return to what was kept when a snapshot was taken.

        Parameters
        ----------
        snapshot : object
            What `snapshot` returned.
        """
        self._pairs.restore(snapshot)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the oracle and what it keeps to a file, from which `load` goes on bit-identically.

        Parameters
        ----------
        path : path
            The file, by convention with the ending ``.npz``.
        """
        entries: dict[str, Any] = {f"cost_{name}": array for name, array in self.cost.arrays().items()}
        if self.targets is not None:
            entries |= {"weights": self.targets.data, "columns": self.targets.indices, "starts": self.targets.indptr}
        entries |= {f"option_{name}": np.asarray(x) for name, x in self._options.items()}
        entries |= {_STATE + name: np.asarray(x) for name, x in self._pairs.arrays().items()}
        entries |= {} if self.kl is None else {"kl": np.asarray(self.kl)}
        entries |= {"method": self.method, "normalize": self.normalize, **penalty_arrays(self.penalty)}
        npz.save(path, schemas.ORACLE, entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str], n_jobs: int | None = None) -> Oracle:
        """Return the oracle that was saved in a file.

        Parameters
        ----------
        path : path
            The file.
        n_jobs : int, optional
            Threads over the pairs.

        Returns
        -------
        Oracle

        Raises
        ------
        ValueError
            If the file is damaged or holds something else.
        """
        arrays = npz.load(path, schemas.ORACLE)
        with npz.complete(path):
            return cls._from_arrays(arrays, n_jobs)

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]], n_jobs: int | None) -> Oracle:
        """Return the oracle whose entries a file has."""
        cost, targets = costs.from_arrays(npz.with_prefix(arrays, "cost_")), None
        if "starts" in arrays:
            targets = saved_targets(arrays, cost.shape[1])
        options = {name: x.item() for name, x in npz.with_prefix(arrays, "option_").items()}
        if targets is not None:
            options.pop("capacity", None)
        method, normalize = str(arrays["method"].item()), bool(arrays["normalize"].item())
        options |= {"penalty": penalty_of(arrays), "kl": tuple(arrays["kl"].tolist()) if "kl" in arrays else None}
        oracle = cls(cost, targets, method=method, normalize=normalize, n_jobs=n_jobs, **options)
        if targets is not None:
            oracle.targets = targets  # bit-identical: normalising again could change the last bit
        oracle._pairs.load_state(npz.with_prefix(arrays, _STATE))
        return oracle
