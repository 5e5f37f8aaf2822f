"""``gibbsot geodesics``: principal geodesics of a collection of images, with pictures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import __version__, plots
from ..core import native, validation
from ..costs import GridCost
from ..io import atomic, strict_json
from . import _common, _inputs
from ._common import Data, Header, Invert, Jobs, Json, Key, Label, Labels, Limit, Quiet, Shape, Size

EPILOG = (
    "Examples:\n\n"
    "  gibbsot geodesics fives --out fives\n\n"
    "  gibbsot geodesics photos/ --size 32 27 --components 5 --maps debiased --out faces"
)

_TIMES = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
_FILES = ("geodesics.npy", "components.npy", "coordinates.npy", "report.json", "geodesics.png", "coordinates.png")


def geodesics(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.", show_default=False)],
    components: Annotated[int, typer.Option(metavar="K", help="Number of geodesics.")] = 5,
    maps: Annotated[str, typer.Option(help="Transport maps: exact, or debiased, which are smoother.")] = "exact",
    reference: Annotated[str, typer.Option(help="Where the geodesics start: mean, or barycenter.")] = "mean",
    shape: Shape = None,
    size: Size = None,
    label: Label = None,
    labels: Labels = None,
    limit: Limit = None,
    invert: Invert = False,
    key: Key = None,
    header: Header = None,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Principal geodesics of images: the main ways in which mass moves between them.

    Writes the images along the geodesics, the components as displacement fields, the coordinates of the images,
    report.json and two pictures.
    """
    from ..models.geometry.pca import WassersteinPCA  # imports scikit-learn

    native.threads(jobs)
    _common.check_outside(data, "--out", out)
    plots.new_figure(1, 1)  # raises early if matplotlib is missing
    reading: dict[str, Any] = {"key": key, "shape": shape, "labels": labels, "label": label, "limit": limit}
    found = _common.read_collection(data, size, invert=invert, header=header, **reading)
    X, sides = found.rows, found.shape
    if sides is None:
        raise ValueError(f"{data}: expected images; --shape HEIGHT WIDTH says that rows of a matrix are images")
    validation.check_weights(X, data)
    most = min(X.shape)
    if not 1 <= components <= most:
        raise ValueError(f"--components: expected a number from 1 to {most}, got {components}")
    begun, verbose = time.perf_counter(), not quiet and not as_json
    cost = GridCost(sides)
    read, measured = _inputs.said(_common.stderr_console(not verbose), data, found, cost)
    with atomic.output_folder(out):
        model = WassersteinPCA(components, cost=cost, maps=maps, reference=reference, n_jobs=jobs, verbose=verbose)
        Z = model.fit_transform(X)
        paths = np.stack([model.geodesic(k, _TIMES) for k in range(components)])
        report = {
            "data": data,
            "read": read,
            "ground_cost": measured,
            "measures": X.shape[0],
            "shape": list(sides),
            "components": components,
            "maps": maps,
            "reference": reference,
            "explained": model.explained_variance_ratio_.tolist(),
            "cost": float(model._costs(X, Z).mean()),
            "times": list(_TIMES),
            "seconds": time.perf_counter() - begun,
            "version": __version__,
            "files": list(_FILES),
        }
        _write(out, model, Z, paths, X, sides, invert, report)
    if as_json:
        _common.print_json(report)
    elif not quiet:
        shares = ", ".join(f"{share:.0%}" for share in report["explained"])
        _common.print_table(
            ("images", f"{report['measures']:,}", f"{report['seconds']:.1f} s"),
            ("explained variance", f"{sum(report['explained']):.1%}", shares),
            ("mean transport cost", f"{report['cost']:.6g}", "exact, of reconstructions"),
        )
        _common.print_files(out, _FILES)


def _write(
    out: Path, model: Any, Z: Any, paths: Any, X: Any, shape: tuple[int, int], invert: bool, report: dict[str, Any]
) -> None:
    """Write all files; they are renamed after all of them are written."""
    images, cmap = X.toarray() if hasattr(X, "toarray") else X, "gray_r" if invert else "gray"
    labels = [f"{share:.0%}" for share in report["explained"]]
    with atomic.FileGroup() as files:
        for name, array in (("geodesics", paths), ("components", model.components_), ("coordinates", Z)):
            with files.open(out / f"{name}.npy") as file:
                np.save(file, array)
        figure = plots.new_figure(10, 1.2 + 8.8 * len(paths) * shape[0] / (len(_TIMES) * shape[1]))
        plots.geodesics(figure, paths, shape, times=_TIMES, labels=labels, cmap=cmap)
        _common.save_png(files, out / "geodesics.png", figure)
        figure = plots.new_figure(9, 8)
        ax = figure.subplots()
        second = Z[:, 1] if Z.shape[1] > 1 else np.zeros(len(Z))
        plots.thumbnails(ax, np.stack([Z[:, 0], second], axis=1), images, shape, cmap=cmap)
        ax.set(xlabel="first component", ylabel="second component")
        _common.save_png(files, out / "coordinates.png", figure)
        with files.open(out / "report.json") as file:
            file.write(strict_json.dumps(report, indent=1).encode() + b"\n")
