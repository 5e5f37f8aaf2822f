"""Wasserstein NMF of blood cells beside scikit-learn's NMF: a table, distances between cell types, and a figure.

    python examples/single_cells.py [--out DIR] [--components 10] [--seeds 3]

The cells are scanpy's bundled ``pbmc68k_reduced`` (the extra ``scanpy``): 700 cells with logarithms of normalised
counts of 765 genes, and ten types that were assigned from purified populations. Both models get the same cells, divided
by their sums, and the same number of components; neither sees the types.

The memberships of both are normalised rows. Compared are, as means over the seeds, the silhouette of the types in the
memberships and the adjusted Rand index (ARI) of clusters against the types: clusters by k-means with as many clusters
as there are types, and by the component of the largest membership.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

TYPES = "bulk_labels"
DRAWN = 4  # components in the figure


def measures(W: NDArray[Any], types: NDArray[Any], seed: int) -> tuple[float, float, float]:
    """Return the silhouette of the types and the ARI of two clusterings, for memberships as normalised rows."""
    clusters = KMeans(len(np.unique(types)), n_init=10, random_state=seed).fit_predict(W)
    return (
        float(silhouette_score(W, types)),
        float(adjusted_rand_score(types, clusters)),
        float(adjusted_rand_score(types, W.argmax(axis=1))),
    )


def run(args: argparse.Namespace, console: Console) -> None:
    import scanpy as sc

    from gibbsot import scverse

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is of an older version of anndata
        reduced = sc.datasets.pbmc68k_reduced()
    cells = reduced.raw.to_adata()  # the object's own X is scaled, with negative values
    types = cells.obs[TYPES].to_numpy()
    X = normalize(cells.X, "l1")

    rows: dict[str, list[tuple[float, ...]]] = {"scikit-learn's NMF": [], "Wasserstein NMF": []}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in range(args.seeds):
            start = time.process_time()
            W = NMF(args.components, init="nndsvda", max_iter=1000, random_state=seed).fit_transform(X)
            spent = time.process_time() - start
            cells.obsm["nmf"] = normalize(W, "l1")
            rows["scikit-learn's NMF"].append((*measures(cells.obsm["nmf"], types, seed), spent))
            start = time.process_time()
            scverse.wnmf(
                cells,
                args.components,
                use_highly_variable=False,
                cost=args.cost,
                rng=seed,
                max_epochs=args.epochs,
                verbose=True,
            )
            spent = time.process_time() - start
            rows["Wasserstein NMF"].append((*measures(cells.obsm["wnmf"], types, seed), spent))

    title = f"{cells.n_obs} cells, {cells.n_vars} genes, {args.components} components, mean of {args.seeds} seeds"
    table = Table(title=title)
    for column in ("", "silhouette", "ARI, k-means", "ARI, largest", "CPU time"):
        table.add_column(column, justify="right" if column else "left")
    for name, found in rows.items():
        *scores, spent = np.mean(found, axis=0)
        table.add_row(name, *(f"{score:.3f}" for score in scores), f"{spent:.1f} s")
    console.print(table)

    cells.obsm["X_pca"] = reduced.obsm["X_pca"]
    D = scverse.distances(cells, TYPES)
    console.print("Wasserstein distances between types, in the first principal components:")
    console.print(D.round(1).to_string(), highlight=False, soft_wrap=True)
    args.out.mkdir(parents=True, exist_ok=True)
    picture(sc, cells, args.out / "single-cells.png")
    console.print(f"picture: {args.out / 'single-cells.png'}", highlight=False, soft_wrap=True)


def picture(sc: Any, cells: Any, path: Path) -> None:
    """Draw the types and some memberships of both models on the map of the cells, in scanpy's style."""
    figure, axes = plt.subplots(2, DRAWN + 1, figsize=(3.1 * (DRAWN + 1), 5.6), layout="constrained")
    options = {"frameon": False, "show": False, "basis": "X_umap", "size": 30}
    sc.pl.embedding(cells, color=TYPES, ax=axes[0, 0], title="types", legend_loc=None, **options)
    for row, (key, name) in enumerate((("wnmf", "Wasserstein NMF"), ("nmf", "scikit-learn's NMF"))):
        W = cells.obsm[key]
        shares = W.mean(axis=0)
        for column, k in enumerate(np.argsort(-shares)[:DRAWN], start=1):
            cells.obs["membership"] = W[:, k]
            title = f"{name}: component {k}\n{shares[k]:.0%} of the cells' mass"
            sc.pl.embedding(
                cells, color="membership", ax=axes[row, column], title=title, vmin=0, vmax=1, cmap="viridis",
                colorbar_loc=None, **options,
            )  # fmt: skip
    del cells.obs["membership"]
    colours = dict(zip(cells.obs[TYPES].cat.categories, cells.uns[f"{TYPES}_colors"], strict=True))
    handles = [Line2D([], [], marker="o", ls="", color=colour, label=name) for name, colour in colours.items()]
    axes[1, 0].axis("off")
    axes[1, 0].legend(handles=handles, loc="center", frameon=False, fontsize=8)
    for ax in axes.flat:
        ax.title.set_fontsize(10)
    scale = ScalarMappable(Normalize(0, 1), "viridis")
    figure.colorbar(scale, ax=axes[:, -1], label="membership", shrink=0.7)
    figure.savefig(path, dpi=100)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure (default: demo)")
    parser.add_argument("--components", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--cost", default="cosine", help="between genes: a metric or a key of obsm (default: cosine)")
    parser.add_argument("--epochs", type=int, default=100, help="passes over the cells at most (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of both models (default: 3)")
    args = parser.parse_args()
    try:
        run(args, Console())
    except (ImportError, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
