from . import Optimizer

class LRScheduler:
    def step(self) -> None: ...

class CosineAnnealingLR(LRScheduler):
    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = ...) -> None: ...
