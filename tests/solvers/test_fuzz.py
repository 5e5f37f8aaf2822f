"""Every exact solver on small problems that are hard on rounding, against rational arithmetic; see `make fuzz`."""

from __future__ import annotations

import pytest

import fuzz
from gibbsot.core import native

SOLVERS = fuzz.SOLVERS if native.kernels() is not None else ("without_kernels",)


def wrong(seeds: range) -> list[str]:
    """Return the answers that are neither optimal nor infeasible, and count a few open gaps as right."""
    found = [(seed, name, state) for seed in seeds for name, state in fuzz.runs(seed, SOLVERS)]
    gaps = sum(state == "gap open" for _, _, state in found)
    assert gaps <= len(found) / 200
    return [f"seed {x}: {name}: {state}" for x, name, state in found if state.startswith(("wrong", "rounds"))]


def test_answers_are_those_of_rational_arithmetic():
    assert wrong(range(10_000, 10_150)) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 200))
def test_a_thousand_answers(start):
    assert wrong(range(start, start + 200)) == []


def test_a_wrong_answer_is_found():
    p, q, C = fuzz.hard_problem(6)
    W = fuzz.rational_optimum(p, q, C)
    answer = (fuzz.dense if native.kernels() is not None else fuzz.without_kernels)(p, q, C)
    for name, off in (("lower", 1e-9), ("upper", -1e-9)):
        moved = answer._replace(**{name: getattr(answer, name) + off * abs(float(W))})
        assert fuzz.judge(lambda: moved, p, q, C, W).startswith("wrong")  # noqa: B023
    for moved in (answer._replace(f=answer.f + 1e-9), answer._replace(plan=answer.plan * (1 + 1e-14))):
        assert fuzz.judge(lambda: moved, p, q, C, W).startswith("wrong")  # noqa: B023


def test_tiny_weights_arrive():
    """A weight of 1e-16 or 1e-30 of the mass, at a distance that makes it count."""
    import numpy as np

    for tiny in (1e-16, 1e-30, 1e-200):
        p, q, C = np.array([1.0, tiny]), np.array([1.0]), np.array([[0.0], [1 / tiny]])
        for name in ("dense", "crossed", "without_kernels"):
            if name in SOLVERS:
                answer = getattr(fuzz, name)(p, q, C)
                assert answer.status == "optimal", name
                assert answer.plan.toarray()[1, 0] == pytest.approx(tiny, rel=1e-15)
                assert answer.lower <= 1 / (1 + tiny) <= answer.upper
