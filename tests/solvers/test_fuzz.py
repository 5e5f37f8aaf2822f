"""Every exact solver on small problems at every scale, against rational arithmetic; see `make fuzz`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fuzz
from gibbsot.core import native

NATIVE = native.name() != "numpy"
NAMES = tuple(fuzz.SOLVERS) if NATIVE else ("without_kernels", "barycenter", "coordinates")


def wrong(seeds: range, names: tuple[str, ...] = NAMES) -> list[str]:
    """Return the wrong answers; of the others on scales up to 1e12 at most one in a hundred may have an open gap."""
    found = [(seed, *one) for seed in seeds for one in fuzz.runs(seed, names)]
    gaps = [k for _, _, k, state, extreme in found if state == "gap open" and not extreme]
    assert len(gaps) <= len(found) / 100, gaps
    return [f"seed {x}: {name}: {kind}: {state}" for x, name, kind, state, _ in found if state.startswith("wrong")]


def test_answers_are_those_of_rational_arithmetic():
    assert wrong(range(10_000, 10_060)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_answers(name):
    assert wrong(range(1000), (name,)) == []


def test_a_wrong_answer_is_found():
    name = "dense" if NATIVE else "without_kernels"
    for seed in range(20, 40):
        case = fuzz.SOLVERS[name](np.random.default_rng(seed))
        W = case.reference()
        if W is None or W.low == 0 or fuzz.judge(case) != "optimal" or "size" in case.kind:
            continue
        answer = case.solve()
        for bound, sign in (("lower", 1e-9), ("upper", -1e-9)):
            moved = answer._replace(**{bound: getattr(answer, bound) + sign * abs(float(W.low))})
            assert fuzz.judge(dataclasses.replace(case, solve=lambda: moved)).startswith("wrong bound")  # noqa: B023
        assert fuzz.judge(dataclasses.replace(case, solve=lambda: answer._replace(status="gap open"))).startswith(  # noqa: B023
            "wrong status"
        )
        for moved in (answer._replace(f=answer.f + 1), answer._replace(plan=answer.plan * (1 + 1e-14))):
            assert fuzz.judge(dataclasses.replace(case, solve=lambda: moved)).startswith("wrong answer")  # noqa: B023
        break
    else:
        pytest.fail("no problem to change")


def test_tiny_weights_arrive():
    """A weight of 1e-16 or 1e-30 of the mass, at a distance that makes it count."""
    for tiny in (1e-16, 1e-30, 1e-200):
        p, q, C = np.array([1.0, tiny]), np.array([1.0]), np.array([[0.0], [1 / tiny]])
        answers = [fuzz._crossed(p, q, C)]
        if NATIVE:
            answers.append(fuzz._dense(C, p, q))
        for answer in answers:
            assert answer.status == "optimal"
            assert answer.plan.toarray()[1, 0] == pytest.approx(tiny, rel=1e-15)
            assert answer.lower <= 1 / (1 + tiny) <= answer.upper


@pytest.mark.skipif(not NATIVE, reason="needs the compiled kernels")
@pytest.mark.parametrize(
    ("name", "seed", "states"),
    [
        ("solve", 21471, ("gap open",)),  # distances of 1e-160 in a crossover: potentials below costs that vanish
        ("solve", 9056, ("budget spent",)),  # a weight of 1e-64 is all that some rows reach
        ("mass", 1, ("optimal",)),  # costs of 1e300 and a light point: the noise of the chains overflowed
        ("mass", 509969, ("optimal",)),  # pairs of additional rows that the search of rows left out
        ("penalty", 600958, ("optimal",)),  # distances that were rounded to a matrix, of points without k-d trees
        ("mass", 601097, ("optimal",)),  # the same with a mass
        ("mass", 902887, ("optimal",)),  # costs of zero, beside which a constant of 1e-29 hid artificial arcs
        ("line", 21864, ("optimal",)),  # a value of 1e-224 of a light point, not of small distances
    ],
)
def test_found_by_the_fuzz(name, seed, states):
    assert [state for _, _, state, _ in fuzz.runs(seed, (name,))] == list(states)
