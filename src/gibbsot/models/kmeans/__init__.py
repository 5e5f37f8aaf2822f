"""k-means of measures with transport costs."""

from .estimator import WassersteinKMeans

__all__ = ["WassersteinKMeans"]
