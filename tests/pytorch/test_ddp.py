"""Distributed training: two ranks, each with the state of its own examples."""

from __future__ import annotations

import faulthandler
import os
import traceback
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from cases import measures
from gibbsot import GridCost

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from gibbsot.torch import WassersteinLoss  # noqa: E402

GRID = GridCost((4, 5))
PATIENCE = 120  # seconds for a rank, which takes one after its imports
OPTIONS = {"exact": {}, "gibbs": {"method": "gibbs", "temperature": 0.01}}


def trained(network: torch.nn.Module, index: Tensor, method: str) -> WassersteinLoss:
    """Two steps on some of four examples."""
    loss = WassersteinLoss(GRID, from_logits=True, **OPTIONS[method])
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    rng = np.random.default_rng(0)
    x, q = (torch.from_numpy(measures(rng, 4, 20, zeros=0.3)).float()[index] for _ in range(2))
    for _ in range(2):
        optimiser.zero_grad()
        loss(network(x), q, index).backward()
        optimiser.step()
    return loss


def ranked(rank: int, folder: Path, method: str) -> None:
    """One of two processes, with examples of its own; a rank that waits too long says where, and ends."""
    with open(folder / f"log{rank}", "w") as log:
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=log)
        try:
            store = torch.distributed.FileStore(str(folder / "store"), 2)
            patience = timedelta(seconds=PATIENCE)
            torch.distributed.init_process_group("gloo", store=store, timeout=patience, world_size=2, rank=rank)
            torch.manual_seed(rank)  # DDP starts all from the weights of rank 0
            network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
            loss = trained(network, torch.arange(4).chunk(2)[rank], method)
            layer, state = network.module, loss.store
            arrays = {"weight": layer.weight.detach().numpy(), "grad": layer.weight.grad.numpy()}
            np.savez(folder / f"rank{rank}", ids=list(state), buffers=len(list(loss.buffers())), **arrays)
            store.set(f"done {rank}", "")
            store.wait(["done 0", "done 1"])
        except BaseException:
            traceback.print_exc(file=log)
            log.flush()
            os._exit(1)
    # Not destroy_process_group, nor the ordinary end: where the network outlives the group, the group ends with the
    # network's Reducer, which waits for Gloo's threads with the interpreter's lock held, while one of them may wait for
    # that lock to let go of the last sum. That is PyTorch's, with any loss.
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch is not distributed")
def test_distributed_data_parallel(tmp_path, method):
    """Each rank keeps the duals or chains of its examples, and two ranks learn what one does."""
    ranks = [get_context("spawn").Process(target=ranked, args=(rank, tmp_path, method)) for rank in range(2)]
    try:
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(2 * PATIENCE)
        logs = "\n".join(path.read_text() for path in sorted(tmp_path.glob("log*")))
        assert [process.exitcode for process in ranks] == [0, 0], logs
    finally:
        for process in ranks:
            process.kill()
            process.join()
    first, other = (np.load(tmp_path / f"rank{rank}.npz") for rank in range(2))
    assert (first["ids"].tolist(), other["ids"].tolist()) == ([0, 1], [2, 3])
    assert first["buffers"] == 0, "state of examples is in no buffer, so no rank is sent another's"
    for name in ("weight", "grad"):
        np.testing.assert_array_equal(first[name], other[name])
    torch.manual_seed(0)
    network = torch.nn.Linear(20, 20)
    trained(network, torch.arange(4), method)
    np.testing.assert_allclose(first["weight"], network.weight.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(first["grad"], network.weight.grad.numpy(), atol=1e-5)
