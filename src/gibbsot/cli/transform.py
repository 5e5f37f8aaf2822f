"""``gibbsot transform``: memberships of new measures in the components of a fitted model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..core import native
from ..io import atomic
from . import _common, _inputs, nmf
from ._common import Data, Jobs, Json, Limit, Quiet

EPILOG = (
    "Examples:\n\n"
    "  gibbsot nmf photos/ --size 32 27 --components 20 --out faces\n\n"
    "  gibbsot transform faces new-photos/ --out memberships.csv"
)


def transform(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a fit by gibbsot nmf.")],
    data: Data,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Memberships: .npy; or .npz or .csv, with names.", show_default=False)
    ],
    limit: Limit = None,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Approximate new measures by mixtures of the components of a fitted model.

    The data are read as those of the fit were: with its size, its shape and its colours. Labels do not select.
    """
    from ..models.nmf.estimator import WassersteinNMF  # imports scikit-learn

    native.threads(jobs)
    _common.check_matrix_target(out)
    _common.check_outside(data, "--out", out)
    if not model.is_dir() or not (model / "model.npz").is_file():
        raise ValueError(f"{model}: has no model.npz; expected the folder of a fit by gibbsot nmf")
    kept = nmf.saved_options(model / nmf.OPTIONS)
    fitted = WassersteinNMF.load(model / "model.npz").set_params(n_jobs=jobs, verbose=not quiet and not as_json)
    own = Path(data).exists()  # a data set by name takes no options for files
    reading: dict[str, Any] = {name: kept[name] if own else None for name in ("key", "shape", "invert", "header")}
    found = _common.read_collection(data, kept["size"], labels=None, label=None, limit=limit, **reading)
    if (m := found.rows.shape[1]) != fitted.n_features_in_:
        raise ValueError(f"{data}: has measures of {m} bins; expected {fitted.n_features_in_} as in {model}")
    begun, console = time.perf_counter(), _common.stderr_console(quiet or as_json)
    said = kept["cost"], kept["power"], kept["spacing"]
    read, measured = _inputs.said(console, data, found, fitted.cost_, *said)
    W = np.asarray(fitted.transform(found.rows))
    names = found.names or tuple(map(str, range(len(W))))
    columns = [f"component {k}" for k in range(W.shape[1])]
    with atomic.output_folder(out.resolve().parent), atomic.FileGroup() as files, files.open(out) as file:
        _common.write_matrix(file, out.suffix, W, "memberships", names, columns)
    report = {
        "data": data,
        "model": str(model),
        "read": read,
        "ground_cost": measured,
        "measures": len(W),
        "components": W.shape[1],
        "seconds": time.perf_counter() - begun,
        "files": [str(out)],
    }
    if as_json:
        _common.print_json(report)
    elif not quiet:
        _common.print_table(
            ("measures", f"{len(W):,}", f"{report['seconds']:.1f} s"), ("components", f"{W.shape[1]}", f"of {model}")
        )
        _common.print_files(out.parent, [out.name])
