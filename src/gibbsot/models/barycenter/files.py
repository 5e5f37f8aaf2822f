"""Checkpoints of `WassersteinBarycenter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import costs
from ...distributed import checkpoints
from ...distributed.shards import load_shards
from ...io import npz, schemas
from .. import _base
from .._loop import Epoch
from .shard import BarycenterShard

if TYPE_CHECKING:
    from .estimator import WassersteinBarycenter
    from .fit import Fit

_PUBLISHED = ("barycenter_", "objective_", "lower_bound_", "gap_", "status_", "n_iter_", "n_features_in_")


def write(model: WassersteinBarycenter, fit: Fit) -> None:
    """Write a checkpoint of a fit, without the shards if they are written."""
    assert model.checkpoint is not None
    folder = checkpoints.folder_of(model.checkpoint, len(fit.history))
    if fit.checkpoint == folder:
        _save_model(model, fit, folder)
        return
    with checkpoints.writing(model.checkpoint, len(fit.history), fit.checkpoint, fit.fit_id):
        fit.checksums = fit.objective.shards.save(folder)
        _save_model(model, fit, folder)
    fit.checkpoint = folder


def _save_model(model: WassersteinBarycenter, fit: Fit, folder: str) -> None:
    """Write the part of a checkpoint without the shards."""
    arrays = {f"model_{name}": getattr(model, name) for name in _PUBLISHED}
    arrays |= {f"cost_{name}": x for name, x in model.cost_.arrays().items()}
    arrays |= _base.saved_parameters(model)
    arrays |= {f"fit_{name}": x for name, x in fit.arrays().items()}
    arrays |= {"history": np.array(fit.history, np.float64), "checksums": fit.checksums}
    npz.save(f"{folder}/model.npz", schemas.BARYCENTER, arrays)


def load(kind: type[WassersteinBarycenter], folder: str, client: Any) -> WassersteinBarycenter:
    """Return the model of a checkpoint."""
    arrays = npz.load(f"{folder}/model.npz", schemas.BARYCENTER)
    with npz.complete(folder):
        parameters = {name: x.item() for name, x in npz.with_prefix(arrays, "parameter_").items()}
        cost = costs.from_arrays(npz.with_prefix(arrays, "cost_"))
        model = kind(cost, client=client, checkpoint=folder.rpartition("/")[0], **parameters)
        model._check_parameters()
        _publish(model, arrays)
    return model


def load_fit(model: WassersteinBarycenter, folder: str) -> _base.SavedFit:
    """Return the fit in a checkpoint, and set the attributes of its model."""
    arrays = npz.load(f"{folder}/model.npz", schemas.BARYCENTER)
    with npz.complete(folder):
        checksums = arrays["checksums"].tolist()
        shards = load_shards(model.client, BarycenterShard, folder, checksums)
        _publish(model, arrays)
    return _base.SavedFit(shards, npz.with_prefix(arrays, "fit_"), folder, checksums)


def _publish(model: WassersteinBarycenter, arrays: dict[str, Any]) -> None:
    """Set the attributes of a model to those in a checkpoint."""
    model.cost_ = costs.from_arrays(npz.with_prefix(arrays, "cost_"))
    model.history_ = [Epoch(*row) for row in arrays["history"].tolist()]
    for name in _PUBLISHED:
        x = arrays[f"model_{name}"]
        setattr(model, name, x if x.ndim else x.item())
