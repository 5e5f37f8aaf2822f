"""The barycenter of largest entropy within the gap, against a conic solver."""

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import entropy

from gibbsot import GridCost, WassersteinBarycenter


def shapes(side, rng):
    """Three measures of few pixels on a grid."""
    X = np.zeros((3, side**2))
    for x in X:
        x[rng.choice(side**2, 8, replace=False)] = rng.random(8) + 0.2
    return X / X.sum(axis=1, keepdims=True)


def largest_entropy(X, M, limit):
    """The largest entropy of weights whose mean cost is at most a limit, by Clarabel's interior-point method."""
    clarabel = pytest.importorskip("clarabel")
    m, n = M.shape[0], len(X)
    supports = [np.flatnonzero(x) for x in X]
    starts = np.cumsum([0, *(m * len(j) for j in supports)])
    size = starts[-1] + 2 * m  # plans, weights, entropies
    weights = sparse.eye_array(m, size, k=starts[-1])
    entropies = sparse.eye_array(m, size, k=starts[-1] + m)
    equal, right, costs = [], [], np.zeros(size)
    for x, j, start in zip(X, supports, starts, strict=False):
        k = len(j)
        plan = sparse.eye_array(m * k, size, k=start)
        equal += [sparse.kron(sparse.eye_array(m), np.ones((1, k))) @ plan - weights]
        equal += [sparse.kron(np.ones((1, m)), sparse.eye_array(k)) @ plan]
        right += [np.zeros(m), x[j]]
        costs[start : start + m * k] = M[:, j].ravel() / n
    exponential = sparse.lil_array((3 * m, size))  # (entropy, weight, 1): weight exp(entropy / weight) <= 1
    exponential[::3], exponential[1::3] = -entropies.tolil(), -weights.tolil()
    one = np.tile([0.0, 0.0, 1.0], m)
    A = sparse.vstack([*equal, sparse.csr_array(costs[None] / limit), -sparse.eye_array(starts[-1], size), exponential])
    b = np.concatenate([*right, [1.0], np.zeros(starts[-1]), one])
    cones = [clarabel.ZeroConeT(sum(map(len, right))), clarabel.NonnegativeConeT(1 + starts[-1])]
    cones += [clarabel.ExponentialConeT()] * m
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-10
    aim = -np.asarray(entropies.sum(axis=0)).ravel()
    empty = sparse.csc_matrix((size, size))
    found = clarabel.DefaultSolver(empty, aim, sparse.csc_matrix(A), b, cones, settings).solve()
    assert str(found.status) in ("Solved", "AlmostSolved")
    return -found.obj_val


@pytest.mark.parametrize(("side", "gap"), [(6, 0.05), (12, 0.01)])
def test_largest_entropy_of_another_solver(side, gap):
    X = shapes(side, np.random.default_rng(side))
    cost = GridCost((side, side))
    sharp = WassersteinBarycenter(cost, gap=0, random_state=0).fit(X)
    model = WassersteinBarycenter(cost, gap=gap, smooth=True, random_state=0).fit(X)
    assert model.status_ == "gap reached"
    assert model.gap_ <= gap
    assert model.objective_ <= sharp.objective_ / (1 - gap) * (1 + 1e-9)
    assert model.entropy_gap_ <= 1e-2
    assert entropy(model.barycenter_) > entropy(sharp.barycenter_) + 0.05
    most = largest_entropy(X, np.asarray(cost.matrix()), model.lower_bound_ / (1 - gap))
    assert most - model.entropy_gap_ - 1e-6 <= entropy(model.barycenter_) <= most + 1e-6


def test_smooth_barycenters_on_a_line_and_of_one_measure():
    bumps = np.exp(-((np.arange(30) - np.array([[6], [20]])) ** 2) / 4)
    sharp, model = (WassersteinBarycenter("line", gap=0.02, smooth=s, random_state=0).fit(bumps) for s in (False, True))
    assert entropy(model.barycenter_) > entropy(sharp.barycenter_)
    assert model.gap_ <= 0.02
    one = WassersteinBarycenter("line", gap=0.02, smooth=True).fit(bumps[:1])  # an objective of zero leaves no choice
    np.testing.assert_allclose(one.barycenter_, bumps[0] / bumps[0].sum(), rtol=1e-12, atol=1e-30)
    again = WassersteinBarycenter("line", gap=0.02, smooth=True, random_state=0, n_jobs=2).fit(bumps)
    np.testing.assert_array_equal(again.barycenter_, model.barycenter_)


def test_what_is_refused():
    with pytest.raises(ValueError, match="gap: expected a number between 0 and 1 with smooth=True, got 0"):
        WassersteinBarycenter("line", gap=0, smooth=True).fit(np.eye(3))
    with pytest.raises(TypeError, match="smooth"):
        WassersteinBarycenter("line", smooth="yes").fit(np.eye(3))
    with pytest.raises(ValueError, match="smooth: does not apply"):
        WassersteinBarycenter(smooth=True, support="free").fit([np.eye(2)])
