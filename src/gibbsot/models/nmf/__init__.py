"""Wasserstein NMF."""

from .estimator import WassersteinNMF

__all__ = ["WassersteinNMF"]
