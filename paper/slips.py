"""The slips of the paper's text that this library corrects, for the report."""

from __future__ import annotations

from typing import NamedTuple


class Slip(NamedTuple):
    """A slip: where it is, what is printed, what is right, and the file or test that shows it."""

    where: str
    printed: str
    right: str
    shown: str


SLIPS = (
    Slip(
        "Proposition 4.1, upper bound of h",
        "h_j < max_i (C_M + g_i)",
        "h_j < min_i (C_M + g_i): every i bounds h_j, and the smallest bound is the one that holds. In practice C_M is "
        "infinite, and the bound drops out.",
        "tests/sampling/test_slips.py::test_upper_bound_of_h",
    ),
    Slip(
        "Appendix, distribution of U given L",
        "Pr(U_i < x) = prod_j G((x - M_ij - L_j) q_j / T), the law of a maximum",
        "U is a minimum: Pr(U_i >= x) = prod_j (1 - G((x - M_ij - L_j) q_j / T)). The law of L, a maximum, is right.",
        "tests/sampling/test_slips.py::test_law_of_u",
    ),
    Slip(
        "Lemma A.1, phi and psi",
        "sums of p_sigma(k) over i, products of lambda_k over j, L of t + 1 inside lambda",
        "With the values sorted and P_k the sum of the first k weights, mu_k = exp(-P_k d_k / T) for the difference "
        "d_k to the next value, and phi = sum_k (1 - mu_k) (mu_1 ... mu_(k-1)) / P_k.",
        "tests/sampling/test_theory.py::test_expectations_against_integration",
    ),
    Slip(
        "Equation for calT(z)",
        "T = calT(z), an explicit formula",
        "phi and psi depend on T themselves: T = calT(z; T) is an equation for a number, which is solved by bisection.",
        "tests/sampling/test_theory.py::test_increment_changes_sign_at_the_bound",
    ),
    Slip(
        "Theorem A.2, D of 2t and the sums of a",
        "a sum over i of q_j; sums of a_n^2 with the index i",
        "D of 2t sums over j with the weights q_j; the sums run over n = 1 to 2N - 1.",
        "tests/sampling/test_theory.py::test_constants",
    ),
    Slip(
        "NMF, step 1 of the algorithm, and the section on the Coulomb cost",
        "the last U/V sample; the variables U, V",
        "U and L: V is the dual value.",
        "docs/notation.md",
    ),
    Slip(
        "Footnote on V(z) - V(g, h)",
        "Gamma(m, 1/T) without a convention",
        "Shape m and rate 1/T: at one temperature the mean is (m1 + m2) T.",
        "tests/sampling/test_sampler_laws.py::test_value_less_energy_is_gamma",
    ),
    Slip(
        "Mixing test",
        "V(z of 2t) - V(z of 2(t - tau)) < 0.01 tau T V(z of 2t), a cost on the left and a squared cost on the right",
        "0.01 tau T on the right: the printed test in units where V is one, independent of the unit of the cost.",
        "tests/sampling/test_slips.py::test_the_mixing_test_has_no_unit",
    ),
    Slip(
        "V(z) as an upper bound",
        "an asymptotic consistent upper bound",
        "E V(z) >= W at equilibrium. A sample may be below W, and so is V(z) of a chain that has not mixed: V(z) "
        "itself is an estimate and no bound.",
        "paper/chains.py",
    ),
    Slip(
        "Recovered primal solution",
        "an approximate primal solution",
        "It is sparse, but its marginals are not p and q, except in the limit.",
        "paper/figure2.py",
    ),
)
