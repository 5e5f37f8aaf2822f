"""Data that come in shards: blocks of a Dask array, or a list of matrices or files."""

from __future__ import annotations

import os
from typing import Any

from ..core import validation
from ..io import readers


def is_dask(X: Any) -> bool:
    """Tell whether data are a Dask array, without importing Dask."""
    return type(X).__module__.startswith("dask.array")


def split(X: Any, name: str = "X") -> list[Any] | None:
    """Return the sources of the shards if the data come in shards, else None."""
    if is_dask(X):
        if X.ndim != 2:
            raise ValueError(f"{name}: expected a Dask array of shape (n, m), got {X.shape}")
        return list(X.rechunk({1: -1}).to_delayed().ravel())
    if isinstance(X, list | tuple) and len(X) and all(_is_source(x) for x in X):
        return list(X)
    if isinstance(X, str | os.PathLike):
        raise ValueError(f"{name}: is a path; expected measures, or a list of files such as [{os.fspath(X)!r}]")
    return None


def load(source: Any) -> Any:
    """Return the matrix of a source: read from a file, computed by Dask, or the source itself."""
    if isinstance(source, str | os.PathLike):
        return readers.matrix(source)
    return source.compute() if hasattr(source, "compute") else source


def read(source: Any, name: str) -> Any:
    """Return the matrix of a source as rows of valid weights; rows without mass are allowed."""
    return validation.rows(load(source), name)


def _is_source(x: Any) -> bool:
    return isinstance(x, str | os.PathLike) or hasattr(x, "dask") or getattr(x, "ndim", 0) == 2
