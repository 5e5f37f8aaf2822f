"""Files and checkpoints of `WassersteinNMF`, and the state of a fit that they hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import costs
from ...distributed import checkpoints
from ...distributed.shards import LocalShards, Shards, load_shards
from ...io import npz, schemas
from ...sampling.annealing.adaptive import ModelState
from .. import _base
from .._loop import Epoch
from .fit import Final, FitState
from .online import StreamState
from .shard import MixtureShard

if TYPE_CHECKING:
    from .estimator import WassersteinNMF

_SAVED = ("n", "support", "dtype", "log_components", "best_components")  # fields of a fit's state, as they are


def save(model: WassersteinNMF, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, with its fit unless that is on a cluster or has no data."""
    state = model._run if model.client is None else None
    if state is not None and not all(state.shards.collect(MixtureShard.has_data)):
        state = None  # loaded from a checkpoint and not resumed
    if state is not None:
        state.roll_back()
    arrays = _arrays(model, state)
    for k, shard in enumerate(state.shards.collect(MixtureShard.arrays) if state else ()):
        arrays |= {f"shard{k}_{name}": x for name, x in shard.items()}
    npz.save(path, schemas.NMF, arrays)


def load(kind: type[WassersteinNMF], path: str | os.PathLike[str], client: Any) -> WassersteinNMF:
    """Return the model of a file, or of the last complete checkpoint in a folder."""
    if checkpoints.exist(path):
        return checkpoints.load_last(path, lambda folder: _load_checkpoint(kind, folder, client))
    if not npz.remote(path) and os.path.isdir(path):
        raise ValueError(f"path: {os.fspath(path)} is a folder without a checkpoint; expected one with, or a file")
    arrays = npz.load(path, schemas.NMF)
    with npz.complete(path):
        return _model(kind, arrays, None)


def write_checkpoint(model: WassersteinNMF, state: FitState) -> None:
    """Write a checkpoint of a fit, without the shards if they are written, for the evaluation after the last epoch."""
    assert model.checkpoint is not None
    if state.checkpoint == checkpoints.folder_of(model.checkpoint, len(state.history)):
        _save_model(model, state, state.checkpoint)
        return
    with checkpoints.writing(model.checkpoint, len(state.history), state.checkpoint, state.fit_id) as folder:
        state.checksums = state.shards.save(folder)
        _save_model(model, state, folder)
    state.checkpoint = folder


def _save_model(model: WassersteinNMF, state: FitState, folder: str) -> None:
    """Write the part of a checkpoint without the shards."""
    npz.save(f"{folder}/model.npz", schemas.NMF, _arrays(model, state) | {"checksums": state.checksums})


def _load_checkpoint(kind: type[WassersteinNMF], folder: str, client: Any) -> WassersteinNMF:
    arrays = npz.load(f"{folder}/model.npz", schemas.NMF)
    with npz.complete(folder):
        checksums = arrays["checksums"].tolist()
        model = _model(kind, arrays, load_shards(client, MixtureShard, folder, checksums))
        if model._run is None:
            raise KeyError("the state of the fit")
    whole = folder.rpartition("/")[0]
    model._run.checkpoint, model._run.checksums, model._run.fit_id = folder, checksums, checkpoints.mark(whole)
    model.set_params(client=client, checkpoint=whole)
    return model


def _arrays(model: WassersteinNMF, state: FitState | None) -> dict[str, Any]:
    """Return a model and the state of its fit as arrays, without the shards."""
    arrays: dict[str, Any] = {"components": model.components_, "seed": np.uint64(model.seed_)}
    arrays["n_features"] = model.n_features_in_
    arrays |= {f"cost_{name}": x for name, x in model.cost_.arrays().items()}
    arrays |= _base.saved_parameters(model)
    if model.step_size is not None:
        arrays["parameter_step_size"] = model._step_sizes()
    arrays |= {"n_seen": model.n_seen_, "n_shards": 0}
    if model._stream is not None:
        arrays |= {f"stream_{name}": value for name, value in model._stream.to_arrays().items()}
        arrays["stream_components"] = model._last_components
    if state is not None:
        arrays |= {"n_shards": len(state.shards)}
        arrays |= {f"run_{name}": getattr(state, name) for name in _SAVED}
        arrays |= {f"control_{name}": value for name, value in state.control.to_arrays().items()}
        if state.weights is not None:
            arrays["run_weights"] = state.weights
        arrays["run_mean_components"] = state.mean_components
        arrays["run_algorithm"] = state.algorithm
        arrays["run_final"] = np.array(state.final or (), np.float64)
        arrays["run_published"] = np.array(state.published)
        arrays["run_history"] = np.array(state.history, np.float64).reshape(-1, len(Epoch._fields))
    return arrays


def _model(
    kind: type[WassersteinNMF], arrays: dict[str, NDArray[Any]], shards: Shards[MixtureShard] | None
) -> WassersteinNMF:
    """Return the model that arrays describe; its shards are in them too if they are not given."""
    cost = costs.from_arrays(npz.with_prefix(arrays, "cost_"))
    given = npz.with_prefix(arrays, "parameter_")
    parameters: dict[str, Any] = {name: tuple(x.tolist()) if x.ndim else x.item() for name, x in given.items()}
    parameters.pop("checkpoint", None)
    model = kind(cost=cost, **parameters)
    model._check_parameters()
    if arrays["components"].shape != (model.n_components, int(arrays["n_features"])):
        raise ValueError(f"components: expected {model.n_components} rows of {int(arrays['n_features'])}")
    model.components_, model.cost_, model.seed_ = arrays["components"], cost, int(arrays["seed"])
    model.n_features_in_, model.n_seen_ = int(arrays["n_features"]), int(arrays["n_seen"])
    if cost.shape[0] != model.n_features_in_:
        raise KeyError("an axis of the cost")
    stream = npz.with_prefix(arrays, "stream_")  # none after a fit
    model._run, model._stream = None, StreamState.from_arrays(stream) if stream else None
    if stream:
        model._last_components = stream["components"]
    if not arrays["n_shards"]:
        return model
    if shards is None:
        numbers = range(int(arrays["n_shards"]))
        shards = LocalShards([MixtureShard.from_arrays(npz.with_prefix(arrays, f"shard{k}_")) for k in numbers])
    saved = npz.with_prefix(arrays, "run_")
    values: dict[str, Any] = {name: saved[name] if saved[name].ndim else saved[name].item() for name in _SAVED}
    control = ModelState.from_arrays(npz.with_prefix(arrays, "control_"))
    if not 0 < control.step < np.inf:
        raise ValueError(f"control_step: expected a positive number, got {control.step}")
    history = [Epoch(*row) for row in saved["history"].tolist()]
    final = Final(*saved["final"].tolist()) if len(saved["final"]) else None
    values |= {"mean_components": saved["mean_components"], "algorithm": str(saved["algorithm"])}
    values |= {"weights": saved.get("weights"), "history": history, "final": final}
    values["published"] = float(saved["published"])
    for name in ("log_components", "mean_components", "best_components"):
        if values[name].shape != model.components_.shape:
            raise ValueError(f"run_{name}: expected shape {model.components_.shape}, got {values[name].shape}")
    n, weights = sum(one.n_measures for one in shards.metadata), values["weights"]
    if n != values["n"] or (weights is not None and len(weights) != n):
        raise ValueError(f"run_n: expected {n}, the number of measures in the shards, and as many weights")
    model._run = FitState(shards, units=costs.in_units(cost).single(), control=control, **values)
    model._publish(model._run)
    return model
