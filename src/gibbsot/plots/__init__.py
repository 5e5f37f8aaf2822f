"""Figures with matplotlib (the extra ``plots``), and the colours that all figures of the package use."""

from .fits import components, convergence, profiles, reconstruction
from .geometry import cluster_order, geodesics, heat_map, plane, thumbnails
from .plans import displacements, plan, projections
from .results import principal_plane, transport
from .runs import diagnostics
from .style import DARK_GREY, GREEN, GREY, PALE_GREEN, PALE_GREY, PALE_PINK, PINK, hide_spines, legend_below, new_figure

__all__ = [
    "DARK_GREY",
    "GREEN",
    "GREY",
    "PALE_GREEN",
    "PALE_GREY",
    "PALE_PINK",
    "PINK",
    "cluster_order",
    "components",
    "convergence",
    "diagnostics",
    "displacements",
    "geodesics",
    "heat_map",
    "hide_spines",
    "legend_below",
    "new_figure",
    "plan",
    "plane",
    "principal_plane",
    "profiles",
    "projections",
    "reconstruction",
    "thumbnails",
    "transport",
]
