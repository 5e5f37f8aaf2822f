"""AnnData objects: results against scikit-learn and POT, sparse, backed and Dask data, files, and bad input."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances

pytest.importorskip("anndata")

import anndata
import pandas as pd
from anndata import AnnData

from gibbsot import DenseCost, WassersteinNMF, scverse

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"max_epochs": 3}


@pytest.fixture
def cells():
    """40 cells of two kinds with 12 genes, of which eight are highly variable."""
    rng = np.random.default_rng(0)
    rates = np.where(np.arange(40)[:, None] < 25, np.arange(12) < 6, np.arange(12) > 4) * 5 + 0.3
    counts = rng.poisson(rates).astype(np.float32)
    found = AnnData(
        counts, obs=pd.DataFrame({"kind": pd.Categorical(["a"] * 25 + ["b"] * 15)}, index=map(str, range(40)))
    )
    found.var["highly_variable"] = np.arange(12) % 3 != 0
    found.layers["log"] = np.log1p(counts)
    found.obsm["X_pca"] = rng.normal(size=(40, 5)) + 2 * (np.arange(40) < 25)[:, None]
    found.varm["PCs"] = rng.normal(size=(12, 4))
    return found


def expected(cells, X, cost, vectors=None):
    return WassersteinNMF(3, cost=cost, feature_vectors=vectors, random_state=3, **FAST).fit(X)


def test_wnmf_is_the_nmf_of_the_genes_in_use(cells):
    genes = cells.var["highly_variable"].to_numpy()
    model = scverse.wnmf(cells, 3, rng=3, **FAST)
    same = expected(cells, cells.X[:, genes], pairwise_distances(cells.X[:, genes].T.astype(float), metric="cosine"))
    np.testing.assert_array_equal(model.components_, same.components_)
    np.testing.assert_array_equal(cells.obsm["wnmf"], same.memberships_)
    np.testing.assert_allclose(cells.obsm["wnmf"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(cells.varm["wnmf"][genes], same.components_.T)
    assert not cells.varm["wnmf"][~genes].any()
    stored = cells.uns["wnmf"]
    assert stored["params"] == {"n_components": 3, "use_highly_variable": True, "cost": "cosine"}
    assert stored["reconstruction_err"] == same.reconstruction_err_
    np.testing.assert_array_equal(stored["usage"], same.usage_)
    assert (stored["n_iter"], stored["converged"]) == (3, False)


@pytest.mark.parametrize("place", ["varp", "varm", "obsm", "matrix", "cost"])
def test_costs_between_genes(cells, place):
    X = cells.X.astype(float)
    vectors = {"varm": cells.varm["PCs"], "obsm": X.T @ cells.obsm["X_pca"] / X.sum(axis=0)[:, None]}
    M = pairwise_distances(vectors.get(place, cells.varm["PCs"]))
    cells.varp["costs"] = M
    given = {"varp": "costs", "varm": "PCs", "obsm": "X_pca", "matrix": M, "cost": DenseCost(M)}[place]
    scverse.wnmf(cells, 3, use_highly_variable=False, cost=given, key_added="other", rng=3, **FAST)
    same = expected(cells, cells.X, M)
    np.testing.assert_allclose(cells.obsm["other"], same.memberships_, rtol=1e-3, atol=1e-5)
    assert "wnmf" not in cells.obsm


@pytest.mark.parametrize("layer", [None, "log"])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, "dask"])
def test_sparse_and_dask_data_give_the_same(cells, layer, kind):
    other = cells.copy()
    if kind == "dask":
        array = pytest.importorskip("dask.array")
        other.X, other.layers["log"] = (array.from_array(x, chunks=(10, 12)) for x in (other.X, other.layers["log"]))
    else:
        other.X, other.layers["log"] = kind(other.X), kind(other.layers["log"])
    for one in (cells, other):
        scverse.wnmf(one, 3, layer=layer, **FAST)
    np.testing.assert_allclose(other.obsm["wnmf"], cells.obsm["wnmf"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dense", [True, False])
def test_backed_data_and_files(cells, tmp_path, dense):
    cells.X = cells.X if dense else sparse.csr_matrix(cells.X)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    scverse.wnmf(cells, 3, layer="log", key_added="log", **FAST)
    scverse.wnmf(cells, 3, **FAST)
    cells.write_h5ad(tmp_path / "fitted.h5ad")
    read = anndata.read_h5ad(tmp_path / "fitted.h5ad")
    for name in ("obsm", "varm"):
        np.testing.assert_array_equal(getattr(read, name)["wnmf"], getattr(cells, name)["wnmf"])
    for key in ("wnmf", "log"):
        np.testing.assert_array_equal(read.uns[key]["usage"], cells.uns[key]["usage"])
        assert read.uns[key]["params"] == cells.uns[key]["params"]
        assert read.uns[key]["reconstruction_err"] == cells.uns[key]["reconstruction_err"]

    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert backed.isbacked
    scverse.wnmf(backed, 3, **FAST)
    np.testing.assert_array_equal(backed.obsm["wnmf"], cells.obsm["wnmf"])
    D = scverse.distances(backed, "kind", use_rep="X")
    np.testing.assert_allclose(D, scverse.distances(cells, "kind", use_rep="X"), rtol=1e-12)
    backed.file.close()


def test_cells_without_expression_have_uniform_memberships(cells):
    cells.X[7] = 0
    with pytest.warns(UserWarning, match="1 rows have no mass"):
        scverse.wnmf(cells, 3, **FAST)
    np.testing.assert_allclose(cells.obsm["wnmf"][7], 1 / 3, rtol=1e-6)


@pytest.mark.parametrize(("cost", "root"), [("sqeuclidean", True), ("euclidean", False)])
def test_distances_are_those_of_pot(cells, cost, root):
    cells.obs["kind"] = pd.Categorical(
        ["b"] * 11 + [None] + ["c"] * 9 + ["a"] * 19, categories=["b", "a", "empty", "c"]
    )
    D = scverse.distances(cells, "kind", cost=cost, root=root)
    assert list(D.index) == list(D.columns) == ["b", "a", "c"]
    assert D.index.name == "kind"
    for one in D.index:
        for other in D.columns:
            X, Y = (cells.obsm["X_pca"][(cells.obs["kind"] == kind).to_numpy()] for kind in (one, other))
            W = ot.emd2([], [], cdist(X, Y, cost))
            np.testing.assert_allclose(D.loc[one, other], np.sqrt(W) if root else W, rtol=1e-9, atol=1e-12)


def test_distances_of_sparse_embeddings_and_of_other_labels(cells):
    cells.obs["number"] = np.arange(40) // 20
    cells.obsm["sparse"] = sparse.csr_matrix(cells.obsm["X_pca"])
    D = scverse.distances(cells, "number", use_rep="sparse")
    assert list(D.index) == [0, 1]
    np.testing.assert_array_equal(D, scverse.distances(cells, "number"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adata": np.ones((3, 3))}, "adata: expected an AnnData object, got ndarray"),
        ({"layer": "none"}, "layer: the object has no layer 'none'; expected one of: 'log'"),
        ({"layer": "scaled"}, r"layer \(layers\['scaled'\]\): has negative values"),
        ({"layer": "broken"}, r"layer \(layers\['broken'\]\): "),
        ({"use_highly_variable": 1}, "use_highly_variable: expected True or False, got 1"),
        ({"cost": "nothing"}, "cost: there is no 'nothing'; expected one metric such as 'cosine', or one key"),
        ({"cost": "cosine", "varm": "cosine"}, "cost: 'cosine' is in varm and the metrics"),
        ({"cost": np.ones((3, 3))}, "cost: is for 3 x 3 points; expected 8 x 8"),
        ({"key_added": ""}, "key_added: expected a name"),
        ({"n_components": 0}, "n_components: "),
        ({"var": "none"}, "use_highly_variable: var has no column 'highly_variable'"),
        ({"var": "empty"}, "use_highly_variable: no gene is marked"),
        ({"var": "number"}, "use_highly_variable: expected True and False"),
        ({"cost": "X_pca", "silent": True}, "no cell expresses '1'"),
    ],
)
def test_bad_input_of_wnmf_names_the_argument(cells, change, message):
    cells.layers["scaled"] = cells.X - 1
    cells.layers["broken"] = np.full_like(cells.X, np.nan)
    change = dict(change)
    if "varm" in change:
        cells.varm[change.pop("varm")] = cells.varm["PCs"]
    if change.pop("silent", False):
        cells.X[:, 1] = 0
    match change.pop("var", None):
        case "none":
            del cells.var["highly_variable"]
        case "empty":
            cells.var["highly_variable"] = False
        case "number":
            cells.var["highly_variable"] = 1.0
    before = set(cells.obsm), set(cells.varm), set(cells.uns)
    with pytest.raises((ValueError, TypeError), match=message):
        scverse.wnmf(**{"adata": cells, "n_components": 3, **FAST, **change})
    assert (set(cells.obsm), set(cells.varm), set(cells.uns)) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adata": "cells.h5ad"}, "adata: expected an AnnData object, got str"),
        ({"groupby": "none"}, "groupby: obs has no column 'none'; expected one of its columns: 'kind'"),
        ({"groupby": "missing"}, "groupby: no cell has a group"),
        ({"use_rep": "X_umap"}, "use_rep: obsm has no 'X_umap'; expected 'X' or one of its keys: 'X_pca'"),
        ({"use_rep": "broken"}, r"use_rep \(obsm\['broken'\]\): has NaN"),
        ({"cost": "nothing"}, "cost: "),
        ({"gap": -1}, "gap: "),
    ],
)
def test_bad_input_of_distances_names_the_argument(cells, change, message):
    if change.get("groupby") == "missing":
        cells.obs["missing"] = pd.Categorical([None] * 40, categories=["a"])
    if change.get("use_rep") == "broken":
        cells.obsm["broken"] = np.full((40, 2), np.nan)
    with pytest.raises(ValueError, match=message):
        scverse.distances(**{"adata": cells, "groupby": "kind", **change})


def test_without_expressions():
    empty = AnnData(obs=pd.DataFrame(index=["a", "b"]), var=pd.DataFrame(index=["x"]))
    with pytest.raises(ValueError, match=r"adata\.X: is empty"):
        scverse.wnmf(empty, 1, use_highly_variable=False)


def test_the_metric_for_pertpy():
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(20, 5)), 1 + rng.normal(size=(13, 5))
    metric, M = scverse.WassersteinMetric(), pairwise_distances(np.vstack([X, Y]), metric="sqeuclidean")
    rows, columns = linear_sum_assignment(np.repeat(np.repeat(M[:20, 20:], 13, axis=0), 20, axis=1))  # equal shares
    expected = np.repeat(np.repeat(M[:20, 20:], 13, axis=0), 20, axis=1)[rows, columns].mean()
    first = pd.Series(np.arange(33) < 20, index=[f"cell{k}" for k in range(33)])  # as pertpy passes it
    assert metric(X, Y) == pytest.approx(expected, rel=1e-12)
    assert metric.from_precomputed(M, first) == pytest.approx(expected, rel=1e-12)
    assert metric(X, X) == 0
    assert metric.from_precomputed(M[:20, :20], first[:20]) == 0  # of one group, as pertpy draws it from itself
    assert not metric.accepts_precomputed
    assert scverse.WassersteinMetric(precomputed=True).accepts_precomputed
    with pytest.raises(ValueError, match="idx: expected one entry for each row"):
        metric.from_precomputed(M, np.ones(32, bool))
    with pytest.raises(TypeError, match="precomputed: expected True or False"):
        scverse.WassersteinMetric(precomputed="yes")


@pytest.mark.parametrize("precomputed", [False, True])
def test_pertpy_uses_the_metric(cells, precomputed):
    """All of pertpy's ways to call a metric, against assignments."""
    distance = pytest.importorskip("pertpy").tools.Distance("wasserstein", obsm_key="X_pca")
    distance.metric_fct = scverse.WassersteinMetric(precomputed=precomputed)
    cells = cells[:30].copy()
    cells.obs["kind"] = pd.Categorical(["a"] * 15 + ["b"] * 15)
    points = cells.obsm["X_pca"]
    C = cdist(points[:15], points[15:], "euclidean" if precomputed else "sqeuclidean")
    best = C[linear_sum_assignment(C)].mean()
    found = distance.pairwise(cells, "kind", show_progressbar=False)
    np.testing.assert_allclose(found.to_numpy(float), [[0, best], [best, 0]], rtol=1e-12)
    sided = distance.onesided_distances(cells, "kind", selected_group="a", show_progressbar=False)
    np.testing.assert_allclose(sided.to_numpy(float), [0, best], rtol=1e-12)
    mean, variance = distance.pairwise(cells, "kind", bootstrap=True, n_bootstrap=5, show_progressbar=False)
    assert np.isfinite(mean.to_numpy(float)).all()
    assert variance.loc["a", "b"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 2000])
def test_groups_in_50_dimensions(n):
    """Against SciPy's assignments; zero for a group against itself."""
    rng = np.random.default_rng(n)
    X, Y = rng.normal(size=(2, n, 50))
    C = cdist(X, Y, "sqeuclidean")
    metric = scverse.WassersteinMetric()
    assert metric(X, Y) == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-12)
    assert metric(X, X[::-1]) == 0


def test_plots_show_names_and_numbers(cells):
    plots = pytest.importorskip("gibbsot.plots")
    pytest.importorskip("matplotlib")
    scverse.wnmf(cells, 3, rng=3, **FAST)
    ax = scverse.plot_memberships(cells, "kind", ax=plots.new_figure(4, 3).subplots())
    W = cells.obsm["wnmf"]
    np.testing.assert_allclose(ax.images[0].get_array(), [W[:25].mean(axis=0), W[25:].mean(axis=0)], rtol=1e-6)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    ax = scverse.plot_genes(cells, n_genes=2, ax=plots.new_figure(4, 3).subplots())
    heaviest = np.argsort(-cells.varm["wnmf"], axis=0)[:2].T.ravel()
    assert [text.get_text() for text in ax.texts] == [cells.var_names[k] for k in heaviest]
    ax = scverse.plot_distances(cells, "kind", ax=plots.new_figure(4, 3).subplots())
    D = scverse.distances(cells, "kind").to_numpy()
    np.testing.assert_array_equal(np.sort(ax.images[0].get_array().ravel()), np.sort(D.ravel()))
    assert {text.get_text() for text in ax.get_yticklabels()} == {"a", "b"}
    with pytest.raises(ValueError, match="key: varm and uns have no result 'none'"):
        scverse.plot_genes(cells, "none")
    with pytest.raises(ValueError, match="groupby: obs has no column 'none'"):
        scverse.plot_memberships(cells, "none")
