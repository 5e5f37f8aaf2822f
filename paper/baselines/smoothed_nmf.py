r"""Smoothed Wasserstein NMF (Rolet, Cuturi and Peyre 2016): transport with an entropy, solved in the smooth dual.

With ``E(T) = -sum T log T`` and ``W_eps(y, x) = min <M, T> - eps E(T)`` over the plans between y and x, the conjugate
in the first measure has a closed form, and so has its gradient:

.. math::

    H_x^*(g) = \epsilon \, \big(E(x) + \langle x, \log K^T e^{g / \epsilon} \rangle\big), \qquad
    \nabla H_x^*(g) = e^{g / \epsilon} \odot K \frac{x}{K^T e^{g / \epsilon}}, \qquad K = e^{-M / \epsilon}

Costs, potentials and values are divided by epsilon here: ``u = g / epsilon``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import entr, log_softmax, logsumexp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from gibbsot import Cost, GridCost
from gibbsot.core import validation
from gibbsot.costs import as_cost
from gibbsot.models.nmf.start import nmf_factors

Array = NDArray[np.float64]

_SAFE = 300.0  # the exponentials of exponents up to twice this are normal numbers
_LEAST = -650.0  # below this logarithm a sum has lost digits and is computed again
_CHUNK = 2_000_000  # numbers in memory when sums are computed again
_RESIDUAL = 0.02  # a larger residual of L-BFGS is warned of
_INNER = 0.003  # L-BFGS stops at this residual
_PAIRS = 20  # corrections in the memory of L-BFGS
_SMOOTHING = 0.01  # of the start: the dual has no minimum if every component is zero at some bin


class Conjugate:
    r"""The conjugates of smoothed transport to a batch of measures x, in units of epsilon.

    .. math:: H_x^*(u) = E(x) + \sum_j x_j \log \sum_i e^{u_i - M_{ij} / \epsilon}

    Sums are computed axis by axis on a grid. The largest exponent of a row is factored out or, if the costs are so
    large relative to epsilon that products would underflow, that of each line of each axis.

    Parameters
    ----------
    X : array of shape (n, m2)
        Weights that sum to one.
    cost : Cost
        The cost; finite.
    epsilon : float
        The smoothing, in units of the cost.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.5, 0.5]])
    >>> value, y = Conjugate(x, GridCost(2, spacing=1.0), 0.1)(np.zeros((1, 2)))
    >>> y
    array([[0.5, 0.5]])
    """

    def __init__(self, X: Array, cost: Cost, epsilon: float) -> None:
        if isinstance(cost, GridCost):
            axes, self._rows, self._columns = cost.axes, cost.row_shape, cost.col_shape
        else:
            axes, self._rows, self._columns = (cost.matrix(),), cost.shape[:1], cost.shape[1:]
        exponents = [np.asarray(axis, np.float64) / epsilon for axis in axes]
        self._least = sum(float(x.min()) for x in exponents)
        self._exponents = [x - x.min() for x in exponents]
        self._kernels = [np.exp(-x) for x in self._exponents]
        self._safe = sum(float(x.max()) for x in self._exponents) < _SAFE
        self._X = X
        self._entropy = entr(X).sum(axis=1)
        with np.errstate(divide="ignore"):
            self._log_X = np.log(X)

    def __call__(self, u: Array) -> tuple[Array, Array]:
        """Return the value for each measure and its gradient, which is a measure.

        Parameters
        ----------
        u : array of shape (n, m1)
            Potentials, in units of epsilon.

        Returns
        -------
        values : array of shape (n,)
            The conjugates.
        gradients : array of shape (n, m1)
            Measures.
        """
        sums = self._log_product(u, False)
        y = np.exp(u + self._log_product(self._log_X - sums, True))
        return self._entropy + (self._X * sums).sum(axis=1), y

    def _log_product(self, v: Array, by_rows: bool) -> Array:
        """Return ``log sum_i exp(v_i - M_ij / eps)`` for each j, or of the transpose for each i (by rows)."""
        shape = len(v), *(self._columns if by_rows else self._rows)
        pairs = [(x.T, k.T) if by_rows else (x, k) for x, k in zip(self._exponents, self._kernels, strict=True)]
        if self._safe:
            largest = v.max(axis=1, keepdims=True)
            out = np.exp(v - largest).reshape(shape)
            for a, (_, kernel) in enumerate(pairs):
                out = np.moveaxis(np.moveaxis(out, a + 1, -1) @ kernel, -1, a + 1)
            return np.log(out.reshape(len(v), -1)) + (largest - self._least)
        out = v.reshape(shape)
        for a, (exponent, kernel) in enumerate(pairs):
            lines = np.moveaxis(out, a + 1, -1)
            sums = _log_sums(lines.reshape(-1, len(kernel)), exponent, kernel)
            out = np.moveaxis(sums.reshape(*lines.shape[:-1], -1), -1, a + 1)
        return out.reshape(len(v), -1) - self._least


def _log_sums(lines: Array, exponent: Array, kernel: Array) -> Array:
    """Return ``log sum_i exp(v_i - exponent_ij)`` of each line v."""
    largest = lines.max(axis=1, keepdims=True)
    largest[np.isneginf(largest)] = 0  # a line without weight
    with np.errstate(divide="ignore"):
        sums = np.log(np.exp(lines - largest) @ kernel)
    imprecise = np.flatnonzero((sums < _LEAST).any(axis=1) & (lines > -np.inf).any(axis=1))
    sums += largest
    size = max(1, _CHUNK // exponent.size)
    for start in range(0, len(imprecise), size):
        rows = imprecise[start : start + size]
        sums[rows] = logsumexp(lines[rows, :, None] - exponent, axis=1)
    return sums


def dual_of_memberships(u: Array, conjugate: Conjugate, components: Array, rho: float) -> tuple[float, Array, Array]:
    r"""Return the dual function of the memberships, its gradient, and the memberships of u.

    .. math::

        \min_u \sum_i H_{x_i}^*(u_i) + \rho \log \sum_k e^{-\langle D_k, u_i \rangle / \rho}, \qquad
        \Lambda_{ik} \propto e^{-\langle D_k, u_i \rangle / \rho}

    Its minimum is minus that of ``sum_i W_eps(Lambda_i D, x_i) - rho E(Lambda_i)``, in units of epsilon.

    Parameters
    ----------
    u : array of shape (n, m)
        Potentials.
    conjugate : Conjugate
        The conjugates of the measures.
    components : array of shape (K, m)
        The components D.
    rho : float
        The smoothing of the memberships, in units of epsilon.

    Returns
    -------
    value : float
        The dual function.
    gradient : array of shape (n, m)
        Its gradient.
    memberships : array of shape (n, K)
        The memberships Lambda.
    """
    values, y = conjugate(u)
    logits = u @ components.T / -rho
    memberships = np.exp(log_softmax(logits, axis=1))
    return float(values.sum() + rho * logsumexp(logits, axis=1).sum()), y - memberships @ components, memberships


def dual_of_components(u: Array, conjugate: Conjugate, memberships: Array, rho: float) -> tuple[float, Array, Array]:
    r"""Return the dual function of the components, its gradient, and the components of u.

    .. math::

        \min_u \sum_i H_{x_i}^*(u_i) + \rho \sum_k \log \sum_j e^{-\sum_i \Lambda_{ik} u_{ij} / \rho}, \qquad
        D_{kj} \propto e^{-\sum_i \Lambda_{ik} u_{ij} / \rho}

    Parameters
    ----------
    u : array of shape (n, m)
        Potentials.
    conjugate : Conjugate
        The conjugates of the measures.
    memberships : array of shape (n, K)
        The memberships Lambda.
    rho : float
        The smoothing of the components, in units of epsilon.

    Returns
    -------
    value : float
        The dual function.
    gradient : array of shape (n, m)
        Its gradient.
    components : array of shape (K, m)
        The components D.
    """
    values, y = conjugate(u)
    logits = memberships.T @ u / -rho
    components = np.exp(log_softmax(logits, axis=1))
    return float(values.sum() + rho * logsumexp(logits, axis=1).sum()), y - memberships @ components, components


def minimise(
    dual: Callable[[Array, Conjugate, Array, float], tuple[float, Array, Array]],
    u: Array,
    conjugate: Conjugate,
    other: Array,
    rho: float,
    max_iter: int,
    tol: float,
) -> tuple[float, Array, Array, float]:
    """Minimise a dual function with L-BFGS.

    Parameters
    ----------
    dual : function
        `dual_of_memberships` or `dual_of_components`.
    u : array of shape (n, m)
        The start.
    conjugate, other, rho
        The further arguments of the dual function.
    max_iter : int
        The largest number of iterations.
    tol : float
        Stop at this residual.

    Returns
    -------
    value : float
        The minimum.
    u : array of shape (n, m)
        Where it is attained.
    factor : array
        The memberships or components of u.
    residual : float
        The absolute gradient, which is a difference of two measures: sum over the bins, mean over the measures.
    """
    residual = np.inf

    def function(x: Array) -> tuple[float, Array]:
        nonlocal residual
        value, gradient, _ = dual(x.reshape(u.shape), conjugate, other, rho)
        residual = _residual(gradient)
        return value, gradient.ravel()

    def stop(_: Array) -> None:
        if residual < tol:
            raise StopIteration

    # L-BFGS itself tests the largest entry of the gradient, which a single bin can keep large
    options = {"maxcor": _PAIRS, "maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": 0.0, "ftol": 0.0}
    result = minimize(function, u.ravel(), jac=True, method="L-BFGS-B", options=options, callback=stop)
    found = result.x.reshape(u.shape)
    value, gradient, factor = dual(found, conjugate, other, rho)
    return value, found, factor, _residual(gradient)


def _residual(gradient: Array) -> float:
    """Return the absolute gradient, sum over the bins, mean over the measures."""
    return float(np.abs(gradient).sum(axis=1).mean())


class SmoothedNMF(BaseEstimator):  # type: ignore[misc]
    r"""Nonnegative matrix factorisation with a smoothed transport cost as the loss.

    .. math::

        \min_{D, \Lambda} \sum_i W_\epsilon\Big(\sum_k \Lambda_{ik} D_k, \, x_i\Big)
        - \rho_1 \sum_i E(\Lambda_i) - \rho_2 \sum_k E(D_k)

    over components D_k and memberships Lambda_i, nonnegative with sum one. The fit alternates between memberships and
    components; each of the two problems is convex and solved in its dual.

    Parameters
    ----------
    n_components : int
        The number K of components.
    cost : Cost or array of shape (m, m), optional
        The cost between bins, finite; by default bins on a line, ``GridCost(m)``.
    epsilon : float
        The smoothing of transport, in units of the cost: 1/100 of the square of the side of an image whose cost is
        ``GridCost`` with its default spacing.
    rho : float or pair of float
        The smoothing of memberships and of components, in units of the cost.
    max_iter : int
        The largest number of iterations, each of which solves for both factors.
    max_inner : int
        The largest number of L-BFGS iterations for one factor, which start from the potentials of the other factor. A
        small epsilon needs many.
    tol : float
        Stop when the mean objective has changed by less than this share of epsilon.
    init : {"nmf", "random"}, array of shape (K, m), or a pair of it and one of shape (n, K)
        The first components: of scikit-learn's NMF, random mixtures of the data, or these; slightly smoothed. The
        first memberships follow from them; those of a pair, which `WassersteinNMF` takes too, are not used.
    random_state : int, RandomState or None
        The seed of the start.
    callbacks : sequence of functions
        Each is called with the model after every iteration; the fit stops if one returns True.

    Attributes
    ----------
    components_ : array of shape (K, m)
        The components, each with sum one.
    memberships_ : array of shape (n, K)
        The memberships of the training data.
    objective_ : list of float
        The mean over the measures of the objective after each iteration, in units of the cost, by the dual: a lower
        bound for the memberships at that time. It falls where ``max_inner`` lets L-BFGS converge; where it does not,
        it can rise at first because it becomes tighter. It can be negative.
    residual_ : float
        The residual of L-BFGS at the end: the difference between the mixtures of the factors and those of the dual, sum
        over the bins, mean over the measures.
    n_iter_ : int
        The number of iterations.
    n_features_in_ : int
        The number m of bins.

    References
    ----------
    A. Rolet, M. Cuturi and G. Peyre, "Fast dictionary learning with a smoothed Wasserstein loss", AISTATS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20)
    >>> bumps = np.exp(-((x - np.linspace(4, 15, 30)[:, None]) ** 2) / 8)
    >>> model = SmoothedNMF(3, max_iter=5, random_state=0).fit(bumps)
    >>> model.components_.shape, model.memberships_.shape
    ((3, 20), (30, 3))
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        cost: Cost | ArrayLike | None = None,
        epsilon: float = 0.01,
        rho: float | tuple[float, float] = 0.005,
        max_iter: int = 50,
        max_inner: int = 200,
        tol: float = 1e-4,
        init: Any = "nmf",
        random_state: Any = None,
        callbacks: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.n_components = n_components
        self.cost = cost
        self.epsilon = epsilon
        self.rho = rho
        self.max_iter = max_iter
        self.max_inner = max_inner
        self.tol = tol
        self.init = init
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> SmoothedNMF:
        """Learn components from measures as rows, which are normalised.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
            The measures.
        y : ignored
            For the conventions of scikit-learn.

        Returns
        -------
        SmoothedNMF
            The estimator itself.
        """
        rhos = self._check_parameters()
        X, conjugate = self._data(X)
        with threadpool_limits(1):  # small products are slower in threads
            D, u = self._start(X), np.zeros_like(X)
            self.objective_: list[float] = []
            before = np.inf
            self.n_features_in_ = X.shape[1]
            for k in range(self.max_iter):
                self.n_iter_ = k + 1
                _, u, W, _ = self._solve(dual_of_memberships, u, conjugate, D, rhos[0])
                value, u, D, self.residual_ = self._solve(dual_of_components, u, conjugate, W, rhos[1])
                self.components_, self.memberships_ = D, W
                self.objective_.append((-value * self.epsilon - rhos[0] * float(entr(W).sum())) / len(X))
                stops = [callback(self) is True for callback in self.callbacks]
                if any(stops) or abs(self.objective_[-1] - before) < self.tol * self.epsilon:
                    break
                before = self.objective_[-1]
        if self.residual_ > _RESIDUAL:
            message = f"L-BFGS has not converged, mixtures are off by {self.residual_:.2g}; raise max_inner"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def transform(self, X: Any) -> Array:
        """Return the memberships of measures.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, m)
            The measures.

        Returns
        -------
        array of shape (n, K)
        """
        check_is_fitted(self)
        rhos = self._check_parameters()
        X, conjugate = self._data(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X: expected {self.n_features_in_} features as in fit, got {X.shape[1]}")
        with threadpool_limits(1):
            return self._solve(dual_of_memberships, np.zeros_like(X), conjugate, self.components_, rhos[0])[2]

    def _check_parameters(self) -> tuple[float, float]:
        """Check the parameters; return the two rho."""
        for name in ("n_components", "max_iter", "max_inner"):
            validation.count(getattr(self, name), name)
        validation.positive(self.epsilon, "epsilon")
        validation.nonnegative(self.tol, "tol")
        validation.callbacks(self.callbacks)
        known = self.init in ("nmf", "random") if isinstance(self.init, str) else self.init is not None
        if not known or (isinstance(self.init, tuple) and len(self.init) != 2):
            raise ValueError(f"init: expected 'nmf', 'random', components or a pair of arrays, got {self.init!r}")
        return validation.positive_pair(self.rho, "rho", "memberships and one for components")

    def _data(self, X: Any) -> tuple[Array, Conjugate]:
        """Return the measures, normalised, and their conjugates."""
        shape = np.shape(X)
        if len(shape) != 2:
            raise ValueError(f"X: expected measures as rows, shape (n, m), got shape {shape}")
        m = shape[1]
        cost = GridCost(m) if self.cost is None else as_cost(self.cost)
        if cost.shape != (m, m):
            raise ValueError(f"cost: is for {cost.shape[0]} x {cost.shape[1]} points; expected {m} x {m} as in X")
        if not cost.finite:
            raise ValueError("cost: has infinite costs; expected finite ones")
        rows = validation.weights(X, "X", m)
        rows = rows / rows.sum(axis=1, keepdims=True)
        return rows, Conjugate(rows, cost, self.epsilon)

    def _start(self, X: Array) -> Array:
        """Return the initial components."""
        (n, m), K, random = X.shape, self.n_components, check_random_state(self.random_state)
        if not isinstance(self.init, str):
            D = validation.weights(self.init[0] if isinstance(self.init, tuple) else self.init, "init", m, count=K)
        elif self.init == "random":
            D = random.dirichlet(np.ones(n), K) @ X
        else:
            D, _ = nmf_factors(X, K, random)
        mass, uniform = D.sum(axis=1, keepdims=True), np.full((K, m), 1 / m)
        D = np.divide(D, mass, out=uniform.copy(), where=mass > 0)
        return (1 - _SMOOTHING) * D + _SMOOTHING * uniform

    def _solve(
        self, dual: Any, u: Array, conjugate: Conjugate, other: Array, rho: float
    ) -> tuple[float, Array, Array, float]:
        """Solve for one factor."""
        return minimise(dual, u, conjugate, other, rho / self.epsilon, self.max_inner, _INNER)
