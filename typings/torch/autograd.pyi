from collections.abc import Sequence
from typing import Any

from . import Tensor

class Function:
    @classmethod
    def apply(cls, *args: Any) -> Any: ...

def backward(tensors: Tensor | Sequence[Tensor], grad_tensors: Any = ...) -> None: ...
def grad(outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]: ...
