"""Wasserstein barycenters: the measure with the least mean transport cost to given measures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import costs
from ...core import validation
from ...costs import Cost
from ...distributed import checkpoints
from ...io import npz
from .. import _base
from .._costs import Metric
from .._loop import Checkpoints, run_epochs
from . import files
from .fit import Fit
from .free import fit_free, refuse_clouds
from .shard import BarycenterShard

_FIXED_ONLY = ("step_size", "temperature", "tau", "max_memory", "client", "checkpoint", "checkpoint_seconds", "smooth")
_FREE_ONLY = ("n_support", "init", "n_init", "max_pairs")


class WassersteinBarycenter(_base.ClientEstimator):
    r"""The barycenter of measures, on their common support or with a free one.

    .. math:: \min_p \sum_i \lambda_i W(p, x_i)

    over weights p on the common support, to a certified gap. The problem is a linear programme, and potentials choose
    its arcs. These come from mirror descent with the gradients of warm-started Gibbs samplers (`Oracle`); small
    programmes have all arcs.
    The programme is solved by an interior-point method and, for the optimum itself, HiGHS (see
    ``solvers.linear_programme``). On a line the barycenter has a closed form. Where the programme is too large for the
    memory, the descent goes on to the end: when neither V(z) falls nor the certified lower bound rises, the chains are
    cooled, and the descent continues from the average of the last models with shorter steps. Then follows a level
    method with exact values and subgradients (see ``oracle.level_method``). Without the programme, the measure of the
    largest weight is a candidate too.

    With ``support="free"`` the barycenter is a cloud: ``n_support`` points and their weights, which minimise the mean
    transport cost by squared Euclidean distances to clouds or rows of weights. Exact plans alternate with updates of
    the points, to the means of what they are sent to, and of the weights. This problem is not convex: the result is
    stationary, and it is a global optimum only where ``lower_bound_`` says so. Two measures and measures on the line
    have a closed form, which is used if ``n_support`` is large enough, and is the start if it is not.

    Parameters
    ----------
    cost : Cost, array of shape (m, m), str or callable, optional
        The cost between bins, such as ``GridCost((64, 64))``, "line", or a metric such as "cosine" between the rows of
        ``feature_vectors`` or the columns of X, as for `WassersteinNMF`. None is "line", with a warning.
    gap : float
        The certified relative gap at which the fit ends; 0 for the optimum, to a gap of 1e-9.
    max_epochs : int
        The largest number of passes over the measures: of the descent, and of the level method.
    step_size : float
        The step of the descent, relative to the mean cost.
    temperature : "auto" or float
        The initial temperature. "auto" is a fifth of that of `WassersteinNMF`.
    tau : int
        The lag of the chains' mixing test. It is shorter than in other models, because one model averages the noise of
        all chains.
    tol : float
        The gain of ten epochs, relative to the cost, below which the chains are cooled or, if they are cold, the
        descent ends.
    max_seconds : float, optional
        The time after which the fit ends with what it has proved. A run of HiGHS gets what is left of it.
    max_memory : float, optional
        The bytes that the linear programme may take; 2e9 by default.
    random_state : int, RandomState or None
        The seed; results are bit-identical for the same integer.
    n_jobs : int, optional
        The number of threads over the measures; results are bit-identical for every number.
    verbose : bool
        Show progress: a bar on terminals and in notebooks, lines on standard error elsewhere.
    callbacks : sequence of functions
        Each is called with the model after every epoch and round; the fit stops if one returns True.
    client : dask.distributed.Client, optional
        Keeps the shards of the data on the client's workers, as in `WassersteinNMF`. Results are bit-identical to
        those without a client.
    checkpoint : path or URL, optional
        A new or empty folder for checkpoints, of which the last two are kept, as in `WassersteinNMF`. `load` reads it.
    checkpoint_seconds : float
        The time between two checkpoints.
    feature_vectors : array of shape (m, d), optional
        An embedding of each bin, from which a metric builds the cost.
    smooth : bool
        Of all weights whose objective is certified to be within ``gap`` of the optimum, return those of the largest
        entropy. An optimum is a vertex and often speckled; these weights are not, and nothing is blurred. ``gap`` is
        then a choice above 0 and below 1; 0.01 gives a clear picture.
    support : {"fixed", "free"}
        Whether the barycenter has weights on the bins, or points of its own. Parameters that do not apply to a support
        must keep their defaults.
    n_support : int, optional
        Free support: the number of points, by default the mean number of points of a measure.
    init : "k-means++", array of shape (n_support, d), or pair of points and weights
        Free support: where to start. k-means++ chooses among the points of all measures, or of the closed form.
    n_init : int
        Free support: the number of starts by k-means++, of which the best result is kept.
    max_pairs : float
        Free support: ``lower_bound_`` is computed for up to this number of pairs of measures, with an exact transport
        cost for each; ``np.inf`` for any number.

    Attributes
    ----------
    cost_ : Cost
        The cost between bins; missing for clouds.
    barycenter_ : array of shape (m,)
        The weights p, with sum one, in double precision for all data: single precision is too coarse for a gap of
        1e-9. With free support those of ``support_``.
    support_ : array of shape (n_support, d)
        Free support: the points, at most as many as asked for.
    entropy_gap_ : float
        With ``smooth``: by how much the entropy of other weights within the gap may be larger, in nats, as computed in
        double precision. The fit aims at 0.01.
    stationarity_ : float
        Free support: by what share the best points for the optimal plans would lower the objective.
    weights_gap_ : float
        Free support: the largest share by which other weights of these points could lower the objective, as computed in
        double precision.
    objective_ : float
        The exact objective of the barycenter over all measures of the fit, from optimal plans, rounded up; infinite
        during the descent and after an interrupt of it.
    lower_bound_ : float
        A certified lower bound of the objective of all weights p. With free support
        :math:`\sum_{i<j} \lambda_i \lambda_j W(x_i, x_j)`, which holds for every support, and 0 where this is not
        computed: see ``max_pairs``.
    gap_ : float
        ``objective_ - lower_bound_`` relative to the sum of the absolute terms of the objective, which is the objective
        where no cost is negative. It bounds the relative suboptimality of the barycenter.
    status_ : str
        "optimal" (a gap of at most 1e-9), "gap reached", "budget spent" or "gap open", both with a
        `ConvergenceWarning` that says why, or "stopped" by a callback; "running" during the fit and after an
        interrupt. With free support also "stationary". Like ``objective_`` and ``gap_`` it belongs to ``barycenter_``
        as it is returned.
    n_iter_ : int
        The number of epochs and rounds.
    history_ : list of Epoch
        The record of each epoch and round. ``lower`` is the lower bound so far, every ten epochs; ``upper`` the
        objective so far, from the first round on and in the last record. Rounds have temperature zero.
    n_features_in_ : int
        The number of bins m.

    Examples
    --------
    >>> from gibbsot import WassersteinBarycenter
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.array([[5], [13]])) ** 2) / 4)
    >>> model = WassersteinBarycenter("line", random_state=0).fit(bumps)
    >>> int(model.barycenter_.argmax()), model.status_
    (9, 'optimal')
    """

    def __init__(
        self,
        cost: Cost | ArrayLike | str | Metric | None = None,
        *,
        gap: float = 1e-3,
        max_epochs: int = 1000,
        step_size: float = 20.0,
        temperature: float | str = "auto",
        tau: int = 20,
        tol: float = 2e-4,
        max_seconds: float | None = None,
        max_memory: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Any], Any]] = (),
        client: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_seconds: float = 120.0,
        feature_vectors: Any = None,
        smooth: bool = False,
        support: str = "fixed",
        n_support: int | None = None,
        init: Any = "k-means++",
        n_init: int = 1,
        max_pairs: float = 200,
    ) -> None:
        self.cost = cost
        self.gap = gap
        self.max_epochs = max_epochs
        self.step_size = step_size
        self.temperature = temperature
        self.tau = tau
        self.tol = tol
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks
        self.client = client
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.feature_vectors = feature_vectors
        self.smooth = smooth
        self.support = support
        self.n_support = n_support
        self.init = init
        self.n_init = n_init
        self.max_pairs = max_pairs

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> WassersteinBarycenter:
        """Find the barycenter of measures. A fit that is interrupted leaves the best so far.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            Measures as rows, which are normalised. Each item of a list, or block of a Dask array, is a shard. With free
            support and ``cost`` None or "sqeuclidean" also clouds: arrays of points of shape (m_k, d), or pairs
            (points, weights).
        y : None
            Ignored.
        sample_weight : array of shape (n,), optional
            The lambda, nonnegative, which are normalised; uniform by default. Where the linear programme is not used,
            the descent and the lower bound take about six digits of them.

        Returns
        -------
        WassersteinBarycenter
            The fitted model.
        """
        started = time.perf_counter()
        self._check_parameters()
        if self.support == "free":
            fit_free(self, X, sample_weight, started)
            return self
        refuse_clouds(self, X)
        fit_id = "" if self.checkpoint is None else checkpoints.prepare(self.checkpoint)
        with closing(_base.shards_of(self, BarycenterShard, X, reset=True)) as shards:
            self.cost_ = _base.cost_of(self, X)
            weights = _base.sample_weights(sample_weight, shards)
            # a power of two rounds nothing
            weights = None if weights is None else np.ldexp(weights, -int(np.frexp(weights.max())[1]))
            units, seed = costs.in_units(self.cost_), _base.seed(self.random_state)
            shards.initialise(units.single().cost, self.tau, seed, self.n_jobs)
            shards.reduce(BarycenterShard.set_weights, None if weights is None else shards.split(weights))
            fit = Fit(self, units, shards, weights, [])
            fit.fit_id = fit_id
            self._fit(fit, started)
        return self

    def resume(self, X: Any) -> WassersteinBarycenter:
        """Continue a fit from its last checkpoint, after a crash or an interrupt or with a larger budget.

        The result is bit-identical to that of a fit without the interrupt. Rounds of the linear programme start again.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m), Dask array, or list of matrices or files
            The data of the fit, in the same shards.

        Returns
        -------
        WassersteinBarycenter
            The fitted model.

        Raises
        ------
        ValueError
            If there is no checkpoint, or the data differ.
        """
        started = time.perf_counter()
        self._check_parameters()
        if self.support == "free":
            raise ValueError("support: free supports have no checkpoints; expected 'fixed' to resume a fit")
        if self.checkpoint is None or not checkpoints.exist(self.checkpoint):
            raise ValueError("resume: there is no checkpoint; expected one in the folder checkpoint, of a fit")
        fit_id = checkpoints.claim(self.checkpoint, checkpoints.mark(self.checkpoint))
        saved = checkpoints.load_last(self.checkpoint, lambda folder: files.load_fit(self, folder))
        with closing(saved.shards) as shards:
            cost = self.cost_
            if self.cost is not None:
                cost = _base.cost_of(self, X)
            if cost != self.cost_:
                raise ValueError("cost: differs from that of the fit, cost_; expected the same")
            _base.attach(self, shards, X)
            shards.reduce(BarycenterShard.set_n_jobs, self.n_jobs)
            with npz.complete(saved.folder):
                fit = Fit(self, costs.in_units(cost), shards, saved.state.get("weights"), self.history_, saved.state)
            fit.checkpoint, fit.checksums, fit.fit_id = saved.folder, saved.checksums, fit_id
            self._fit(fit, started)
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str], client: Any = None) -> WassersteinBarycenter:
        """Return the model of the last complete checkpoint in a folder, which `resume` continues.

        Parameters
        ----------
        path : path or URL
            The folder of checkpoints.
        client : dask.distributed.Client, optional
            The client whose workers will hold the shards.

        Returns
        -------
        WassersteinBarycenter
            The model.
        """
        return checkpoints.load_last(path, lambda folder: files.load(cls, folder, client))

    def _check_parameters(self) -> None:
        _base.check_parameters(self)
        validation.positive(self.step_size, "step_size")
        validation.count(self.n_init, "n_init")
        if validation.flag(self.smooth, "smooth") and not 0 < self.gap < 1:
            raise ValueError(f"gap: expected a number between 0 and 1 with smooth=True, got {self.gap!r}")
        validation.nonnegative(0.0 if self.max_pairs == np.inf else self.max_pairs, "max_pairs")
        _base.check_support(self, fixed=_FIXED_ONLY, free=_FREE_ONLY)

    def _fit(self, fit: Fit, started: float) -> None:
        """Run the stages of a fit."""
        self.status_ = "running"
        timed = None
        if self.checkpoint is not None:
            timed = Checkpoints(lambda model: files.write(model, fit), self.checkpoint_seconds)
        publish = partial(self._publish, fit)
        publish()
        run_epochs("Wasserstein barycenter", self, fit.stages(), fit.history, publish, started, timed)
        fit.complete()
        publish()
        fit.complete_rounded(self.barycenter_)
        self._publish_bounds(fit)
        last = fit.history[-1]._replace(lower=self.lower_bound_, upper=self.objective_)
        self.history_ = [*fit.history[:-1], last]
        if self.smooth:
            self.entropy_gap_ = float(fit.entropy_gap)
        self.status_ = fit.status()
        if timed is not None:
            timed.attempt(self)

    def _publish(self, fit: Fit) -> None:
        normalised = abs(fit.p.sum() - 1) < 1e-9  # then another division would only round what was certified
        self.barycenter_ = np.asarray(fit.p if normalised else fit.p / fit.p.sum(), np.float64)
        self.history_, self.n_iter_ = fit.history, len(fit.history)
        self._publish_bounds(fit)

    def _publish_bounds(self, fit: Fit) -> None:
        self.objective_, self.lower_bound_, self.gap_ = fit.upper, fit.lower, fit.gap
