from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

def is_compiling() -> bool: ...
def assume_constant_result(function: Callable[_P, _T]) -> Callable[_P, _T]: ...
