from typing import Any

gibbsot: Any  # operators that the package registers
