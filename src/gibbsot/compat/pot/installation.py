"""Let POT itself use the exact engine, in this process: `install`, `uninstall` and `installed`.

POT's exact functions end in four compiled ones: for a matrix, for sparse costs, for points, and for points on the line.
These are replaced, so that `ot.emd`, `ot.emd2`, `ot.emd_1d`, `ot.emd2_1d`, `ot.partial` and what is built on them keep
their arguments, arrays, gradients, warnings and errors, in every module that has imported them. Points of few
dimensions need no matrix, and unbalanced problems need other algorithms: for these, `ot.solve`, `ot.solve_sample` and
functions of `ot.unbalanced` are replaced wherever they were imported.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse

from ...costs import DenseCost, PointCost, SparseCost
from ...exact.line import at_once
from ...solvers.masses import in_weights
from . import functions

_OPTIMAL = 1  # POT's code of an optimum


def install() -> None:
    """Let POT use the exact engine, until `uninstall`.

    Names in modules are replaced; a function that is held elsewhere, such as in a closure, is not.

    Examples
    --------
    >>> import numpy as np
    >>> import ot  # doctest: +SKIP
    >>> from gibbsot.compat.pot import install
    >>> install()  # doctest: +SKIP
    >>> ot.emd2([0.5, 0.5], [0.25, 0.75], np.array([[0.0, 5.0], [5.0, 0.0]]))  # doctest: +SKIP
    1.25
    """
    with _lock:
        _state.wanted = True
        _state.apply()


def uninstall() -> None:
    """Restore every name that `install` replaced, and those that were imported since."""
    with _lock:
        _state.wanted = False
        _state.apply()


@contextmanager
def installed() -> Iterator[None]:
    """Let POT use the exact engine within a block, in all threads.

    Yields
    ------
    None
    """
    with _lock:
        _state.blocks += 1
        _state.apply()
    try:
        yield
    finally:
        with _lock:
            _state.blocks -= 1
            _state.apply()


class _State:
    """Whether POT is to use the engine, and which names say so."""

    def __init__(self) -> None:
        self.wanted, self.blocks, self.active = False, 0, False

    @functools.cached_property
    def pairs(self) -> list[tuple[Any, Any]]:
        """What POT has, and what replaces it."""
        functions.pot()
        compiled = import_module("ot.lp.emd_wrap")

        pairs = [
            (getattr(compiled, name), _kernel(getattr(compiled, name), own))
            for name, own in (("emd_c", _dense), ("emd_c_sparse", _sparse), ("emd_c_lazy", _points))
            if hasattr(compiled, name)  # older versions have the first alone
        ]
        merge = compiled.emd_1d_sorted
        pairs.append((merge, _kernel(merge, functools.partial(_line, merge))))
        for name in ("solve", "solve_sample", "mm_unbalanced", "lbfgsb_unbalanced"):
            original = functions.ORIGINALS[name]
            pairs.append((original, _function(original, getattr(functions, name))))
        return pairs

    def apply(self) -> None:
        """Replace the names in all modules, or restore them."""
        wanted = self.wanted or self.blocks > 0
        if not (wanted or self.active):
            return
        replacing = {id(x): y for x, y in (self.pairs if wanted else [(y, x) for x, y in self.pairs])}
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                for name, value in list(names.items()):
                    if id(value) in replacing:
                        names[name] = replacing[id(value)]
        self.active = wanted


_lock = threading.RLock()
_state = _State()


def _function(original: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """Return our function with the name, signature and docstring of POT's."""

    @functools.wraps(original)
    def function(*args: Any, **options: Any) -> Any:
        return own(*args, **options)

    return function


def _kernel(original: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the arguments of POT's compiled one, which it calls where `own` has no optimum."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def kernel(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        found = own(*given.args)
        return original(*given.args) if found is None else found

    return kernel


def _dense(a: Any, b: Any, M: Any, max_iter: int, _: int, *start: Any) -> tuple[Any, ...] | None:
    """Return POT's results for a matrix, or None."""
    found = _optimum(a, b, max_iter, lambda: DenseCost(M), *start)
    if found is None:
        return None
    i, j, masses, *others = found
    G = np.zeros(M.shape)
    G[i, j] = masses
    return G, *others


def _sparse(a: Any, b: Any, i: Any, j: Any, costs: Any, max_iter: int, *start: Any) -> tuple[Any, ...] | None:
    """Return POT's results for sparse costs, or None."""

    def cost() -> SparseCost:
        ends = i.astype(np.int64), j.astype(np.int64)
        return SparseCost(sparse.coo_array((costs, ends), (len(a), len(b))), np.float64)

    return _optimum(a, b, max_iter, cost, *start)


def _points(a: Any, b: Any, X: Any, Y: Any, metric: str, max_iter: int, *start: Any) -> tuple[Any, ...] | None:
    """Return POT's results for points, or None."""
    return _optimum(a, b, max_iter, lambda: PointCost(X, Y, metric, np.float64), *start)


def _line(merge: Callable[..., Any], a: Any, b: Any, x: Any, y: Any, metric: str, p: float) -> tuple[Any, ...] | None:
    """Return POT's results for sorted points on the line, or None: its own monotone plan, with the proved cost."""
    power = {"minkowski": p}.get(metric, 2.0 if metric == "sqeuclidean" else 1.0)
    mass, received = a.sum(), b.sum()
    numbers = all(np.isfinite(z).all() for z in (a, b, x, y)) and all((w >= 0).all() for w in (a, b))
    if not (numbers and 1 <= power < np.inf and 0 < min(mass, received) <= max(mass, received) < np.inf):
        return None
    found = at_once(x, y, a, b, power)
    return None if found is None else (*merge(a, b, x, y, metric, p)[:2], float(mass * found.value))


def _optimum(
    a: Any, b: Any, max_iter: int, cost: Callable[[], Any], f: Any = None, _: Any = None
) -> tuple[Any, ...] | None:
    """Return rows, columns, masses, cost, potentials and code; None for what POT is to say. Potentials may be given."""
    if max_iter < functions.ITERATIONS:
        return None
    mass = a.sum()
    found = functions.optimum(a, b, cost, f)
    if found is None:
        return None
    plan = found.plan.tocoo()
    ends = plan.row.astype(np.uint64), plan.col.astype(np.uint64)
    masses = in_weights(mass * plan.data, b[plan.col], a[plan.row])
    return *ends, masses, float(mass * found.value), found.f, found.g, _OPTIMAL
