"""`gudhi.wasserstein` on the exact engine: the distance of `gibbsot.diagrams` has GUDHI's arguments and results."""

from ..diagrams import wasserstein_distance

__all__ = ["wasserstein_distance"]
