"""``gibbsot morph``: the frames between two images, by displacement interpolation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..core import validation
from ..costs import GridCost
from ..io import atomic, readers
from ..io.images import is_image
from ..solvers.solve import solve
from . import _common, _inputs
from ._common import Invert, Jobs, Json, Quiet, Size
from ._text import printable

EPILOG = (
    "Examples:\n\n"
    "  gibbsot morph a.png b.png --invert --out morph.gif\n\n"
    "  gibbsot morph a.png b.png --size 64 64 --frames 9 --out frame.png"
)


def morph(
    a: Annotated[Path, typer.Argument(metavar="A", help="The first image.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The last one, of the same size.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help=".gif, or .png for numbered frames.", show_default=False)],
    frames: Annotated[int, typer.Option(metavar="N", help="Number of frames, the two images included.")] = 15,
    size: Size = None,
    invert: Invert = False,
    jobs: Jobs = -1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the images on the way from A to B: mass moves along straight lines, by the optimal plan.

    Images are grey values with sum one; all frames share one scale of grey.
    """
    if validation.count(frames, "--frames") < 2:
        raise ValueError(f"--frames: expected at least 2, got {frames}")
    if out.suffix.lower() not in (".gif", ".png"):
        raise ValueError(f"--out: expected a name that ends with .gif or .png, got {out}")
    for path in (a, b):
        if not is_image(path):
            raise ValueError(f"{path}: expected an image")
    first, second = (readers.measure(path, invert=invert, size=size) for path in (a, b))
    if first.shape is None or first.shape != second.shape:
        sides = [" x ".join(map(str, one.shape or ())) for one in (first, second)]
        raise ValueError(f"{b}: is {sides[1]}, {a} is {sides[0]}; expected one size, or --size")
    cost = GridCost(first.shape)
    console = _common.stderr_console(quiet or as_json)
    about = [_inputs.describe(one) for one in (first, second)], _inputs.describe_cost(cost, None, 2, False)
    for head, text in zip((a, b, "cost"), (*about[0], about[1]), strict=True):
        console.print(printable(f"{head}: {text}"))
    result = solve(first.weights, second.weights, cost, n_jobs=jobs)
    times = np.linspace(0, 1, frames)
    images = [first.weights.reshape(first.shape), *(result.interpolate(t, on_grid=True) for t in times[1:-1])]
    names = _write(out, _grey([*images, second.weights.reshape(first.shape)], invert))
    if as_json:
        report = {"read": about[0], "cost": about[1], "value": result.value, "status": result.status}
        _common.print_json(report | {"frames": frames, "files": [str(out.parent / name) for name in names]})
    elif not quiet:
        _common.print_table(("transport cost", f"{result.value:.6g}", result.status), ("frames", f"{frames}"))
        _common.print_files(out.parent, names)


def _grey(images: list[Any], invert: bool) -> list[NDArray[np.uint8]]:
    """Return images as grey values of one scale, dark where the mass is if they were inverted."""
    most = max(float(image.max()) for image in images)
    grey = [np.round(255 * image / most).astype(np.uint8) for image in images]
    return [255 - one for one in grey] if invert else grey


def _write(out: Path, images: list[NDArray[np.uint8]]) -> list[str]:
    """Write the frames, and return the names of the files."""
    from PIL import Image

    pictures = [Image.fromarray(image) for image in images]
    parts: dict[str, bytes] = {}
    if out.suffix.lower() == ".gif":
        stream = io.BytesIO()
        pictures[0].save(stream, "GIF", save_all=True, append_images=pictures[1:], duration=80, loop=0)
        parts[out.name] = stream.getvalue()
    for k, picture in enumerate(pictures if not parts else []):
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        parts[f"{out.stem}-{k:0{len(str(len(pictures) - 1))}}{out.suffix}"] = stream.getvalue()
    with atomic.output_folder(out.resolve().parent), atomic.FileGroup() as files:
        for name, content in parts.items():
            with files.open(out.parent / name) as file:
                file.write(content)
    return list(parts)
