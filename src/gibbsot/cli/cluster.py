"""``gibbsot cluster``: clusters of measures with transport costs, with a contact sheet of each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .. import plots
from ..core import native, validation
from ..io import atomic, strict_json
from . import _common, _inputs
from ._common import (
    CostOption,
    Data,
    Header,
    Interrupt,
    Invert,
    Jobs,
    Json,
    Key,
    Label,
    Labels,
    Limit,
    Power,
    Quiet,
    Seed,
    Shape,
    Size,
    Spacing,
    Vectors,
)

if TYPE_CHECKING:
    from ..models.kmeans import WassersteinKMeans

EPILOG = (
    "Examples:\n\n"
    "  gibbsot cluster fives --limit 200 --clusters 5 --out fives\n\n"
    "  gibbsot cluster photos/ --size 32 27 --clusters 10 --out faces\n\n"
    "  gibbsot cluster words.npz --cost cosine --vectors embedding.npy --clusters 20 --out topics"
)

_MOST_ON_SHEET = 119  # images of a cluster, those nearest to the centroid first
_COLUMNS, _TILE, _TITLE = 12, 0.75, 0.3  # of a sheet; inches per image, and above them


def cluster(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.", show_default=False)],
    clusters: Annotated[int, typer.Option(metavar="K", help="Number of clusters.", show_default=False)],
    starts: Annotated[int, typer.Option(metavar="N", help="Starts, of which the best is kept.")] = 1,
    gap: Annotated[float, typer.Option(help="The certified relative gap of the centroids.")] = 1e-2,
    shape: Shape = None,
    size: Size = None,
    label: Label = None,
    labels: Labels = None,
    limit: Limit = None,
    cost_option: CostOption = None,
    vectors: Vectors = None,
    power: Power = 2.0,
    spacing: Spacing = None,
    invert: Invert = False,
    key: Key = None,
    header: Header = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find clusters of measures, whose centroids are barycenters.

    Writes labels.npy, centroids.npy, report.json, a picture of the centroids and, for images, a contact sheet of each
    cluster: first its centroid, then its images from the nearest to the farthest.

    Ctrl-C ends the fit after the current assignment, and writes what it has found.
    """
    from ..models.kmeans import WassersteinKMeans  # imports scikit-learn

    _common.check_seed(seed)
    native.threads(jobs)
    for option, value in (("--clusters", clusters), ("--starts", starts)):
        validation.count(value, option)
    validation.nonnegative(gap, "--gap")
    _common.check_outside(data, "--out", out)
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    reading: dict[str, Any] = {"key": key, "shape": shape, "labels": labels, "label": label, "limit": limit}
    found = _common.read_collection(data, size, invert=invert, header=header, **reading)
    X, sides = found.rows, found.shape
    validation.check_weights(X, data)
    cost = _common.cost_of_bins(X, X.shape[1], sides, cost_option, vectors, power, spacing)
    if clusters > X.shape[0]:
        raise ValueError(f"--clusters: is {clusters}; expected at most {X.shape[0]}, the number of measures")
    begun, console = time.perf_counter(), _common.stderr_console(quiet or as_json)
    with (
        _common.locked_folder(out),
        Interrupt(lambda: console.print("stopping after this assignment; Ctrl-C again stops immediately")) as interrupt,
    ):
        read, measured = _inputs.said(console, data, found, cost, cost_option, power, spacing)
        model = WassersteinKMeans(
            clusters, cost=cost, n_init=starts, gap=gap, random_state=seed, n_jobs=jobs,
            verbose=not quiet and not as_json, callbacks=[lambda _: interrupt.requested],
        ).fit(X)  # fmt: skip
        report = {"read": read, "ground_cost": measured} | _report(model, data, time.perf_counter() - begun)
        names = _write(model, X, sides, invert, report, out)
    if as_json:
        _common.print_json(report)
    elif not quiet:
        sizes = ", ".join(f"{size:,}" for size in report["sizes"])
        _common.print_table(
            ("measures", f"{len(model.labels_):,}", f"{report['seconds']:.1f} s, {model.n_iter_} assignments"),
            (
                "mean cost",
                f"{report['mean_cost']:.6g}",
                f"certified to {report['bounds'][1] - report['bounds'][0]:.1e}",
            ),
            ("clusters", f"{clusters}", f"of {sizes} measures"),
            ("problems solved", f"{report['share_solved']:.0%}", "of all pairs of a measure and a centroid"),
        )
        _common.print_files(out, names)


def _report(model: WassersteinKMeans, data: str, seconds: float) -> dict[str, Any]:
    n, solved = len(model.labels_), model.solved_
    return {
        "data": data,
        "measures": n,
        "sizes": np.bincount(model.labels_, minlength=model.n_clusters).tolist(),
        "mean_cost": model.inertia_ / n,
        "bounds": [bound / n for bound in model.inertia_bounds_],
        "centroid_gap": float(np.nan_to_num(model.centroid_gaps_, posinf=1e308).max()),
        "assignments": model.n_iter_,
        "share_solved": solved.share,
        "relocated": model.n_relocated_,
        "seconds": seconds,
    }


def _write(
    model: WassersteinKMeans, X: Any, sides: tuple[int, int] | None, invert: bool, report: dict[str, Any], out: Path
) -> list[str]:
    """Write all files, and return their names."""
    names = ["labels.npy", "centroids.npy", "report.json", "centroids.png"]
    cmap = "gray_r" if invert else "gray"
    with atomic.FileGroup() as files:
        for name, array in (("labels.npy", model.labels_), ("centroids.npy", model.cluster_centers_)):
            with files.open(out / name) as file:
                np.save(file, array)
        with files.open(out / "report.json") as file:
            file.write(strict_json.dumps(report).encode())
        figure = plots.new_figure(9, 6)
        if sides is None:
            plots.profiles(figure, model.cluster_centers_)
        else:
            plots.components(figure, model.cluster_centers_, sides, cmap=cmap, numbers=range(model.n_clusters))
        _common.save_png(files, out / "centroids.png", figure)
        if sides is not None:
            far = model.transform(X)
            images = X.toarray() if hasattr(X, "toarray") else X
            for k in range(model.n_clusters):
                own = np.flatnonzero(model.labels_ == k)
                own = own[np.argsort(far[own, k], kind="stable")]
                names.append(f"cluster-{k}.png")
                sheet = _sheet(k, model.cluster_centers_[k], images[own], sides, cmap)
                _common.save_png(files, out / names[-1], sheet)
    return names


def _sheet(k: int, centroid: Any, images: Any, sides: tuple[int, int], cmap: str) -> Any:
    """Return a figure of a centroid, in a frame, and of the images of its cluster, which are sorted."""
    tiles = np.concatenate([centroid[None], images[:_MOST_ON_SHEET]])
    columns, (height, width) = min(_COLUMNS, len(tiles)), sides
    rows = -(-len(tiles) // columns)
    figure = plots.new_figure(columns * _TILE, rows * _TILE * height / width + _TITLE)
    plots.components(figure, tiles, sides, columns=columns, cmap=cmap)
    [ax] = figure.axes
    x, y = np.array([0, width, width, 0, 0]) - 0.5, np.array([0, 0, height, height, 0]) - 0.5
    ax.plot(x, y, color=plots.PINK, linewidth=2, clip_on=False)
    shown = f"{len(images)} images" if len(images) <= _MOST_ON_SHEET else f"{_MOST_ON_SHEET} of {len(images)} images"
    ax.set_title(f"cluster {k}: its centroid, then {shown}, the nearest first", loc="left", fontsize=9)
    return figure
