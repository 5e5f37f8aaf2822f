"""JSON as the standard has it: without NaN and infinity."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(data: Any, indent: int | None = None) -> str:
    """Return data as JSON text, with null for numbers that are not finite.

    Parameters
    ----------
    data : dict, list, tuple, str, number or None
        The data, nested at will.
    indent : int, optional
        Spaces of indentation; by default the text is one line.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> dumps({"x": [1.0, math.inf]})
    '{"x": [1.0, null]}'
    """
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def _finite(x: Any) -> Any:
    """Replace numbers that are not finite by None."""
    if isinstance(x, dict):
        return {name: _finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
