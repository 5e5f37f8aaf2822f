from collections.abc import Callable
from typing import Any

def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, ordered: bool = ...) -> Any: ...
