from collections.abc import Iterable
from typing import Any

from .. import Tensor
from . import lr_scheduler as lr_scheduler

class Optimizer:
    param_groups: list[dict[str, Any]]
    def step(self) -> None: ...
    def zero_grad(self) -> None: ...

class Adam(Optimizer):
    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float = ..., betas: tuple[float, float] = ...
    ) -> None: ...
