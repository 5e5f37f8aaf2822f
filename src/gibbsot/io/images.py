"""Images from files as grey values, and smaller versions of them."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import validation
from ..core.warn import warn
from .npz import READ_ERRORS

Source = str | os.PathLike[str]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
MAX_PIXELS = 2**24  # of an image that is read at its full size
_ORIENTATION = 0x0112  # the tag of EXIF; above 4 width and height are exchanged
_BLOCK = 2**22  # pixels that are converted or shrunk at a time


STDIN = Path("-")  # stands for standard input
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def check_file(path: Path) -> None:
    """Raise OSError if there is no regular file at a path, which may be standard input."""
    if path == STDIN:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; expected a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    if kind := _KINDS.get(stat.S_IFMT(path.stat().st_mode)):  # which may have no end
        raise OSError(f"{path}: is {kind}; expected a file, or - for a table from standard input")


def is_image(path: Path) -> bool:
    """Return whether the suffix of a file is that of an image."""
    return path.suffix.lower() in IMAGES


def image(path: Source, *, invert: bool = False, size: tuple[int, int] | None = None) -> NDArray[np.float64]:
    """Read an image as grey values; transparent pixels have the value zero.

    Parameters
    ----------
    path : path
        The file, in any format that Pillow reads. Of several frames the first is taken, with a warning.
    invert : bool
        Dark pixels have large values.
    size : (height, width), optional
        Shrink the image to this size. Without a size it may have 16.8 million pixels at most.

    Returns
    -------
    array of shape (height, width)
        The grey values.

    Raises
    ------
    ImportError
        If Pillow is not installed.
    ValueError
        If the file is damaged, not an image, or too large.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images need Pillow, which comes with matplotlib: pip install 'gibbsot[plots]'") from None
    check_file(Path(path))
    try:
        frames, grey = _open(path, invert, MAX_PIXELS if size is None else None)
    except (_TooLargeError, Image.DecompressionBombError) as error:
        most = f"{MAX_PIXELS / 1e6:.1f} million pixels, or a size to shrink to (--size)"
        raise ValueError(f"{path}: {str(error).partition(',')[0]}; expected at most {most}") from None
    except READ_ERRORS:  # Pillow raises different errors for each format
        raise ValueError(f"{path}: is damaged or not an image") from None
    if frames > 1:
        warn(f"{path}: has {frames} frames; the first is taken")
    if size is not None:
        try:
            grey = shrink(grey[None], size)[0]
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return np.asarray(grey, np.float64)


def changes(path: Source, size: tuple[int, int] | None) -> str:
    """Return what reading an image file changes, such as "shrunk from 480 x 640, colours as grey values"."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as opened:
            (width, height), turned = opened.size, opened.getexif().get(_ORIENTATION, 1) > 4
            palette = opened.getpalette() if opened.mode.startswith("P") else None
            colours = not {"1", "L", "I", "F", "P"}.intersection(opened.getbands())
    if palette is not None:
        colours = not palette[0::3] == palette[1::3] == palette[2::3]
    parts = [shrinking((width, height) if turned else (height, width), size), "colours as grey values" * colours]
    return ", ".join(filter(None, parts))


def shrinking(old: tuple[int, ...], new: tuple[int, int] | None) -> str:
    """Return from which size an image is shrunk, and whether that changes its proportions; nothing if it is not."""
    if new is None or old == tuple(new):
        return ""
    kept = abs(new[0] * old[1] - new[1] * old[0]) <= max(old) / 2  # whole pixels
    return f"shrunk from {old[0]} x {old[1]}" + ("" if kept else " out of proportion")


class _TooLargeError(Exception):
    """An image has too many pixels."""


def _open(path: Source, invert: bool, most: int | None) -> tuple[int, NDArray[Any]]:
    """Return the number of frames and the grey values of an image with at most a given number of pixels."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about size and metadata
        with Image.open(path) as opened:
            width, height = opened.size
            if most is not None and width * height > most:
                raise _TooLargeError(f"is {height} x {width}, {width * height / 1e6:.0f} million pixels")
            return getattr(opened, "n_frames", 1), _grey(opened, invert)


def _grey(opened: Any, invert: bool) -> NDArray[Any]:
    """Return the grey values of an open image, in the type that the file has."""
    from PIL import Image, ImageOps

    picture: Any = opened
    ImageOps.exif_transpose(picture, in_place=True)
    if picture.mode.startswith(("I", "F")):  # more than the 256 values of "L"
        grey = np.asarray(picture)
    elif "A" in picture.getbands() or "transparency" in picture.info:
        width, height = picture.size
        grey, step = np.empty((height, width), np.uint8), max(1, _BLOCK // width)
        for top in range(0, height, step):  # block by block, to save memory
            block = picture.crop((0, top, width, min(top + step, height))).convert("RGBA")
            background = Image.new("RGBA", block.size, "white" if invert else "black")
            grey[top : top + step] = np.asarray(Image.alpha_composite(background, block).convert("L"))
    else:
        grey = np.asarray(picture if picture.mode == "L" else picture.convert("L"))
    return max(255, grey.max()) - grey if invert else grey


def shrink(images: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return smaller images: each new pixel is the mean over the area that it covers.

    Parameters
    ----------
    images : array of shape (n, height, width)
        The images.
    shape : (height, width)
        The new size, at most the old one in each direction.

    Returns
    -------
    array of shape (n, height, width)
        The smaller images. The mean of each image is unchanged.

    Examples
    --------
    >>> from gibbsot.datasets import shrink
    >>> shrink([[[0, 2, 4], [0, 2, 4]]], (1, 3))
    array([[[0., 2., 4.]]])
    """
    sides = validation.sides(shape)
    found = images if isinstance(images, np.ndarray) else validation.real(images, "images")
    if found.ndim != 3:
        raise ValueError(f"images: expected shape (n, height, width), got {found.shape}")
    n, height, width = found.shape
    if len(sides) != 2 or sides[0] > height or sides[1] > width:
        raise ValueError(f"shape: expected at most {(height, width)}, got {shape!r}")
    step = max(1, _BLOCK // (n * width))
    if step < height:  # block by block, so that large images of small integers are not copied to float64 as a whole
        blocks = [_along(found[:, top : top + step], 2, sides[1]) for top in range(0, height, step)]
        return _along(np.concatenate(blocks, axis=1), 1, sides[0])
    return np.ascontiguousarray(_along(_along(found, 1, sides[0]), 2, sides[1]))


def _along(images: NDArray[Any], axis: int, n: int) -> NDArray[np.float64]:
    """Shrink one axis to n pixels."""
    values, old = np.asarray(validation.real(images, "images"), np.float64), images.shape[axis]
    edges, k = np.linspace(0, old, n + 1), np.arange(old)
    cover = np.clip(np.minimum(edges[1:, None], k + 1) - np.maximum(edges[:-1, None], k), 0, 1)
    return np.moveaxis(np.tensordot(values, cover * (n / old), axes=(axis, 1)), -1, axis)
