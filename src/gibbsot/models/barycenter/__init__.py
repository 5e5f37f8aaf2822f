"""Wasserstein barycenters."""

from .estimator import WassersteinBarycenter

__all__ = ["WassersteinBarycenter"]
