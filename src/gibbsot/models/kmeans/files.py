"""Checkpoints of `WassersteinKMeans`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import costs
from ...distributed import checkpoints
from ...distributed.shards import load_shards
from ...io import npz, schemas
from .. import _base
from .assignment import Iteration, SolvedProblems
from .shard import KMeansShard

if TYPE_CHECKING:
    from .estimator import Fit, WassersteinKMeans

_PUBLISHED = ("labels_", "counts_", "inertia_", "inertia_bounds_", "centroid_gaps_", "n_relocated_", "n_iter_")


@dataclass
class Written:
    """The last checkpoint of a fit: its folder, the checksums of its shards, and the id that it carries."""

    folder: str = ""
    checksums: list[str] = field(default_factory=list)
    fit_id: str = ""


def write(model: WassersteinKMeans, fit: Fit) -> None:
    """Write a checkpoint of a fit, without the shards if they are written."""
    assert model.checkpoint is not None
    folder = checkpoints.folder_of(model.checkpoint, fit.assignments)
    if fit.files.folder == folder:
        _save_model(model, fit, folder)
        return
    with checkpoints.writing(model.checkpoint, fit.assignments, fit.files.folder, fit.files.fit_id):
        fit.files.checksums = fit.shards.save(folder)
        _save_model(model, fit, folder)
    fit.files.folder = folder


def _save_model(model: WassersteinKMeans, fit: Fit, folder: str) -> None:
    """Write the part of a checkpoint without the shards."""
    parts = model._parts if model._several else [model]
    arrays = {f"model_{name}": getattr(model, name) for name in _PUBLISHED}
    arrays |= {"model_history": of_history(model.history_), "model_solved": list(vars(model.solved_).values())}
    arrays |= {"columns": [part.n_features_in_ for part in parts], "checksums": fit.files.checksums}
    arrays |= _of_centres(model, model.cluster_centers_, "model_centre")
    centres = [fit.run.centroids.get(k) for k in range(model.n_clusters)]
    arrays |= _of_centres(model, model._published(centres), "fit_centre")
    for a, part in enumerate(parts):
        cost = getattr(part, "cost_", None)
        arrays |= {f"cost{a}_{name}": x for name, x in ({} if cost is None else cost.arrays()).items()}
    arrays |= _base.saved_parameters(model)
    if model.cost_weights is not None:
        arrays["cost_weights"] = np.asarray(model.cost_weights, np.float64)
    arrays |= {f"fit_{name}": x for name, x in fit.arrays().items()}
    npz.save(f"{folder}/model.npz", schemas.KMEANS, arrays)


def load(kind: type[WassersteinKMeans], folder: str, client: Any) -> WassersteinKMeans:
    """Return the model of a checkpoint."""
    arrays = npz.load(f"{folder}/model.npz", schemas.KMEANS)
    with npz.complete(folder):
        parameters = {name: x.item() for name, x in npz.with_prefix(arrays, "parameter_").items()}
        every = _costs_of(arrays)
        several = len(every) > 1 or "cost_weights" in arrays
        given = dict(parameters, cost=every if several else every[0], cost_weights=arrays.get("cost_weights"))
        model = kind(client=client, checkpoint=folder.rpartition("/")[0], **given)
        model._check_parameters()
        _publish(model, arrays)
    return model


def load_fit(model: WassersteinKMeans, folder: str) -> _base.SavedFit:
    """Return the fit in a checkpoint, and set the attributes of its model."""
    arrays = npz.load(f"{folder}/model.npz", schemas.KMEANS)
    with npz.complete(folder):
        checksums = arrays["checksums"].tolist()
        _publish(model, arrays)
        state = npz.with_prefix(arrays, "fit_")
        state["centres"] = _centres_of(model, arrays, "fit_centre")
        shards = load_shards(model.client, KMeansShard, folder, checksums)
    return _base.SavedFit(shards, state, folder, checksums)


def _publish(model: WassersteinKMeans, arrays: dict[str, Any]) -> None:
    """Set the attributes of a model to those in a checkpoint."""
    if model._several:
        model._parts = model._new_parts()
    parts = model._parts if model._several else [model]
    for part, cost, n in zip(parts, _costs_of(arrays), arrays["columns"].tolist(), strict=True):
        part.n_features_in_ = n
        if cost is not None:
            part.cost_ = cost
    for name in _PUBLISHED:
        x = arrays[f"model_{name}"]
        setattr(model, name, x if x.ndim else x.item())
    lower, upper = arrays["model_inertia_bounds_"].tolist()
    model.inertia_bounds_ = lower, upper
    model.history_ = history_of(arrays["model_history"])
    model.solved_ = SolvedProblems(*arrays["model_solved"].tolist())
    model.cluster_centers_ = _centres_of(model, arrays, "model_centre")
    if model._several:
        model.n_features_in_ = sum(part.n_features_in_ for part in parts)
        model.cost_ = [getattr(part, "cost_", None) for part in parts]
    if model.support == "free":
        centres = model.cluster_centers_ if model._several else [model.cluster_centers_]
        for part, own in zip(parts, centres, strict=True):
            part._dimension = own[0][0].shape[1]


def _costs_of(arrays: dict[str, Any]) -> list[Any]:
    """Return the cost of each part; None for clouds."""
    every = (npz.with_prefix(arrays, f"cost{a}_") for a in range(len(arrays["columns"])))
    return [costs.from_arrays(one) if one else None for one in every]


def _of_centres(model: WassersteinKMeans, centres: Any, name: str) -> dict[str, Any]:
    """Return centroids as arrays: rows, or the points and the weights of each."""
    arrays: dict[str, Any] = {}
    for a, own in enumerate(centres if model._several else [centres]):
        if model.support == "fixed":
            arrays[f"{name}{a}"] = own
        else:
            for k, (points, weights) in enumerate(own):
                arrays |= {f"{name}{a}_points{k}": points, f"{name}{a}_weights{k}": weights}
    return arrays


def _centres_of(model: WassersteinKMeans, arrays: dict[str, Any], name: str) -> Any:
    """Return the centroids in their public form."""
    found: list[Any] = []
    for a in range(len(arrays["columns"])):
        if model.support == "fixed":
            found.append(arrays[f"{name}{a}"])
        else:
            ks = range(len(arrays["model_counts_"]))
            found.append([(arrays[f"{name}{a}_points{k}"], arrays[f"{name}{a}_weights{k}"]) for k in ks])
    return found if model._several else found[0]


def of_history(history: list[Iteration]) -> NDArray[np.float64]:
    """Return records as rows."""
    rows = [(one.inertia, one.changed, *vars(one.solved).values(), one.seconds) for one in history]
    return np.array(rows, np.float64).reshape(-1, 7)


def history_of(rows: NDArray[np.float64]) -> list[Iteration]:
    """Return the records of rows."""
    return [
        Iteration(inertia, int(changed), SolvedProblems(*map(int, solved)), seconds)
        for inertia, changed, *solved, seconds in rows.tolist()
    ]
