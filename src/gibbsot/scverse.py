"""Wasserstein NMF and transport distances for AnnData objects of single cells (the extra ``anndata``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

try:
    import pandas as pd
    from anndata import AnnData
except ImportError:
    raise ImportError("gibbsot.scverse needs anndata: pip install 'gibbsot[anndata]'") from None

from .core import validation
from .costs import Cost, PointCost
from .models._costs import METRICS, Metric
from .models.geometry import distances as _distances
from .models.nmf.estimator import WassersteinNMF
from .plots import PINK, heat_map, hide_spines
from .plots.style import checked_axes, label
from .solvers.solve import solve

__all__ = ["WassersteinMetric", "distances", "plot_distances", "plot_genes", "plot_memberships", "wnmf"]

Array = NDArray[Any]

_HIGHLY_VARIABLE = "highly_variable"  # the column of `var` that scanpy writes


def wnmf(
    adata: AnnData,
    n_components: int = 10,
    *,
    layer: str | None = None,
    use_highly_variable: bool = True,
    cost: Cost | ArrayLike | str | Metric = "cosine",
    key_added: str = "wnmf",
    rng: int | np.random.Generator | None = None,
    **options: Any,
) -> WassersteinNMF:
    r"""Fit Wasserstein NMF to cells, as histograms over genes, and store it in the object.

    .. math:: \min_{D, \Lambda} \sum_i W\Big(\sum_k \Lambda_{ik} D_k, \, x_i\Big)

    where x_i is the expression of cell i, normalised to sum one. Data may be dense, sparse or backed by a file; those
    of the genes in use are read into memory.

    Parameters
    ----------
    adata : AnnData
        Cells as rows, genes as columns, with expressions that are not negative: counts, or their logarithms
        ``log1p``, but not scaled ones.
    n_components : int
        The number K of components.
    layer : str, optional
        The key of `layers` with the expressions; by default they are in `X`.
    use_highly_variable : bool
        Use the genes that ``var["highly_variable"]`` marks, or else all.
    cost : str, Cost, array of shape (m, m) or callable
        The cost between genes. A metric such as "cosine" is taken between their columns. A key of `varp` is a matrix
        of costs; a key of `varm` an embedding of genes, and one of `obsm` an embedding of cells, in which a gene lies
        at the mean of the cells, weighted by their expressions of it: both with the Euclidean distance. A cost or an
        array is between the m genes in use.
    key_added : str
        The key of the results.
    rng : int or numpy.random.Generator, optional
        The ``random_state`` of the model, 0 by default; a generator draws one. Results are bit-identical for the same
        integer.
    **options
        Other parameters of `gibbsot.WassersteinNMF`, such as ``max_epochs``, ``n_jobs`` and ``verbose``.

    Returns
    -------
    WassersteinNMF
        The fitted model, for the genes in use. ``obsm[key_added]`` has the memberships of cells, rows that sum to one
        and are uniform for cells without expression; ``varm[key_added]`` the components as columns, zero for genes
        that are not in use; ``uns[key_added]`` the parameters, the exact mean cost of a sample of cells
        (``reconstruction_err``), the ``usage`` of the components, ``n_iter`` and ``converged``.

    Raises
    ------
    ValueError
        If the object lacks what a parameter names, an expression is negative or not finite, or no gene is in use.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from gibbsot.scverse import wnmf
    >>> cells = AnnData(np.random.default_rng(0).poisson(2.0, (30, 8)).astype(np.float32))
    >>> model = wnmf(cells, 3, use_highly_variable=False, max_epochs=10)
    >>> cells.obsm["wnmf"].shape, cells.varm["wnmf"].shape
    ((30, 3), (8, 3))
    """
    _check_adata(adata)
    if not isinstance(key_added, str) or not key_added:
        raise ValueError(f"key_added: expected a name, got {key_added!r}")
    genes = _genes_in_use(adata, use_highly_variable)
    X = _expressions(adata, layer, genes)
    found, vectors = _gene_cost(adata, cost, genes, X)
    options |= {"feature_vectors": vectors, "random_state": validation.noise_key(rng, bits=32)}
    model = WassersteinNMF(n_components, cost=found, **options)
    model.fit(X)
    components = np.zeros((adata.n_vars, n_components), model.components_.dtype)
    components[genes] = model.components_.T
    adata.obsm[key_added], adata.varm[key_added] = np.asarray(model.memberships_), components
    adata.uns[key_added] = {
        "params": {
            "n_components": n_components,
            "use_highly_variable": use_highly_variable,
            "cost": cost if isinstance(cost, str) else repr(found),
            **({} if layer is None else {"layer": layer}),  # h5ad files of some versions have no None
        },
        "reconstruction_err": float(model.reconstruction_err_),
        "usage": model.usage_,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
    }
    return model


def distances(
    adata: AnnData,
    groupby: str,
    *,
    use_rep: str = "X_pca",
    cost: str = "sqeuclidean",
    root: bool = True,
    gap: float | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> pd.DataFrame:
    r"""Return the exact transport distances between groups of cells in an embedding.

    .. math:: D_{ab} = \Big(\min_{Z \ge 0} \sum_{ij} Z_{ij} \, \|x_i - y_j\|^2\Big)^{1/2}, \quad
        Z 1 = 1 / n_a, \; Z^T 1 = 1 / n_b

    where x are the n_a cells of group a and y the n_b cells of group b, with uniform weights. Each pair of groups is an
    exact solve, whose time and memory grow with the product of their sizes: of more than some ten thousand cells in
    more than four dimensions take a sample first.

    Parameters
    ----------
    adata : AnnData
        Cells as rows.
    groupby : str
        The column of `obs` with the groups. Cells without a group and groups without cells are left out.
    use_rep : str
        The key of `obsm` with the embedding, "X" for the expressions themselves.
    cost : str
        The metric between cells.
    root : bool
        Return square roots: with squared distances, the Wasserstein distance of order two.
    gap : float, optional
        The certified relative gap of each pair; 0 or None for the optimum.
    n_jobs : int, optional
        Threads over the pairs: None for one, -1 for all cores.
    verbose : bool
        Show progress.

    Returns
    -------
    DataFrame
        One row and one column for each group, in the order of the categories.

    Raises
    ------
    ValueError
        If the object lacks what a parameter names, or the embedding is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from gibbsot.scverse import distances
    >>> cells = AnnData(np.array([[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]]))
    >>> cells.obs["type"] = ["B", "B", "T", "T"]
    >>> distances(cells, "type", use_rep="X").loc["B", "T"].item()
    3.0
    """
    _check_adata(adata)
    groups = _column(adata.obs, groupby, "groupby", "obs").astype("category").cat.remove_unused_categories()
    if not len(groups.cat.categories):
        raise ValueError(f"groupby: no cell has a group in obs[{groupby!r}]; expected a column of labels")
    points = validation.points(_embedding(adata, use_rep), f"use_rep (obsm[{use_rep!r}])")
    codes = groups.cat.codes.to_numpy()
    clouds = [points[codes == k] for k in range(len(groups.cat.categories))]
    D = _distances.distances(clouds, cost=cost, root=root, gap=gap, n_jobs=n_jobs, verbose=verbose)
    names = pd.Index(groups.cat.categories, name=groupby)
    return pd.DataFrame(D, index=names, columns=names)


def plot_distances(adata: AnnData, groupby: str, *, ax: Any = None, **options: Any) -> Any:
    """Draw the distances between groups of cells, sorted so that near groups are neighbours.

    Parameters
    ----------
    adata, groupby, **options
        As for `distances`.
    ax : matplotlib Axes, optional
        Where to draw, by default in a new figure of pyplot.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from gibbsot.plots import new_figure
    >>> from gibbsot.scverse import plot_distances
    >>> cells = AnnData(np.array([[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]]))
    >>> cells.obs["type"] = ["B", "B", "T", "T"]
    >>> plot_distances(cells, "type", use_rep="X", ax=new_figure(4, 4).subplots()).get_xlabel()
    'groups of type, sorted by average linkage'
    """
    D = distances(adata, groupby, **options)
    ax = checked_axes(ax)
    heat_map(ax, D, label="distance")
    ax.set_xlabel(label(f"groups of {groupby}, sorted by average linkage"))
    return ax


def plot_memberships(adata: AnnData, groupby: str, key: str = "wnmf", *, ax: Any = None) -> Any:
    """Draw the mean memberships of groups of cells, as `scanpy.pl.matrixplot` draws mean expressions.

    Parameters
    ----------
    adata : AnnData
        Cells with the results of `wnmf`.
    groupby : str
        The column of `obs` with the groups.
    key : str
        The ``key_added`` of `wnmf`.
    ax : matplotlib Axes, optional
        Where to draw, by default in a new figure of pyplot.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from gibbsot.plots import new_figure
    >>> from gibbsot.scverse import plot_memberships, wnmf
    >>> cells = AnnData(np.random.default_rng(0).poisson(2.0, (30, 8)).astype(np.float32))
    >>> cells.obs["type"] = ["B", "T"] * 15
    >>> model = wnmf(cells, 3, use_highly_variable=False, max_epochs=10)
    >>> plot_memberships(cells, "type", ax=new_figure(4, 3).subplots()).get_xlabel()
    'component'
    """
    W = pd.DataFrame(_result(adata, "obsm", key), index=adata.obs_names)
    means = W.groupby(_column(adata.obs, groupby, "groupby", "obs"), observed=True).mean()
    ax = checked_axes(ax)
    image = ax.imshow(means, cmap="Reds", vmin=0, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="mean membership").outline.set_visible(False)
    ax.set_xticks(range(means.shape[1]), range(means.shape[1]))
    ax.set_yticks(range(len(means)), [label(str(name)) for name in means.index])
    ax.set(xlabel="component", ylabel=label(groupby))
    return ax


def plot_genes(adata: AnnData, key: str = "wnmf", n_genes: int = 10, *, ax: Any = None) -> Any:
    """Draw the heaviest genes of each component, as `scanpy.pl.rank_genes_groups` draws those of groups.

    Parameters
    ----------
    adata : AnnData
        Cells with the results of `wnmf`.
    key : str
        The ``key_added`` of `wnmf`.
    n_genes : int
        The number of genes of each component.
    ax : matplotlib Axes, optional
        Where to draw, by default in a new figure of pyplot.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from gibbsot.plots import new_figure
    >>> from gibbsot.scverse import plot_genes, wnmf
    >>> cells = AnnData(np.random.default_rng(0).poisson(2.0, (30, 8)).astype(np.float32))
    >>> model = wnmf(cells, 3, use_highly_variable=False, max_epochs=10)
    >>> len(plot_genes(cells, n_genes=4, ax=new_figure(4, 3).subplots()).texts)
    12
    """
    D = _result(adata, "varm", key)
    count = min(validation.count(n_genes, "n_genes"), len(D))
    ax = checked_axes(ax)
    ax.set(xlim=(-0.5, D.shape[1] - 0.5), ylim=(0, 1.35 * D.max()), xlabel="component", ylabel="weight")
    for k, weights in enumerate(D.T):
        places = k - 0.4 + 0.8 * (np.arange(count) + 0.5) / count
        chosen = np.argsort(-weights, kind="stable")[:count]
        ax.plot(places, weights[chosen], ".", color=PINK, markersize=3)
        for x, gene in zip(places, chosen, strict=True):
            text = ax.annotate(
                label(str(adata.var_names[gene])), (x, weights[gene]), (0, 3), textcoords="offset points"
            )
            text.set(rotation=90, ha="center", fontsize=6)
    ax.set_xticks(range(D.shape[1]), range(D.shape[1]))
    hide_spines([ax])
    return ax


def _result(adata: AnnData, place: str, key: Any) -> Array:
    """Return what `wnmf` has stored."""
    _check_adata(adata)
    stored = getattr(adata, place)
    if not isinstance(key, str) or key not in stored or key not in adata.uns:
        raise ValueError(f"key: {place} and uns have no result {key!r}; expected the key_added of wnmf")
    return np.asarray(stored[key])


class WassersteinMetric:
    r"""The exact Wasserstein distance as a metric of pertpy, in place of its own regularised one.

    .. math:: \min_{Z \ge 0} \sum_{ij} Z_{ij} \, d(x_i, y_j)^r, \quad Z 1 = 1 / n, \; Z^T 1 = 1 / m

    The distance of a group to itself is zero. ``Distance("wasserstein")`` of pertpy calls its ``metric_fct``: set it to
    this one, and ``pairwise``, ``onesided_distances``, ``bootstrap`` and its tests use it.

    Parameters
    ----------
    cost : str
        The metric between cells, for embeddings; pertpy's own has squared Euclidean distances.
    precomputed : bool
        Whether pertpy is to compute the matrix of all cells once, with its own ``cell_wise_metric``, and pass parts of
        it to `from_precomputed`: the costs are then these distances. `DistanceTest` of pertpy becomes faster by it.

    Attributes
    ----------
    accepts_precomputed : bool
        The parameter ``precomputed``, under the name that pertpy reads.

    Examples
    --------
    >>> import numpy as np
    >>> from gibbsot.scverse import WassersteinMetric
    >>> metric = WassersteinMetric()
    >>> X, Y = np.array([[0.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> metric(X, X), round(metric(X, Y), 3)
    (0.0, 5.0)
    """

    def __init__(self, cost: str = "sqeuclidean", precomputed: bool = False) -> None:
        self.cost, self.accepts_precomputed = cost, validation.flag(precomputed, "precomputed")

    def __call__(self, X: ArrayLike, Y: ArrayLike) -> float:
        """Return the distance of two groups of cells.

        Parameters
        ----------
        X, Y : arrays of shape (n, d) and (m, d)
            The cells.

        Returns
        -------
        float
        """
        return float(solve(None, None, PointCost(X, Y, self.cost)).value)

    def from_precomputed(self, P: ArrayLike, idx: ArrayLike) -> float:
        """Return the distance of two groups by the matrix of all cells of both.

        Parameters
        ----------
        P : array of shape (n + m, n + m)
            Costs between cells, which are taken as they are.
        idx : array of bool, shape (n + m,)
            Which cells are of the first group. If all or none are, this is one group against itself.

        Returns
        -------
        float
        """
        M, first = validation.real(P, "P"), np.asarray(idx, bool)
        if M.shape != (len(first), len(first)):
            raise ValueError(f"idx: expected one entry for each row and column of P, {M.shape}; got {first.shape}")
        if first.all() or not first.any():
            return 0.0
        return float(solve(None, None, np.ascontiguousarray(M[np.ix_(first, ~first)])).value)


def _check_adata(adata: Any) -> None:
    if not isinstance(adata, AnnData):
        raise ValueError(f"adata: expected an AnnData object, got {type(adata).__name__}")


def _column(table: pd.DataFrame, key: Any, name: str, where: str) -> Any:
    """Return a column of `obs` or `var`."""
    if not isinstance(key, str) or key not in table.columns:
        known = ", ".join(map(repr, table.columns)) or "none"
        raise ValueError(f"{name}: {where} has no column {key!r}; expected one of its columns: {known}")
    return table[key]


def _genes_in_use(adata: AnnData, use_highly_variable: bool) -> NDArray[np.bool_]:
    """Return which genes are in use."""
    if not validation.flag(use_highly_variable, "use_highly_variable"):
        if not adata.n_vars:
            raise ValueError("adata: has no genes")
        return np.ones(adata.n_vars, bool)
    if _HIGHLY_VARIABLE not in adata.var.columns:
        raise ValueError(
            f"use_highly_variable: var has no column {_HIGHLY_VARIABLE!r}; expected that of "
            "scanpy.pp.highly_variable_genes, or use_highly_variable=False for all genes"
        )
    genes = adata.var[_HIGHLY_VARIABLE].to_numpy()
    if genes.dtype != bool:
        raise ValueError(
            f"use_highly_variable: expected True and False in var[{_HIGHLY_VARIABLE!r}], got {genes.dtype}"
        )
    if not genes.any():
        raise ValueError(f"use_highly_variable: no gene is marked in var[{_HIGHLY_VARIABLE!r}]")
    return genes


def _expressions(adata: AnnData, layer: str | None, genes: NDArray[np.bool_]) -> Any:
    """Return the expressions of some genes in memory, dense or CSR, after a check that they are weights."""
    if layer is not None and layer not in adata.layers:
        known = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"layer: the object has no layer {layer!r}; expected one of: {known}")
    name = "adata.X" if layer is None else f"layer (layers[{layer!r}])"
    X = _in_memory(adata.X if layer is None else adata.layers[layer], genes)
    if X is None:
        raise ValueError(f"{name}: is empty; expected expressions")
    values = X.data if sparse.issparse(X) else X
    if np.size(values) and np.min(values) < 0:
        raise ValueError(
            f"{name}: has negative values, the least is {np.min(values):.3g}; expected counts or their logarithms, not "
            "scaled data: choose a layer, or adata.raw.to_adata()"
        )
    return validation.rows(X, name)


def _in_memory(X: Any, columns: NDArray[np.bool_]) -> Any:
    """Return some columns of a matrix of an AnnData object, which may be in a file or a Dask array."""
    if X is None:
        return None
    if hasattr(X, "to_memory"):  # sparse, in a file
        return X.to_memory()[:, columns]
    found = X[:, np.flatnonzero(columns)]  # of arrays in a file only these are read
    return found.compute() if hasattr(found, "compute") else found


def _embedding(adata: AnnData, key: Any) -> Array:
    """Return the points of the cells: rows of `obsm`, or X."""
    if key == "X":
        found = _in_memory(adata.X, np.ones(adata.n_vars, bool))
    elif isinstance(key, str) and key in adata.obsm:
        found = adata.obsm[key]
    else:
        known = ", ".join(map(repr, adata.obsm)) or "none"
        raise ValueError(f"use_rep: obsm has no {key!r}; expected 'X' or one of its keys: {known}")
    return np.asarray(found.toarray() if sparse.issparse(found) else found)


def _gene_cost(adata: AnnData, cost: Any, genes: NDArray[np.bool_], X: Any) -> tuple[Any, Array | None]:
    """Return the parameters ``cost`` and ``feature_vectors`` of the model."""
    if not isinstance(cost, str):
        return cost, None
    places = [name for name in ("varp", "varm", "obsm") if cost in getattr(adata, name)]
    known = [*places, *(["the metrics"] if cost in METRICS else [])]
    if len(known) != 1:
        keys = ", ".join(repr(key) for name in ("varp", "varm", "obsm") for key in getattr(adata, name)) or "none"
        what = f"{cost!r} is in {' and '.join(known)}" if known else f"there is no {cost!r}"
        expected = f"one metric such as 'cosine', or one key of varp, varm or obsm ({keys})"
        raise ValueError(f"cost: {what}; expected {expected}")
    if not places:
        return cost, None
    name = f"cost ({places[0]}[{cost!r}])"
    found = getattr(adata, places[0])[cost]
    found = np.asarray(found.toarray() if sparse.issparse(found) else found)
    if places[0] == "varp":
        return found[np.ix_(genes, genes)], None
    if places[0] == "varm":
        return "euclidean", validation.points(found[genes], name)
    mass = np.asarray(X.sum(axis=0), float).ravel()
    if not mass.all():
        unseen = adata.var_names[genes][mass == 0][0]
        raise ValueError(
            f"{name}: no cell expresses {unseen!r}, so that it has no place among the cells; leave such genes out, "
            "with scanpy.pp.filter_genes(adata, min_cells=1)"
        )
    return "euclidean", np.asarray(X.T @ validation.points(found, name)) / mass[:, None]
