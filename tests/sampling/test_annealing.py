from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gibbsot import GridCost
from gibbsot.sampling import schedules, temperature
from gibbsot.sampling.annealing.adaptive import AdaptiveCooling, ModelState
from gibbsot.sampling.annealing.paper import ConditionalDecay, EpochDecay
from gibbsot.sampling.annealing.plateau import PlateauCooling, PlateauState, Trend
from gibbsot.sampling.annealing.staged import CoolingStages, StagedCooling
from gibbsot.sampling.annealing.tracking import GapTracking, GeometricDecay

positive = st.floats(1e-3, 1e3)
powers = st.integers(-20, 20).map(lambda k: 2.0**k)
ADAPTIVE = AdaptiveCooling()
PLATEAU = PlateauCooling(window=3, cooling=0.5, damping=0.8, relative=True, rise=1.05)


def test_policies_and_states_are_immutable():
    for thing, name in ((ADAPTIVE, "rise"), (PLATEAU, "window"), (PlateauState(1.0), "T"), (ModelState(1.0, 0.1), "T")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, 2)


def test_minimum_temperature_scales_with_the_cost():
    one, other = (temperature.minimum(GridCost(5, spacing=spacing)) for spacing in (1.0, 2.0))
    assert other == 4 * one > 0
    forbidden = GridCost(matrices=[np.array([[0.0, np.inf], [1.0, 0.0]])])
    assert temperature.minimum(forbidden) == np.finfo(forbidden.dtype).tiny


# models with exact evaluations


def start(value: float = 2.0, T: float = 0.5, T_min: float = 1e-6, given: float | None = None) -> ModelState:
    return ADAPTIVE.init(value, T, T_min, given)


def evaluated(state: ModelState, value: float, bias: float, tol: float = 0.0) -> ModelState:
    state, _ = ADAPTIVE.record(state, value)
    return ADAPTIVE.update(state, value, value * (1 + bias), tol)


def test_the_initial_state():
    state = start()
    assert (state.T, state.step, state.best) == (0.5, 2.0, np.inf)
    assert state.unit * state.bias * 2.0 == pytest.approx(state.T)
    assert start(T=1e-9).T == 1e-6
    given = start(given=1.0)
    assert given.T == 1.0
    assert given.bias == 2 * state.bias
    assert start(value=0.0).unit == 1.0


def test_evaluations_become_rarer_and_follow_a_restore_soon():
    state = start()
    assert [epoch for epoch in range(12) if ADAPTIVE.due(state, epoch)] == [10, 11]
    assert ADAPTIVE.due(replace(state, evaluated=160), 180)
    assert not ADAPTIVE.due(replace(state, evaluated=160), 179)
    assert ADAPTIVE.due(replace(state, evaluated=1000), 1040)
    assert not ADAPTIVE.due(replace(state, evaluated=1000), 1039)
    assert ADAPTIVE.due(replace(state, evaluated=160, worse=True), 163)


def test_the_record_keeps_the_best():
    state, best = ADAPTIVE.record(start(), 3.0)
    assert best
    assert (state.best, state.past) == (3.0, (3.0,))
    state, best = ADAPTIVE.record(state, 4.0)
    assert not best
    assert state.best == 3.0
    state, best = ADAPTIVE.record(state, 3.0)
    assert not best


def test_a_step_is_damped_only_if_changes_are_large_and_growing():
    state = ADAPTIVE.after_epoch(replace(start(), step=1.0), 0.1, 1.0)
    assert (state.step, state.least_gradient) == (1.0, 0.1)
    assert ADAPTIVE.after_epoch(state, 0.149, 1.0).step == 1.0
    grown = ADAPTIVE.after_epoch(state, 0.2, 1.0)
    assert (grown.step, grown.least_gradient) == (0.6, 0.2)
    small = replace(state, least_gradient=0.001)
    assert ADAPTIVE.after_epoch(small, 0.039, 1.0).step == 1.0
    assert ADAPTIVE.after_epoch(state, 0.05, 1.0).least_gradient == 0.05


def test_steps_that_would_change_a_model_too_much_are_shortened():
    assert ADAPTIVE.limit(0.1, value=1.0, variance=0.0) == 1.0
    assert ADAPTIVE.limit(4.0, value=1.0, variance=1.0) == 0.1 / 4.0
    assert EpochDecay().limit(4.0, value=0.0, variance=1.0) == 1.0


def test_steps_that_would_shift_components_by_much_of_the_cost_are_shortened():
    """A tilt of the logarithms by d standardised positions shifts a normal density by d standard deviations."""
    value, variance = 1e-4, 0.05
    d = ADAPTIVE.limit(1.0, value, variance)
    x = np.linspace(-3, 3, 4001)
    density = np.exp(-(x**2) / (2 * variance))
    tilted = density * np.exp(d * x / np.sqrt(variance))
    shift = (x * tilted).sum() / tilted.sum()
    assert shift**2 == pytest.approx(ADAPTIVE.largest_shift * value, rel=1e-6)
    assert ADAPTIVE.limit(d, value, variance) == 1.0
    assert ADAPTIVE.limit(d, 0.0, variance) == ADAPTIVE.limit(d, -1e-4, variance) == 0.0  # chains that lag


def test_the_mean_model_is_a_polynomial_decay_average():
    """Of weights (k + 1)(k + 2)(k + 3) for epoch k, up to a factor."""
    state, mean = start(), 0.0
    values = np.random.default_rng(0).random(20)
    for value in values:
        mean += ADAPTIVE.share(state) * (value - mean)
        state = ADAPTIVE.after_epoch(state, 0.1, 1.0)
    k = np.arange(20)
    assert mean == pytest.approx(np.average(values, weights=(k + 1) * (k + 2) * (k + 3)))
    assert EpochDecay().share(state) == 1.0


def test_a_model_that_became_worse_is_restored_with_a_shorter_step():
    state = evaluated(start(), 2.0, 0.2)
    worse = evaluated(state, 2.11, 0.2)
    assert worse.worse
    assert worse.step == worse.step_max == 0.6 * state.step
    assert worse.past[-1] == 2.0
    assert not evaluated(state, 2.09, 0.2).worse
    assert not evaluated(worse, 2.0, 0.2).worse
    assert evaluated(worse, 2.0, 0.3).step == worse.step  # never again longer than that


@pytest.mark.parametrize(("fraction", "factor"), [(0.2, 0.6), (0.4, 1.0), (0.6, 1.6)])
def test_the_step_depends_on_whether_chains_follow(fraction, factor):
    state = replace(start(), step=1.0)
    assert evaluated(state, 2.0, fraction * state.bias).step == pytest.approx(factor)


def test_the_step_has_a_limit():
    assert evaluated(replace(start(), step=1.9), 2.0, 0.3).step == 2.0


def test_chains_that_lag_at_short_steps_get_a_higher_temperature_before_the_first_cooling():
    state = replace(start(), step=0.2)
    warmer = evaluated(state, 2.0, 0.0)
    assert warmer.step == 0.2
    assert warmer.bias == state.bias / 0.7
    later = evaluated(replace(state, levels=(2.0,)), 2.0, 0.0)
    assert (later.step, later.bias) == (0.2 * 0.6, state.bias)


@given(st.floats(-0.02, 0.05))
def test_a_stall_is_a_small_gain_over_three_evaluations(gain):
    state = evaluated(start(), 2.0, 0.2)  # the first evaluation counts twice: it is recorded and observed
    for value in (2.0, 2.0 * (1 - gain)):
        assert not state.levels
        state = evaluated(state, value, 0.2)
    stalled = 2.0 - 2.0 * (1 - gain) <= 0.003 * 3 * 2.0 * (1 - gain)
    assert len(state.levels) == stalled
    assert state.bias == start().bias * (0.7 if stalled else 1)
    assert len(state.past) == (1 if stalled else 4)


def stalls(bias: float, tol: float, n: int) -> ModelState:
    state = start()
    for _ in range(n):
        state = evaluated(state, 2.0, bias, tol)
    return state


def test_the_fit_ends_after_coolings_without_gain():
    assert [len(stalls(0.05, 1e-3, n).levels) for n in (2, 3, 6, 9)] == [0, 1, 2, 3]
    assert not stalls(0.05, 1e-3, 8).finished
    assert stalls(0.05, 1e-3, 9).finished
    assert not stalls(0.15, 1e-3, 9).finished  # still warm


def test_a_lower_tolerance_resumes_a_finished_fit():
    state = replace(start(), levels=(2.0, 1.99, 1.98), best=1.98, finished=True)
    assert ADAPTIVE.resume(state, 0.02).finished
    assert not ADAPTIVE.resume(state, 0.001).finished
    assert not ADAPTIVE.resume(replace(state, finished=False), 0.02).finished


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(-0.3, 0.6)), max_size=15), powers)
def test_costs_and_temperatures_have_one_scale(observations, c):
    one, other = start(), start(2.0 * c, 0.5 * c, 1e-6 * c)
    for value, bias in observations:
        one = evaluated(one, value, bias, 1e-3)
        other, _ = ADAPTIVE.record(other, c * value)
        other = ADAPTIVE.update(other, c * value, c * (value * (1 + bias)), 1e-3)
        assert pytest.approx(c * one.T, rel=1e-12) == other.T
        assert (other.step, other.worse, other.finished) == (one.step, one.worse, one.finished)
        assert one.T_min <= one.T


def test_a_perfect_fit_is_kept_at_the_minimum_temperature():
    state = evaluated(start(), 0.0, 0.0)
    assert state.T_min == state.T


def test_epoch_decay_is_the_papers():
    policy = EpochDecay(m=60, m_bar=40.0)
    state = policy.after_epoch(policy.init(2.0, 1.0, 1e-6), 5.0, 1.0)
    assert state.T == schedules.epoch_decay(1.0, 60, 40.0) == 0.9
    assert state.step == 1.0
    assert policy.update(state, 3.0, 1.0, 0.1) == state
    assert state.T_min == policy.after_epoch(replace(state, T=1.05 * state.T_min), 5.0, 1.0).T


def test_conditional_decay_waits_for_chains_that_lag():
    """It cools in epochs whose V(z) is above 0.9 of the cost, which the sample gives by a ratio."""
    policy = ConditionalDecay(m=60, m_bar=40.0)
    state = policy.after_epoch(policy.init(2.0, 1.0, 1e-6), 5.0, 3.0)
    assert state.T == 0.9  # before the first evaluation
    state = policy.update(state, 2.0, 1.5, 0.1)  # V(z) of the sample is half that of all measures
    assert state.objective == 4.0
    assert policy.after_epoch(state, 5.0, 3.59).T == 0.9
    assert pytest.approx(0.81) == policy.after_epoch(state, 5.0, 3.61).T
    assert policy.update(replace(state, estimate=-1.0), 2.0, 1.5, 0.1).objective == 2.0
    assert [epoch for epoch in range(1, 50) if policy.due(state, epoch)] == [1, 21, 41]


# serialisation


def arrays(state: ModelState | PlateauState) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in state.to_arrays().items()}


@given(st.lists(positive, max_size=12))
def test_states_survive_files(values):
    model, descent = start(), PLATEAU.init(1.0, 0.1)
    for value in values:
        model = evaluated(model, value, 0.1)
        descent = PLATEAU.observe(descent, value)
        descent = PLATEAU.update(descent, PLATEAU.trend(descent, 0.1))
    assert ModelState.from_arrays(arrays(model)) == model
    assert PlateauState.from_arrays(arrays(descent)) == descent


# plateaus


def observed(state: PlateauState, *values: float, policy: PlateauCooling = PLATEAU) -> PlateauState:
    for value in values:
        state = policy.observe(state, value)
    return state


def test_two_windows_are_needed():
    state = observed(PLATEAU.init(1.0), 1, 1, 1, 1, 1)
    assert PLATEAU.trend(state, 0.1) is Trend.FALLING
    assert PLATEAU.trend(PLATEAU.observe(state, 1.0), 0.1) is Trend.STALLED


@pytest.mark.parametrize(
    ("later", "gain", "trend"),
    [
        (1.0, 0.0, Trend.STALLED),
        (0.95, 0.0, Trend.STALLED),
        (0.85, 0.0, Trend.FALLING),
        (1.0, 0.2, Trend.FALLING),
        (1.04, 0.0, Trend.STALLED),
        (1.06, 0.0, Trend.RISING),
        (1.06, 0.2, Trend.RISING),
    ],
)
def test_trends(later, gain, trend):
    state = observed(PLATEAU.init(1.0), 1, 1, 1, later, later, later)
    assert PLATEAU.trend(state, 0.1, gain) is trend


def test_a_tolerance_may_be_absolute():
    policy = replace(PLATEAU, relative=False, rise=None)
    state = observed(policy.init(1.0), 100, 100, 100, 99, 99, 99, policy=policy)
    assert policy.trend(state, 0.1) is Trend.FALLING
    assert PLATEAU.trend(state, 0.1) is Trend.STALLED
    assert policy.trend(observed(policy.init(1.0), 1, 1, 1, 9, 9, 9), 0.1) is Trend.STALLED


def test_a_stall_cools_and_damps_and_starts_anew():
    state = observed(PLATEAU.init(1.0, 0.1), *np.ones(6))
    cooled = PLATEAU.update(state, Trend.STALLED)
    assert cooled == PlateauState(0.5, 0.1, step=0.8, stalls=1)
    lagging = PLATEAU.update(state, Trend.STALLED, chains_follow=False)
    assert (lagging.T, lagging.step) == (1.0, 0.8)
    rising = PLATEAU.update(state, Trend.RISING)
    assert rising == replace(state, step=0.8)
    assert PLATEAU.update(state, Trend.FALLING) == state


def test_floors_and_ends():
    state = observed(PLATEAU.init(0.15, 0.1), *np.ones(6))
    assert PLATEAU.update(state, Trend.STALLED).T == 0.1
    assert PLATEAU.update(replace(state, T=0.1), Trend.STALLED) == replace(state, T=0.1, finished=True)


def test_a_descent_ends_when_cooling_no_longer_closes_the_gap():
    """The objective is one; the gap to its lower bound is a half at the first stall."""
    first = PLATEAU.update(observed(PLATEAU.init(1.0), *np.ones(6)), Trend.STALLED, lower=0.5)
    assert (first.gap, first.T, first.finished) == (0.5, 0.5, False)
    stalled = observed(first, *np.ones(6))
    assert PLATEAU.update(stalled, Trend.STALLED, lower=0.59) == replace(stalled, finished=True)  # 0.41 > 0.8 * 0.5
    second = PLATEAU.update(stalled, Trend.STALLED, lower=0.61)
    assert (second.gap, second.T, second.finished) == (pytest.approx(0.39), 0.25, False)
    assert PLATEAU.update(stalled, Trend.FALLING, lower=0.5) == stalled
    # without a lower bound only the temperature and the number of stalls end it
    cooled = PLATEAU.update(observed(PLATEAU.init(1.0), *np.ones(6)), Trend.STALLED)
    assert not PLATEAU.update(observed(cooled, *np.ones(6)), Trend.STALLED).finished


def test_a_number_of_stalls_ends_the_fit():
    policy = PlateauCooling(max_stalls=3)
    state, ends = policy.init(1.0), []
    for _ in range(3):
        state = policy.update(observed(state, *np.ones(10), policy=policy), Trend.STALLED)
        ends.append(state.finished)
    assert ends == [False, False, True]
    assert (state.T, state.step) == (0.125, 0.125)


def test_comparisons_have_a_stride():
    policy = replace(PLATEAU, stride=3)
    states = [observed(policy.init(1.0), *np.ones(n)) for n in range(1, 7)]
    assert [policy.due(state) for state in states] == [False, False, True] * 2
    assert policy.level(observed(policy.init(1.0), 4, 2, 1, 0)) == 1.0


@given(st.lists(positive, max_size=40), powers)
def test_plateaus_have_one_scale(values, c):
    one, other = PLATEAU.init(1.0, 1e-4), PLATEAU.init(c, 1e-4 * c)
    for value in values:
        one, other = PLATEAU.observe(one, value), PLATEAU.observe(other, c * value)
        trends = [PLATEAU.trend(state, 0.2) for state in (one, other)]
        assert trends[0] is trends[1]
        one, other = (
            PLATEAU.update(state, trend, lower=-unit)
            for state, trend, unit in zip((one, other), trends, (1, c), strict=True)
        )
        assert c * one.T == other.T
        assert (other.step, other.stalls, other.finished) == (one.step, one.stalls, one.finished)


# stages


@given(st.integers(1, 20_000), st.floats(0.1, 0.9))
def test_stages_use_all_sweeps(n_sweeps, eta):
    lengths, hold = StagedCooling(eta).lengths(n_sweeps)
    assert sum(lengths) + hold == n_sweeps
    assert min(lengths) >= 1
    assert all(length >= 2 for length in lengths[:-1]) or len(lengths) == 1
    assert hold == (lengths[-1] + hold) // 4


def test_more_stages_for_slower_cooling():
    few, many = (len(StagedCooling(eta).lengths(8000)[0]) for eta in (0.3, 0.9))
    assert few < many


def test_staged_temperatures():
    policy = StagedCooling(eta=0.5)
    state = policy.init(np.full(4, 8.0), np.full(4, 4), n_sweeps=100)
    assert state.T.tolist() == [2.0] * 4
    # by eta times the bound, by half of eta at most, never up, and not below the last temperature
    after = policy.update(state, np.array([1.6, 0.2, 9.0, 0.2]), np.array([0.0, 0.0, 0.0, 4.0]))
    assert after.T.tolist() == pytest.approx([0.8, 0.5, 2.0, 0.6 * 4.0 / 4])
    warm = policy.init(np.ones(1), np.ones(1, int), 100, np.array([0.3]))
    assert warm.T.tolist() == [0.3]


def test_the_level_of_a_stage_leaves_out_its_first_sweeps():
    assert StagedCooling().level(np.array([[9.0, 9.0, 1.0, 2.0, 3.0, 2.0]])).tolist() == [2.0]


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=5), powers)
def test_stages_have_one_scale(observations, c):
    policy = StagedCooling()
    one, other = (policy.init(np.array([scale]), np.array([7]), 500) for scale in (3.0, 3.0 * c))
    for bound, value in observations:
        before = one
        one = policy.update(one, np.array([bound]), np.array([value]))
        other = policy.update(other, np.array([c * bound]), np.array([c * value]))
        assert (c * one.T == other.T).all()
        assert (one.T <= before.T).all()


def test_steps_grow_while_gradients_agree():
    policy = CoolingStages()
    assert [stage.factor for stage in policy.stages] == sorted((s.factor for s in policy.stages), reverse=True)
    steps = policy.grow(np.array([2.0, 2.0, 2.0, 19.0]), np.array([0.95, 0.5, -0.1, 0.95]))
    assert steps.tolist() == [2.4, 2.0, 1.0, 20.0]


# losses


def test_the_temperature_follows_the_gap():
    policy = GapTracking()
    assert policy.update(1.0, 2.0, 1.0, 0.0) == 1.0
    assert policy.update(1.0, 2.0, 1.5, 0.0) > 1.0 > policy.update(1.0, 2.0, 0.5, 0.0)
    assert policy.update(1.0, 2.0, 1.0, 0.0, scale=0.5) < 1.0
    assert policy.update(1.0, 2.0, -9.0, 0.0) == policy.update(1.0, 2.0, 0.0, 0.0)  # a gap is one at most
    assert policy.update(1.0, 0.0, -1.0, 0.0) > 1.0
    assert policy.update(1.0, 2.0, 0.0, 0.99) == 0.99


@given(positive, st.floats(-2, 2), powers)
def test_gaps_have_no_scale(value, ratio, c):
    policy = GapTracking()
    assert policy.update(c, c * value, c * (ratio * value), 1e-3 * c) == c * policy.update(
        1.0, value, ratio * value, 1e-3
    )


def test_geometric_decay_has_a_floor():
    policy = GeometricDecay(0.5, 0.1)
    assert [policy.at(epoch) for epoch in range(6)] == [1.0, 0.5, 0.25, 0.125, 0.1, 0.1]
