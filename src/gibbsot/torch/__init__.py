"""Wasserstein losses and exact couplings for PyTorch (the extra ``torch``)."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("gibbsot.torch needs PyTorch: pip install 'gibbsot[torch]'") from None

from .clouds import SamplesLoss
from .couplings import Plan, exact_plan
from .functional import wasserstein
from .grids import ImagesLoss, VolumesLoss
from .losses import WassersteinLoss
from .schedulers import GibbsTemperature

__all__ = [
    "GibbsTemperature",
    "ImagesLoss",
    "Plan",
    "SamplesLoss",
    "VolumesLoss",
    "WassersteinLoss",
    "exact_plan",
    "wasserstein",
]
