from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import gibbsot
from gibbsot import GridCost, Oracle, WassersteinNMF
from gibbsot.core import validation
from gibbsot.io import readers

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

X = np.random.default_rng(0).random((4, 9)) + 0.1
COST = GridCost(9)
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def damaged(kind: str):
    """A sparse matrix whose index arrays were changed after it was made."""
    form = kind.partition(" ")[0]
    s = sparse.coo_array(X).asformat(form)
    if kind.endswith("large"):
        (s.coords[1] if form == "coo" else s.indices)[:] += 10**7
    elif kind.endswith("negative"):
        (s.coords[0] if form == "coo" else s.indices)[0] = -3
    elif kind.endswith("pointers"):
        s.indptr[1] = 10**7
    elif kind.endswith("empty"):
        s.indptr[1:-1], s.indptr[-1] = 10**7, 0
    elif kind.endswith("short"):
        s.data = s.data[:-1]
    elif kind.endswith("lists"):
        s.rows[0][0] = 10**7
    return s


DAMAGED = (
    *(f"{form} {what}" for form in ("csr", "csc") for what in ("large", "negative", "pointers", "empty", "short")),
    *(f"coo {what}" for what in ("large", "negative", "short")),
    *(f"bsr {what}" for what in ("large", "negative", "pointers")),
    "lil lists",
)


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_sparse_matrices_are_refused(kind):
    with pytest.raises(ValueError, match="X: is not a valid sparse matrix"):
        validation.sparse_rows(damaged(kind), "X")


def _read(s, folder):
    np.savez(
        folder / "x.npz", indices=s.indices, indptr=s.indptr, format=b"csr", shape=s.shape, data=s.data, _is_array=True
    )
    readers.matrix(folder / "x.npz")


ENTRIES = {
    "P": lambda s, _: gibbsot.solve_batch(s, X, COST),
    "Q": lambda s, _: gibbsot.solve_batch(X, s, COST),
    "targets": lambda s, _: Oracle(COST, s),
    "nmf": lambda s, _: gibbsot.WassersteinNMF(2, cost="line").fit(s),
    "nmf shards": lambda s, _: gibbsot.WassersteinNMF(2, cost="line").fit([s, X]),
    "transform": lambda s, _: gibbsot.WassersteinNMF(2, cost="line", max_epochs=1, tau=1).fit(X).transform(s),
    "barycenter": lambda s, _: gibbsot.WassersteinBarycenter("line").fit(s),
    "classifier": lambda s, _: gibbsot.WassersteinClassifier().fit(s, [0, 1, 0, 1]),
    "histograms": lambda s, _: gibbsot.WassersteinClassifier().fit(X, s),
    "coordinates": lambda s, _: gibbsot.mixture_coordinates(s, X[:2], "line"),
    "components": lambda s, _: gibbsot.mixture_coordinates(X, s, "line"),
    "file": _read,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_damaged_sparse_matrices_are_refused_wherever_they_come_in(entry, tmp_path):
    with pytest.raises(ValueError, match="is not a valid sparse matrix"):
        ENTRIES[entry](damaged("csr large"), tmp_path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_sparse_matrices_of_every_format(form, dtype):
    values = np.where(X > 0.6, 10 * X, 0).astype(dtype)
    found = validation.sparse_rows(sparse.coo_array(values).asformat(form), "X")
    assert found.format == "csr"
    assert found.has_canonical_format
    assert found.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(found.toarray(), values)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=30),
    st.sampled_from(("csr", "csc", "coo")),
)
def test_duplicates_are_summed_and_the_argument_stays_as_it_is(entries, form):
    rows, columns, values = (np.array([entry[k] for entry in entries], int) for k in range(3))
    expected = np.zeros((4, 5))
    np.add.at(expected, (rows, columns), values)
    if form == "coo":
        s = sparse.coo_array((values, (rows, columns)), shape=(4, 5))
    else:
        order = np.argsort(rows if form == "csr" else columns, kind="stable")
        major, minor = (rows, columns) if form == "csr" else (columns, rows)
        starts = np.searchsorted(major[order], np.arange(5 if form == "csr" else 6))
        s = (sparse.csr_array if form == "csr" else sparse.csc_array)((values[order], minor[order], starts), (4, 5))
    before = s.data.copy()
    found = validation.sparse_rows(s, "X")
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.has_canonical_format
    np.testing.assert_array_equal(s.data, before)


def test_cached_flags_of_a_matrix_are_not_trusted():
    s = sparse.csr_array(X)
    assert s.has_canonical_format
    s.indices[1] = s.indices[0]
    found = validation.sparse_rows(s, "X")
    assert found[0, 0] == X[0, 0] + X[0, 1]
    assert found.nnz == s.nnz - 1


def _is_valid(row: list[float]) -> bool:
    """The definition, in exact arithmetic."""
    if not all(np.isfinite(w) and w >= 0 for w in row):
        return False
    return 0 < sum(map(Fraction, row)) <= Fraction(np.finfo(np.float64).max)


FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, -1.0, 5e-324, 1e308]), st.floats(0, 1e300))


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=4), elements=FLOATS))
def test_weights_are_valid_by_one_definition_dense_and_sparse(values):
    valid = [_is_valid(row) for row in values.tolist()]
    for rows in (values, sparse.csr_array(values)):
        if all(valid):
            assert (validation.check_weights(rows, "p") > 0).all()
        else:
            with pytest.raises(ValueError, match=r"^p: .*row " if len(valid) > 1 else r"^p: ((?!row).)*$"):
                validation.check_weights(rows, "p")


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, np.nan, -1], "p: has NaN weights, the first at row 1, entry 1; expected finite weights >= 0"),
        ([0, 0, np.inf], "p: has infinite weights, the first at row 1, entry 2"),
        ([1, -0.5, 1], "p: has negative weights, the first at row 1, entry 1"),
        ([0, 0, 0], "p: row 1 has no mass; expected a positive weight in every measure"),
        ([1e308, 1e308, 0], "p: row 1 has a sum that overflows; scale the weights"),
    ],
)
def test_what_is_wrong_with_weights_is_said(make, row, message):
    with pytest.raises(ValueError, match=message):
        validation.check_weights(make(np.array([[1.0, 2.0, 3.0], row])), "p")


def test_rows_without_mass_where_they_are_allowed():
    np.testing.assert_array_equal(validation.check_weights(np.eye(3)[[0, 1]] * 0, "X", empty_rows=True), [0, 0])
    assert validation.rows(np.zeros((0, 3)), "X").shape == (0, 3)
    with pytest.raises(ValueError, match=r"X: expected measures as rows, shape \(n, m\)"):
        validation.rows([1.0, 2.0], "X")


def test_a_number_of_rows():
    with pytest.raises(ValueError, match=r"W: expected 3 rows of 2 weights, got 2$"):
        validation.weights(np.eye(2), "W", 2, count=3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: validation.sparse_rows(sparse.csr_array([[1j]]), "X"), TypeError, "X: expected real numbers"),
        (lambda: validation.ids([0.5], 1), TypeError, "ids: expected integers"),
        (lambda: validation.ids([0, 1], 3), ValueError, "ids: expected one number >= 0 for each of the 3 problems"),
        (lambda: validation.ids([-1], 1), ValueError, "ids: expected one number >= 0"),
        (lambda: validation.temperatures([1.0, 0.0], "T"), ValueError, "T: expected positive numbers"),
        (lambda: validation.temperatures([np.nan], "T"), ValueError, "T: expected positive numbers"),
        (lambda: validation.temperatures(1e-40, "T", np.float32), ValueError, "in the range of float32"),
        (lambda: validation.temperatures("warm", "T"), TypeError, "T: expected real numbers"),
        (lambda: validation.initial_temperature("hot"), ValueError, "temperature: expected 'auto' or a positive"),
        (lambda: validation.initial_temperature(0), ValueError, "temperature: expected a positive number"),
        (lambda: validation.nonnegative(-1e-9, "tol"), ValueError, "tol: expected a number >= 0"),
        (lambda: validation.nonnegative(np.nan, "tol"), ValueError, "tol: expected a number >= 0"),
        (
            lambda: validation.positive_pair((1, 2, 3), "rho", "each"),
            ValueError,
            "rho: expected a number or one for",
        ),
        (lambda: validation.positive_pair((1, -2), "rho", "each"), ValueError, "rho: expected a positive number"),
        (lambda: validation.positive_pair("ab", "rho", "each"), TypeError, "rho: expected a number, got 'a'"),
        (lambda: validation.flag(1, "exact"), TypeError, "exact: expected True or False, got 1"),
        (lambda: validation.choice("max", "reduction", ("mean", "sum")), ValueError, "one of 'mean', 'sum', got 'max'"),
        (lambda: validation.callbacks([1]), ValueError, "callbacks: expected a sequence of functions"),
        (lambda: validation.count(True, "tau"), TypeError, "tau: expected an integer"),
        (lambda: validation.count(0, "tau"), ValueError, "tau: expected at least 1"),
        (lambda: validation.noise_key(2**64), ValueError, "rng: expected an integer from 0"),
        (lambda: validation.noise_key(-1), ValueError, "rng: expected an integer from 0"),
        (lambda: validation.noise_key(2**32, bits=32), ValueError, r"rng: expected an integer from 0 to 2\*\*32 - 1"),
        (lambda: validation.noise_key(1.5), TypeError, "rng: expected an integer"),
    ],
)
def test_bad_numbers_and_options(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_good_numbers_and_options():
    assert validation.initial_temperature("auto") is None
    assert validation.initial_temperature(2) == 2.0
    assert validation.positive_pair(0.5, "rho", "each") == (0.5, 0.5)
    assert validation.positive_pair(np.array([1.0, 2.0]), "rho", "each") == (1.0, 2.0)
    assert validation.flag(np.True_, "exact") is True
    assert validation.choice("sum", "reduction", ("mean", "sum")) == "sum"
    assert validation.nonnegative(0, "tol") == 0.0
    np.testing.assert_array_equal(validation.ids(None, 3), [0, 1, 2])
    assert validation.temperatures(1, "T").shape == ()
    assert [validation.noise_key(rng) for rng in (None, 7, np.uint64(2**64 - 1))] == [0, 7, 2**64 - 1]
    drawn = [validation.noise_key(np.random.default_rng(5), bits) for bits in (64, 32)]
    assert drawn == [int(np.random.default_rng(5).integers(2**bits, dtype=np.uint64)) for bits in (64, 32)]


def test_importing_the_package_loads_nothing_slow():
    slow = {"sklearn", "torch", "dask", "ot", "matplotlib"}
    code = f"import sys, gibbsot; print({slow!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_text_is_named(library):
    table = pytest.importorskip(library).DataFrame({"a": [1.0, 2.0], "colour": ["red", "blue"]})
    with pytest.raises(TypeError, match="P: expected real numbers, got text in column 'colour'"):
        validation.real(table, "P")
    with pytest.raises(TypeError, match="X: expected real numbers, got text in column 'colour'"):
        WassersteinNMF(1, cost="line").fit(table)
    with pytest.raises(TypeError, match="p: expected real numbers, got text in column 'colour'"):
        validation.real(table["colour"], "p")
