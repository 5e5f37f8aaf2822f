"""Warnings that point to the line of the user's program."""

from __future__ import annotations

import sys
import warnings

_SKIPPED = ("gibbsot", "sklearn", "joblib", "torch")  # which call each other


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, also through the methods of scikit-learn and PyTorch.

    Parameters
    ----------
    message : str
        The text.
    category : type
        The kind of warning.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
