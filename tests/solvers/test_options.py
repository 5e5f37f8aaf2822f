"""What `solve` and `solve_batch` take as arguments, and what they refuse."""

import inspect

import numpy as np
import pytest
from scipy import sparse

from gibbsot import DenseCost, Gibbs, GraphCost, GridCost, PointCost, solve, solve_batch

RNG = np.random.default_rng(0)
P, Q, M = *RNG.dirichlet(np.ones(12), size=2), RNG.random((12, 12))
W = solve(P, Q, M).value


@pytest.mark.parametrize("call", [solve, solve_batch])
def test_signatures_have_named_arguments_only(call):
    kinds = {parameter.kind for parameter in inspect.signature(call).parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def test_masks_in_lists_are_refused():
    masked = np.ma.array(P, mask=P > 0.1)
    with pytest.raises(ValueError, match=r"P\[1\]: has masked entries"):
        solve_batch([P, masked], Q, M)
    with pytest.raises(ValueError, match=r"Q\[0\]: has masked entries"):
        solve_batch(P.reshape(3, 4), [masked.reshape(3, 4)] * 2, GridCost((3, 4)), normalize=True)


def coarse(shape):
    """Weights in half precision whose sums differ as rounding makes it likely."""
    rows = [(x / x.sum()).astype(np.float16) for x in RNG.random((2, *shape))]
    assert abs(rows[0].sum(dtype=float) - rows[1].sum(dtype=float)) > 1e-6
    return rows


def test_sums_of_half_precision_in_images_and_lists():
    side = 64
    p, q = coarse((side, side))
    cost = GridCost((side, side))
    q[0, 0] += np.float16(0.1)  # more than 4 eps times a side, less than 4 eps times the number of pixels
    value = solve(p, q, cost, gap=0.1).value
    assert solve_batch([p], [q], cost, gap=0.1).value == [value]
    assert solve_batch([p.ravel()], [q.ravel()], cost, gap=0.1).value == [value]
    with pytest.raises(ValueError, match="sums that agree"):
        solve(p.astype(np.float32), q.astype(np.float32), cost)


def test_costs_of_their_own_may_be_matrices_and_measures_sparse():
    rows = sparse.csr_array(np.stack([P, Q]))
    result = solve_batch(rows, [Q, P], [M, DenseCost(M.T)])
    assert result.value == pytest.approx([W, W], rel=1e-12)
    assert "2 optimal" in repr(result)
    assert "<th>largest gap</th>" in result._repr_html_()
    with pytest.raises(ValueError, match="cost: is empty"):
        solve_batch(None, None, [])
    with pytest.raises(ValueError, match="P: expected one measure for each of the 3 costs, got 2"):
        solve_batch(rows, None, [M] * 3)


def test_ids_of_problems_with_costs_of_their_own():
    clouds = [PointCost(np.random.default_rng(b).random((4, 2))) for b in range(2)]
    with pytest.raises(ValueError, match="ids: has 1 entries; expected one for each of the 2 problems"):
        solve_batch(None, None, clouds, method=Gibbs(n_sweeps=3), ids=[1])


def test_partial_results_show_the_sizes_of_the_measures():
    shown = repr(solve([3, 1], [0, 2], [[0, 5], [5, 0]], penalty=1))
    assert shown.startswith(
        "<OTResult value 4 (optimal), bounds 4 <= W <= 4, transported 1 of 4 and 2, size 2 x 2 points"
    )
    assert "transported 0.5 of 1, size" in repr(solve([0.5, 0.5], [1, 0], [[0, 5], [5, 0]], mass=0.5))
    assert "transported" not in repr(solve([0.5, 0.5], [1, 0], [[0, 5], [5, 0]]))


def test_dir_has_the_public_names_that_a_result_has():
    exact, chains = solve([1, 0], [0, 1], SWAP), solve([1, 0], [0, 1], SWAP, method="gibbs")
    moved = solve([1, 0], [0, 1], GraphCost(sparse.csr_array([[0, 1.0], [1.0, 0]])))
    for result in (exact, chains, moved, solve_batch(np.eye(2), None, SWAP), solve_batch(None, None, [SWAP, SWAP])):
        shown = {name for name in dir(result) if name[0] != "_"}
        assert {"value", "plan", "potentials", "plot", "map", "interpolate", "status"} <= shown
        assert not shown & {"parts", "single"}
        for name in shown:
            getattr(result, name)
    assert "history" in dir(chains)
    assert "history" not in dir(exact)
    assert "flow" in dir(moved)


HALF = np.array([0.5, 0.5])
SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        ([[0, 1], [1]], {}, "cost: expected a rectangular array of numbers"),
        (SWAP, {"penalty": 1e308}, r"penalty: expected at most 1.8e\+302 with costs of float64, got 1e\+308"),
        (SWAP, {"penalty": 10**400}, "penalty: expected a number of at most 1.8e308, got an integer of 1329 bits"),
        (SWAP, {"mass": 10**400}, "mass: expected a number of at most 1.8e308"),
        (SWAP, {"max_memory": 10**400}, "max_memory: expected a number of at most 1.8e308"),
        (SWAP, {"max_seconds": 10**400}, "max_seconds: expected a number of at most 1.8e308"),
        (SWAP, {"gap": 10**400}, "gap: expected a number of at most 1.8e308"),
        (SWAP, {"method": Gibbs(n_sweeps=9, schedule=10**400)}, "schedule: expected temperatures of at most"),
    ],
)
@pytest.mark.parametrize("call", [solve, solve_batch])
def test_extreme_arguments_are_named(call, cost, options, message):
    with pytest.raises(ValueError, match=message):
        call(HALF, HALF, cost, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tau": 2**70}, ValueError, "tau: expected at most 1,000,000, got 1180591620717411303424"),
        ({"stride": 0}, ValueError, "stride: expected at least 1, got 0"),
        ({"n_sweeps": 2**40}, ValueError, "n_sweeps: expected at most 67,108,864, got 1099511627776"),
        ({"pinned": 1}, TypeError, "pinned: expected"),
        (
            {"rng": -1},
            ValueError,
            r"rng: expected an integer .* or a numpy.random.Generator, got -1",
        ),
        ({"rng": "a"}, TypeError, "rng: expected an integer, got 'a'"),
    ],
)
def test_options_of_the_sampler_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        Gibbs(**options)


def test_a_generator_gives_a_seed_to_each_solve():
    method = Gibbs(n_sweeps=20, rng=np.random.default_rng(5))
    one, other = (solve(P, Q, M, method=method) for _ in range(2))
    seeds = np.random.default_rng(5).integers(2**64, size=2, dtype=np.uint64)
    assert [one.state.key, other.state.key] == seeds.tolist()
    assert one.value == solve(P, Q, M, method=Gibbs(n_sweeps=20, rng=int(seeds[0]))).value != other.value


def test_the_stride_of_the_mixing_test():
    warm = solve(P, Q, M, method=Gibbs(n_sweeps=200))
    assert solve(P, Q, M, method=Gibbs(stride=7), warm_start=warm).n_sweeps % 7 == 0


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (solve, {"n_sweeps": 5}, r"solve\(\) got .* 'n_sweeps'; expected method=gibbsot.Gibbs\(n_sweeps=...\)"),
        (solve_batch, {"seed": 5}, r"solve_batch\(\) got .* 'seed'; expected method=gibbsot.Gibbs\(rng=...\)"),
        (solve, {"ids": [0]}, r"solve\(\) got an unexpected keyword argument 'ids'$"),
        (solve, {"p": 1}, r"solve\(\) got multiple values for argument 'p'$"),
        (solve, {"epsilon": 0.1}, r"solve\(\) got an unexpected keyword argument 'epsilon'$"),
        (solve, {"warm_start": 3}, "warm_start: expected an OTResult, got int"),
    ],
)
def test_options_that_a_function_does_not_have(call, given, message):
    with pytest.raises(TypeError, match=message):
        call(P, Q, M, **given)


def test_measures_and_costs_by_name():
    assert solve(p=P, q=Q, cost=M).value == solve_batch(P, Q=[Q], cost=M, gap=0).value[0] == W
    with pytest.raises(TypeError, match="missing a required argument: 'cost'"):
        solve(P, Q)


def test_a_batch_has_the_options_of_one_problem_and_ids():
    one, batch = (list(inspect.signature(call).parameters)[3:] for call in (solve, solve_batch))
    assert batch == [*one, "ids"]
    assert "method, gap, normalize" in (inspect.getdoc(solve_batch) or "")


def test_results_of_costs_of_their_own_are_results():
    clouds = [PointCost(np.random.default_rng(m).random((m, 2))) for m in (3, 5)]
    result = solve_batch(None, [np.arange(1.0, 4), np.ones(5)], clouds, penalty=0.01)
    for b, one in enumerate(result):
        alone = solve(None, np.arange(1.0, 4) if b == 0 else np.ones(5), clouds[b], penalty=0.01)
        for name in ("value", "lower_bound", "upper_bound", "gap", "status", "reason", "transported", "multiplier"):
            assert getattr(one, name) == getattr(result, name)[b] == getattr(alone, name), name
        for x, y in zip(result.potentials, alone.potentials, strict=True):
            np.testing.assert_array_equal(x[b], y)
        assert result.problem[b].size == alone.problem.size
    chains = solve_batch(None, None, clouds, method=Gibbs(n_sweeps=30, diagnostics=True))
    for b, one in enumerate(chains):
        for name in ("n_sweeps", "mixed", "temperature", "value"):
            assert getattr(one, name) == getattr(chains, name)[b], name
        for name in ("history", "U", "L"):
            np.testing.assert_array_equal(getattr(one, name), getattr(chains, name)[b])
        assert chains.state[b] is one.state
        np.testing.assert_array_equal(chains.diagnostics[b].T[0], one.diagnostics.T)
        assert (chains.recovered_plan[b] != one.recovered_plan).nnz == 0
    with pytest.raises(ValueError, match="warm_start: has problems with costs of their own"):
        solve_batch(np.ones((2, 3)), np.ones(3), clouds[0], warm_start=result)


def test_nothing_is_left_over_of_balanced_problems():
    result = solve_batch([P, Q], Q, M)
    assert result.transported == pytest.approx([1, 1], rel=1e-12)
    assert result.multiplier.tolist() == [0, 0]


def test_parts_whose_masses_differ_by_rounding():
    apart = [[0, np.inf], [np.inf, 0]]
    message = (
        r"2 parts, .* differ by 5.6e-17, as rounding leaves them; expected equal masses in each part \(problem 0\)"
    )
    with pytest.raises(ValueError, match=message):
        solve([0.1 + 0.2, 0.7], [0.3, 0.7], apart)
    with pytest.raises(ValueError, match=r"cost: infinite costs forbid every plan .* \(problem 0\)"):
        solve([0.4, 0.6], [0.3, 0.7], apart)
    assert solve([0.3, 0.7], [0.3, 0.7], apart).value == 0


class Network:
    """As a graph of networkx, which NumPy takes for a list of its nodes."""

    adj = nodes = ((0, 0), (0, 1))

    def __iter__(self):
        return iter(self.nodes)


@pytest.mark.parametrize(
    ("p", "cost", "message"),
    [
        (None, (np.zeros(3), np.ones(3)), r"cost: expected a Cost or a matrix, got a tuple; PointCost\(X, Y\)"),
        (HALF, Network(), r"cost: .* got a Network of networkx; GraphCost\(networkx.to_scipy_sparse_array\(graph\)\)"),
        ([-1.0, 2.0], SWAP, r"p: has negative weights.*; values of a sample are points, not weights: .*PointCost"),
        (np.ones((4, 5, 3)), GridCost((4, 5)), r"images of shape \(4, 5\) \(one channel, or their mean: p.mean"),
    ],
)
def test_what_newcomers_try_gets_an_answer(p, cost, message):
    with pytest.raises((TypeError, ValueError), match=message):
        solve(p, p, cost)
