"""The options of `solve` and `solve_batch`: a dataclass that checks them, and from which both have their signatures.

A new option is a field of `Options` with its check, a paragraph in the docstring of `solve`, and its use in `solve.py`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from numpy.typing import ArrayLike

from ..core import native, validation
from ..io import progress
from ..sampling.gibbs import Gibbs
from .kl import divergence_weights
from .relaxed import Penalty, check_normalize
from .result import OTResult


@dataclass(eq=False, kw_only=True, slots=True)
class Options:
    """The options of `solve`, as its docstring describes them; they are checked when they are made.

    Attributes
    ----------
    method, gap, normalize, penalty, mass, kl, max_seconds, max_memory, warm_start, n_jobs, verbose
        As for `solve`.
    ids : array of int, optional
        As for `solve_batch`; None for `solve`.
    sampler : Gibbs or None
        The method, if it is the sampler.
    """

    method: str | Gibbs = "exact"
    gap: float | None = None
    normalize: bool = False
    penalty: Penalty | None = None
    mass: float | None = None
    kl: float | tuple[float, float] | None = None
    max_seconds: float | None = None
    max_memory: float | None = None
    warm_start: OTResult | None = None
    n_jobs: int | None = None
    verbose: bool = False
    ids: ArrayLike | None = field(default=None, init=False)
    sampler: Gibbs | None = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.method, Gibbs):
            self.sampler = self.method
        elif self.method == "exact":
            self.sampler = None
        elif self.method == "gibbs":
            self.sampler = Gibbs()
        else:
            raise ValueError(f'method: expected "exact", "gibbs" or a gibbsot.Gibbs, got {self.method!r}')
        # a small problem takes as long as a few checks: none where a default was not changed
        if self.n_jobs is not None:
            native.threads(self.n_jobs)
        if self.normalize is not False:
            validation.flag(self.normalize, "normalize")
        if self.gap is not None:
            validation.nonnegative(self.gap, "gap")
            if self.sampler is not None:
                raise ValueError("gap: the sampler's estimate has no gap; expected it with method='exact' only")
        if self.max_seconds is not None:
            validation.positive(self.max_seconds, "max_seconds")
        if self.max_memory is not None:
            validation.positive(self.max_memory, "max_memory")
        if self.normalize:
            check_normalize(self.normalize, self.penalty, self.mass)
        if self.kl is not None:
            self._check_kl()

    def _check_kl(self) -> None:
        """Refuse what does not go together with divergences of the marginals."""
        both = divergence_weights(self.kl, self.penalty)
        others = {"mass": self.mass is not None, "normalize": self.normalize}
        for name in (name for name, given in others.items() if given):
            raise ValueError(
                f"kl: expected no {name} with it; masses may differ, and the difference costs its divergence"
            )
        if self.sampler is not None:
            raise ValueError("kl: the sampler solves balanced and partial problems; expected method='exact' with it")
        self.kl = both

    @property
    def partial(self) -> bool:
        """Whether mass may be left over."""
        return self.penalty is not None or self.mass is not None

    @property
    def packs(self) -> bool:
        """Whether small balanced problems may be solved together: exactly, from the start, in any memory."""
        exact = self.sampler is None and self.warm_start is None and self.max_memory is None
        return exact and self.penalty is None and self.mass is None and self.kl is None

    @property
    def plain(self) -> bool:
        """Whether nothing but the optimum of a balanced problem is asked for, and nobody watches."""
        watched = self.verbose or progress.logger.isEnabledFor(logging.INFO)
        return self.packs and self.max_seconds is None and not self.normalize and not watched

    def allow(self, needed: float) -> None:
        """Refuse work that needs more bytes than are allowed."""
        if self.max_memory is not None and needed > self.max_memory:
            raise ValueError(
                f"max_memory: this takes about {needed:.2g} bytes, more than the {self.max_memory:.2g} allowed; "
                "expected more memory, fewer points or fewer n_jobs"
            )


@dataclass(eq=False, kw_only=True, slots=True)
class BatchOptions(Options):
    """The options of `solve_batch`: those of `solve`, and ids.

    Attributes
    ----------
    method, gap, normalize, penalty, mass, kl, max_seconds, max_memory, warm_start, n_jobs, verbose, ids
        As for `solve_batch`.
    sampler : Gibbs or None
        The method, if it is the sampler.
    """

    ids: ArrayLike | None = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)  # super() does not know a class with slots
        if self.ids is not None and self.sampler is None:
            raise ValueError("ids: is an option of the sampler; expected method='gibbs' with it")


K = ParamSpec("K")
OptionsT = TypeVar("OptionsT", bound=Options)


class Solver(Protocol[K]):
    """A function of measures, a cost and options by name."""

    def __call__(self, p: Any, q: Any, /, cost: Any, *args: K.args, **options: K.kwargs) -> OTResult:
        """Solve problems."""


def takes(make: Callable[K, OptionsT]) -> Callable[[Callable[[Any, Any, Any, OptionsT], OTResult]], Solver[K]]:
    """Return a decorator that gives a function of measures, a cost and an options object its options by name.

    The signature lists them one by one, for type checkers and at run time, and so does the docstring in the place of
    ``**options``.

    Parameters
    ----------
    make : type
        The class of the options.

    Returns
    -------
    callable
    """
    build: Callable[..., OptionsT] = make
    default = build()  # for all calls without options, which nobody changes
    named = [one for one in fields(build) if one.init]  # type: ignore[arg-type]  # it is a class

    def decorate(function: Callable[[Any, Any, Any, OptionsT], OTResult]) -> Solver[K]:
        signature = inspect.signature(function)
        first = list(signature.parameters.values())[:-1]
        names = [one.name for one in first]
        kind = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(one.name, kind, default=one.default, annotation=one.type) for one in named]
        signature = signature.replace(parameters=[*first, *more])

        @wraps(function)
        def call(*args: Any, **given: Any) -> OTResult:
            if len(args) != len(first):  # some are given by name, or there is an error
                bound = signature.bind(*args, **given)
                args, given = bound.args, bound.kwargs
            try:
                options = build(**given) if given else default
            except TypeError:
                _check_names(function.__name__, given, signature, names)
                raise
            p, q, cost = args
            return function(p, q, cost, options)

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = (function.__doc__ or "").replace("**options\n", ", ".join(one.name for one in named) + "\n")
        return call

    return decorate


def _check_names(name: str, given: dict[str, Any], signature: inspect.Signature, first: list[str]) -> None:
    """Refuse options that a function does not have, and say where the sampler's own are."""
    for one in given:
        if one in first:  # as another argument, by its position, is
            raise TypeError(f"{name}() got multiple values for argument {one!r}")
        if one not in signature.parameters:
            sampler = {"seed": "rng"}.get(one, one)
            hint = f"; expected method=gibbsot.Gibbs({sampler}=...)" if sampler in Gibbs.__dataclass_fields__ else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {one!r}{hint}")
