"""``gibbsot distances``: the matrix of transport costs of a collection of measures, with a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import plots
from ..core import native, validation
from ..io import atomic
from ..io.readers import Collection
from . import _common, _inputs
from ._common import (
    CostOption,
    Data,
    Header,
    Invert,
    Jobs,
    Json,
    Key,
    Label,
    Labels,
    Limit,
    Power,
    Quiet,
    Shape,
    Size,
    Spacing,
    Vectors,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPILOG = (
    "Examples:\n\n"
    "  gibbsot distances fives --limit 100 --out fives.npy\n\n"
    "  gibbsot distances photos/ --size 32 27 --root --out faces.csv\n\n"
    "  gibbsot distances words.npz --cost cosine --vectors embedding.npy --out documents.npy"
)


def distances(
    data: Data,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The matrix: .npy; or .npz or .csv, with names.", show_default=False)
    ],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The picture; by default beside the matrix, as .png.")
    ] = None,
    root: Annotated[bool, typer.Option("--root", help="Square roots of the transport costs.")] = False,
    gap: Annotated[
        float | None, typer.Option(help="The certified relative gap of each pair; by default the optimum.")
    ] = None,
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
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Exact transport costs of all pairs of measures.

    Writes the matrix, with the names of files or rows as .npz (distances, names) or .csv, and a picture of it: a heat
    map sorted by average linkage, and the measures in the plane by classical multidimensional scaling. Until then
    values are kept beside the matrix, in a file whose name ends with .partial.npz: the same command continues after an
    interrupt.
    """
    from ..models.geometry import distances as models  # imports scikit-learn

    native.threads(jobs)
    _common.check_matrix_target(out)
    if gap is not None:
        validation.nonnegative(gap, "--gap")
    target = picture or out.with_suffix(".png")
    for option, path in (("--out", out), ("--picture", target)):
        _common.check_outside(data, option, path)
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    reading: dict[str, Any] = {"key": key, "shape": shape, "labels": labels, "label": label, "limit": limit}
    found = _common.read_collection(data, size, invert=invert, header=header, **reading)
    X, sides, names, _ = found
    validation.check_weights(X, data)
    cost = _common.cost_of_bins(X, X.shape[1], sides, cost_option, vectors, power, spacing)
    begun, n = time.perf_counter(), X.shape[0]
    with atomic.output_folder(out.resolve().parent), atomic.output_folder(target.resolve().parent):
        shown, partial = not quiet and not as_json, out.with_suffix(".partial.npz")
        console = _common.stderr_console(not shown)
        read, measured = _inputs.said(console, data, found, cost, cost_option, power, spacing)
        D = models.distances(X, cost=cost, gap=gap, root=root, n_jobs=jobs, verbose=shown, checkpoint=partial)
        seconds = time.perf_counter() - begun
        with atomic.FileGroup() as files:
            with files.open(out) as file:
                rows = names or tuple(map(str, range(len(D))))
                _common.write_matrix(file, out.suffix, D, "distances", rows, rows)
            _common.save_png(files, target, _picture(D, root, found, invert))
        partial.unlink(missing_ok=True)
    report = {
        "data": data,
        "read": read,
        "ground_cost": measured,
        "measures": n,
        "mean": float(D.sum() / max(1, n * (n - 1))),
        "largest": float(D.max()),
        "seconds": seconds,
        "files": [str(out), str(target)],
    }
    if as_json:
        _common.print_json(report)
    elif not quiet:
        _common.print_table(
            ("measures", f"{n:,}", f"{seconds:.1f} s"),
            ("mean of pairs", f"{report['mean']:.6g}", "roots of transport costs" if root else "transport costs"),
            ("largest", f"{report['largest']:.6g}"),
        )
        _common.print_files(out.parent, [out.name, str(target.name if target.parent == out.parent else target)])


def _picture(D: Any, root: bool, found: Collection, invert: bool) -> Figure:
    """Draw the matrix and the measures in the plane."""
    X, shape, names, _ = found
    figure = plots.new_figure(13, 6)
    left, right = figure.subplots(1, 2)
    plots.heat_map(left, D, label="root of the transport cost" if root else "transport cost", names=names or None)
    images = X.toarray() if hasattr(X, "toarray") else X
    cmap = "gray_r" if invert else "gray"
    plots.thumbnails(right, plots.plane(D**2 if root else D), None if shape is None else images, shape, cmap=cmap)
    right.set_xlabel("classical scaling of the transport costs")
    return figure
