"""Fits on clusters of processes: bit-identical to fits in one process, also where workers and clients die.

Kills between commands, of the scheduler and of two workers, and workers that join late, are in `test_faults`.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from fits import same_fit, same_nmf
from gibbsot import GridCost
from gibbsot.distributed.worker import Call
from gibbsot.io import readers
from gibbsot.models.barycenter.estimator import WassersteinBarycenter
from gibbsot.models.barycenter.shard import BarycenterShard
from gibbsot.models.kmeans import WassersteinKMeans
from gibbsot.models.kmeans.shard import KMeansShard
from gibbsot.models.nmf.estimator import WassersteinNMF
from gibbsot.models.nmf.shard import MixtureShard

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

from gibbsot.distributed import dask as bridge  # noqa: E402

# What Dask says of workers that die, and of its own sockets, is not ours to fix.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning"),  # of short fits
    pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by a signal"),
]

SIDE = 6
OPTIONS = {
    "n_components": 3, "cost": GridCost((SIDE, SIDE)), "max_epochs": 14, "tau": 3, "random_state": 0, "update": "full",
    "batch_size": 4,
}  # fmt: skip


def data(n: int = 30) -> np.ndarray:
    X = np.random.default_rng(0).random((n, SIDE * SIDE)) ** 4
    X[X < 0.1] = 0
    return X


X = data()
CUTS = {"one": [], "even": [10, 20], "uneven, one empty": [1, 1, 26], "many": [3, 7, 12, 13, 20, 28]}


def shards(cuts: str = "even") -> list[np.ndarray]:
    return np.split(X, CUTS[cuts])


@pytest.fixture(scope="module")
def alone() -> WassersteinNMF:
    """In this process, all data at once."""
    return WassersteinNMF(**OPTIONS).fit(X)


@pytest.fixture(scope="module", autouse=True)
def without_torch():
    """POT would load it in every worker, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POT_BACKEND_DISABLE_PYTORCH", "1")
        yield


def cluster(workers: int, threads: int = 1):
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
    )


@pytest.fixture(scope="module")
def client():
    """Three processes, one of them with more to do than the others."""
    with cluster(3) as three, distributed.Client(three) as found:
        yield found


@pytest.mark.parametrize("cuts", CUTS)
def test_shards_in_one_process(alone, cuts):
    same_nmf(WassersteinNMF(**OPTIONS).fit(shards(cuts)), alone)
    same_nmf(WassersteinNMF(**OPTIONS | {"batch_size": 100}, n_jobs=2).fit(shards(cuts)), alone)


@pytest.mark.parametrize("cuts", CUTS)
def test_three_workers(client, alone, cuts):
    model = WassersteinNMF(**OPTIONS, client=client).fit(shards(cuts))
    same_nmf(model, alone)
    assert isinstance(model.memberships_, da.Array)
    assert model.memberships_.chunks[0] == tuple(len(shard) for shard in shards(cuts) if len(shard))


@pytest.mark.slow
def test_two_workers_of_two_threads(alone):
    with cluster(2, 2) as two, distributed.Client(two) as client:
        same_nmf(WassersteinNMF(**OPTIONS, client=client, n_jobs=2).fit(shards("many")), alone)


@pytest.mark.parametrize(
    "options", [{"update": "online"}, *({"algorithm": name, "tau": None} for name in ("paper", "d2suite"))], ids=str
)
def test_all_ways_to_fit(client, options):
    both = [WassersteinNMF(**OPTIONS | options, client=one).fit(shards("many")) for one in (None, client)]
    same_nmf(*both)


def test_data_of_every_kind(client, alone, tmp_path):
    """Dask arrays, sparse shards, files that workers read; and what they are transformed to."""
    blocks = da.from_array(X, chunks=(7, 20))
    model = WassersteinNMF(**OPTIONS, client=client).fit(blocks)
    same_nmf(model, alone)
    np.testing.assert_array_equal(model.transform(blocks).compute(), alone.transform(X))
    same_nmf(WassersteinNMF(**OPTIONS).fit(blocks), alone)
    files = []
    for k, shard in enumerate(shards()):
        if k:
            files.append(tmp_path / f"{k}.npy")
            np.save(files[-1], shard)
        else:
            files.append(str(tmp_path / f"{k}.npz"))
            sparse.save_npz(files[-1], sparse.csr_array(shard))
    same_nmf(WassersteinNMF(**OPTIONS, client=client).fit(files), alone)
    same_nmf(WassersteinNMF(**OPTIONS).fit([sparse.csr_array(shard) for shard in shards()]), alone)
    delayed = [dask.delayed(shard) for shard in shards()]
    for where in (None, client):
        same_nmf(WassersteinNMF(**OPTIONS, client=where).fit(delayed), alone)
    np.testing.assert_array_equal(alone.transform(shards()), alone.transform(X))
    whole = da.from_array((100 * X).astype(int), chunks=(9, -1))
    assert alone.transform(whole).dtype == alone.transform(whole).compute().dtype == np.float64
    with pytest.raises(ValueError, match="expected 36 columns as in the fit"):
        alone.transform(blocks[:, 1:])


def prolonged(first: int) -> WassersteinNMF:
    """A fit in this process that ended and was then resumed with more epochs."""
    return WassersteinNMF(**OPTIONS | {"max_epochs": first}).fit(X).set_params(max_epochs=14).resume(X)


def test_resume_and_prolong(client):
    model = WassersteinNMF(**OPTIONS | {"max_epochs": 5}, client=client).fit(shards())
    same_nmf(model.set_params(max_epochs=14).resume(shards()), prolonged(5))
    with pytest.raises(ValueError, match="X: differs from the data of the fit"):
        model.resume(shards("many"))


class Dies:
    """Kills the worker of shard 1 once, in its fourth call of a method: before, within or after it."""

    def __init__(self, moment: str, marker: Path, kind: type = MixtureShard, method: str = "epoch") -> None:
        self.moment, self.marker, self.kind, self.method = moment, str(marker), kind, method

    def __call__(self) -> None:
        """Prepare a worker."""
        from gibbsot.oracle.chains import TargetChains

        usual, calls = getattr(self.kind, self.method), []

        def die() -> None:
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

        def called(shard, *args):
            calls.append(shard.number)
            doomed = calls.count(1) == 4 and shard.number == 1 and not os.path.exists(self.marker)
            if doomed and self.moment == "before":
                die()
            if doomed and self.moment == "within":  # when chains have changed, and memberships have not
                for name in ("_run", "_mixture_part"):
                    advance = getattr(TargetChains, name)
                    setattr(TargetChains, name, lambda *a, advance=advance, **b: (advance(*a, **b), die())[0])
            found = usual(shard, *args)
            if doomed and self.moment == "after":
                die()
            return found

        setattr(self.kind, self.method, called)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "checkpoints"), [("before", False), ("within", False), ("within", True), ("after", True)]
)
def test_a_worker_is_killed(alone, tmp_path, moment, checkpoints):
    options = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e-3} if checkpoints else {}
    with cluster(2) as two, distributed.Client(two) as client:
        client.run(Dies(moment, tmp_path / "marker"))
        before = set(client.nthreads())
        model = WassersteinNMF(**OPTIONS, client=client, **options).fit(shards())
        assert (tmp_path / "marker").exists()
        assert set(client.nthreads()) != before
        same_nmf(model, alone)


class Slow:
    """An answer that takes longer to travel than the client waits before it looks at the workers."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __add__(self, other: Slow) -> Slow:
        return Slow(self.number + other.number)

    def __reduce__(self):
        time.sleep(0.5)
        return Slow, (self.number,)


def test_an_answer_that_travels_slowly_arrives(client, monkeypatch):
    monkeypatch.setattr(bridge, "_POLL_SECONDS", 0.05)
    found = bridge.DaskShards(client, MixtureShard, shards())
    client.run(slow_metadata)
    try:
        begun = time.monotonic()
        assert [one.number for one in found._answers(Call("slow", (), {}))] == [0, 1, 2]
        assert time.monotonic() - begun >= 0.5
    finally:
        found.close()


def test_a_long_wait_is_logged(client, monkeypatch, caplog):
    monkeypatch.setattr(bridge, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(bridge, "_LOG_SECONDS", 0.1)
    found = bridge.DaskShards(client, MixtureShard, shards())
    client.run(slow_metadata)
    try:
        found._answers(Call("slow", (), {}))
    finally:
        found.close()
    assert "waiting for answers since 0 s" in caplog.text


def test_no_silence_while_all_workers_are_gone(alone, tmp_path, monkeypatch, caplog):
    """As after Dask's own timeout: a log line, a warning, and an error that says how to go on."""
    monkeypatch.setattr(bridge, "_ALONE_SECONDS", (0.1, 0.5, 0.3))
    monkeypatch.setattr(bridge, "_CLOSED_SECONDS", 1.5)
    folder = tmp_path / "run"
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "0.01 s"}), cluster(2) as two:
        nannies = list(two.workers.values())

        def kill_all(model):
            if model.n_iter_ == 3:
                for nanny in nannies:
                    nanny.auto_restart = False
                    os.kill(nanny.pid, signal.SIGKILL)

        with distributed.Client(two) as client:
            often = {"checkpoint": folder, "checkpoint_seconds": 1e-3, "callbacks": [kill_all]}
            begun = time.monotonic()
            hint = r"no worker was running for 2 s, .*with a checkpoint, .*load it .*resume the fit"
            with (
                pytest.warns(RuntimeWarning, match="no worker is running since .* waits for one, for 2 s at most"),
                pytest.raises(ConnectionError, match=hint),
            ):
                WassersteinNMF(**OPTIONS, client=client, **often).fit(shards())
            assert time.monotonic() - begun < 60
    assert "no worker is running since 0 s" in caplog.text
    model = WassersteinNMF.load(folder).set_params(callbacks=())
    same_nmf(model.resume(shards()), alone)


def test_a_cluster_that_may_start_workers_is_given_more_time(client):
    found = bridge.DaskShards(client, MixtureShard, shards())
    try:
        assert not found._starts_no_workers()
    finally:
        found.close()


def listening(process) -> set[str]:
    """Return the addresses on which a process and its children listen."""
    psutil = pytest.importorskip("psutil")
    found = set()
    for one in (process, *process.children(recursive=True)):
        connections = getattr(one, "net_connections", getattr(one, "connections", None))
        with contextlib.suppress(psutil.Error):
            found |= {
                c.laddr.ip for c in connections(kind="inet") if c.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)
            }
    return found


def test_the_command_line_listens_on_the_loopback_only(tmp_path):
    """Who can connect to Dask can run code: no socket of the process or its workers is open to other machines."""
    psutil = pytest.importorskip("psutil")
    pytest.importorskip("typer")
    np.save(tmp_path / "X.npy", X)
    words = ["nmf", tmp_path / "X.npy", "--components", 3, "--workers", 2, "--epochs", 10**6, "--out", tmp_path / "out"]
    code = "import sys; from gibbsot.cli import main; sys.exit(main(sys.argv[1:]))"
    run = [sys.executable, "-c", code, *map(str, words), "--checkpoint", "0"]
    with subprocess.Popen(run, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while not list(tmp_path.glob("out/checkpoints/epoch-*/model.npz")):  # all is running
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            found = listening(psutil.Process(process.pid))
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
    assert found == {"127.0.0.1"}


def test_placement_counts_rows(client):
    """One large shard is alone on its worker, although there are as many small ones as on the others together."""
    found = bridge.DaskShards(client, MixtureShard, np.split(X, [20, 22, 24, 26, 28]))
    try:
        assert found._sizes == [21, 3, 3, 3, 3, 3]
        assert found._addresses.count(found._addresses[0]) == 1
        assert len(set(found._addresses)) == 3
    finally:
        found.close()


@pytest.mark.filterwarnings("ignore:the certified gap")
def test_weights_are_sent_to_the_shards_that_need_them(client, monkeypatch):
    sent, usual = [], client.submit

    def submit(function, *args, **options):
        for x in args:
            call = x[1] if isinstance(x, tuple) and len(x) == 2 else None
            if isinstance(call, Call) and call.method == "set_weights":
                sent.append((sorted(call.args[0].pieces), sorted(key[2] for key in args[0])))
        return usual(function, *args, **options)

    monkeypatch.setattr(client, "submit", submit)
    options = {"cost": GridCost((SIDE, SIDE)), "max_epochs": 1, "tau": 1, "random_state": 0}
    WassersteinBarycenter(**options, client=client).fit(shards("many"), sample_weight=1 + np.arange(30))
    assert len(sent) == 3
    assert all(pieces == numbers for pieces, numbers in sent)
    assert sorted(number for pieces, _ in sent for number in pieces) == list(range(7))


def test_a_checkpoint_that_fails_on_a_cluster_is_a_warning(client, alone, tmp_path):
    """And the next one is written."""
    folder = tmp_path / "run"

    def obstruct(model):
        if model.n_iter_ == 3:
            checkpoint = folder / "epoch-00000004"
            checkpoint.write_text("a file in the place of a folder")
        elif model.n_iter_ == 4:
            checkpoint = folder / "epoch-00000004"
            assert checkpoint.is_file()
            checkpoint.unlink()

    often = {"checkpoint": folder, "checkpoint_seconds": 1e-3, "callbacks": [obstruct]}
    with pytest.warns(RuntimeWarning, match="a checkpoint could not be written") as told:
        model = WassersteinNMF(**OPTIONS, client=client, **often).fit(shards())
    assert len([one for one in told if "could not be written" in str(one.message)]) == 1
    same_nmf(model, alone)
    assert sorted(path.name for path in folder.glob("epoch-*")) == ["epoch-00000013", "epoch-00000014"]


def test_resume_reads_the_data_once(tmp_path, monkeypatch):
    """A checkpoint has none; the files are read by `resume` and not by `load`."""
    files = []
    for k, shard in enumerate(shards()):
        files.append(tmp_path / f"{k}.npy")
        np.save(files[-1], shard)
    options = OPTIONS | {"max_epochs": 3, "checkpoint": tmp_path / "run", "checkpoint_seconds": 1e-3}
    WassersteinNMF(**options).fit(files)
    read, usual = [], readers.matrix

    def matrix(path):
        read.append(path)
        return usual(path)

    monkeypatch.setattr(readers, "matrix", matrix)
    model = WassersteinNMF.load(tmp_path / "run").set_params(max_epochs=6)
    assert model.memberships_.shape == (30, 3)
    assert not read
    model.save(tmp_path / "model.npz")  # without the fit, whose data are not here
    with pytest.raises(ValueError, match="resume: this model has no fit to continue"):
        WassersteinNMF.load(tmp_path / "model.npz").resume(X)
    model.resume(files)
    assert read == files
    with pytest.raises(ValueError, match=r"X: differs from the data of the fit \(shard 2\)"):
        model.resume([*files[:2], files[0]])


def slow_metadata() -> None:
    """Give shards a query with a slow answer; runs on a worker."""
    from gibbsot.models.nmf.shard import MixtureShard

    MixtureShard.slow = lambda self: Slow(self.number)


def pause(dask_worker) -> None:
    """Do what Dask does at the memory limit, for good; runs on a worker."""
    dask_worker.memory_manager.memory_pause_fraction = False
    dask_worker.status = distributed.Status.paused


@pytest.mark.slow
def test_shards_of_a_paused_worker_move(alone, caplog):
    with cluster(2) as two, distributed.Client(two) as client:
        paused = []

        def stop_one(model):
            if model.n_iter_ == 4 and not paused:
                paused.append(model._run.shards._addresses[1])
                client.run(pause, workers=paused)

        model = WassersteinNMF(**OPTIONS, client=client, callbacks=[stop_one]).fit(shards())
        same_nmf(model, alone)
        assert paused[0] not in model._run.shards._addresses
        assert f"{paused[0]} paused" in caplog.text


@pytest.mark.slow
def test_if_all_workers_are_paused_the_error_names_the_memory(monkeypatch):
    monkeypatch.setattr(bridge, "_PAUSED_SECONDS", 1.0)
    with cluster(1) as one, distributed.Client(one) as client:
        stop = lambda _: client.run(pause)  # noqa: E731
        with pytest.raises(MemoryError, match="all workers are paused because of their memory"):
            WassersteinNMF(**OPTIONS, client=client, callbacks=[stop]).fit(shards())


def test_a_task_that_runs_out_of_time_is_an_error(client):
    late = dask.delayed(lambda: (_ for _ in ()).throw(TimeoutError("too late")))()
    with pytest.raises(TimeoutError, match="too late"):
        WassersteinNMF(**OPTIONS, client=client).fit([late, late])


def test_an_answer_whose_connection_closes_is_requested_again(client, alone, monkeypatch):
    closed, usual = [], client.gather

    def gather(tasks, **options):
        if len(closed) < 2:
            closed.append(tasks)
            raise distributed.comm.CommClosedError("Stream is closed")
        return usual(tasks, **options)

    monkeypatch.setattr(client, "gather", gather)
    same_nmf(WassersteinNMF(**OPTIONS, client=client).fit(shards()), alone)
    assert len(closed) == 2


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["gather", "scatter", "run_on_scheduler"])
def test_a_scheduler_that_leaves_during_a_call_is_an_error_with_a_hint(client, monkeypatch, name, known):
    def leave(*_, **__):
        if known:
            monkeypatch.setattr(client, "status", "connecting")
        else:  # the client has not noticed yet when the call fails
            monkeypatch.setattr(client, "run_on_scheduler", leave)
        raise distributed.comm.CommClosedError("Stream is closed")

    monkeypatch.setattr(client, name, leave)
    with pytest.raises(ConnectionError, match="load it with a new client and resume the fit"):
        WassersteinNMF(**OPTIONS, client=client).fit(shards())


def held(client) -> int:
    return sum(client.run(lambda: len(__import__("gibbsot.distributed.worker", fromlist=["entries"]).entries)).values())


def test_memory_is_given_back(client):
    """After a barycenter, a resume, a fit that replaces another, and a client that is gone."""
    with distributed.Client(client.scheduler.address) as other:
        forgotten = WassersteinNMF(**OPTIONS | {"max_epochs": 1}, client=other).fit(shards())
        assert held(client) >= 3
        assert forgotten.client is other
    gc.collect()
    model = WassersteinNMF(**OPTIONS | {"max_epochs": 1}, client=client).fit(shards())
    assert held(client) == 3
    model.set_params(max_epochs=2).resume(shards())
    assert held(client) == 3
    WassersteinBarycenter(model.cost, max_epochs=1, client=client).fit(shards())
    assert held(client) == 3
    model.fit(shards("one"))
    assert held(client) == 1
    with pytest.raises(ValueError, match="negative weights"):
        WassersteinNMF(**OPTIONS, client=client).fit([X, -X])
    assert held(client) == 1


SCRIPT = """
import sys, time, distributed
from gibbsot import WassersteinNMF
sys.path[:0] = sys.argv[3:]
from test_dask import OPTIONS, shards
if __name__ == "__main__":
    client = distributed.Client(sys.argv[1])
    options = {"checkpoint": sys.argv[2], "checkpoint_seconds": 1e-3, "callbacks": [lambda _: time.sleep(0.2)]}
    WassersteinNMF(**OPTIONS, **options, client=client).fit(shards())
"""


@pytest.mark.parametrize("damage", ["none", "a shard", "the model", "all shards of the last"])
@pytest.mark.parametrize("url", [False, True], ids=["path", "URL"])
def test_the_client_is_killed(client, alone, tmp_path, damage, url):
    """Another one resumes from the last checkpoint, or from the one before it if that is damaged."""
    if url and damage != "a shard":
        pytest.skip("one is enough")
    folder = tmp_path / "run"
    where = folder.as_uri() if url else str(folder)
    words = [sys.executable, "-c", SCRIPT, client.scheduler.address, where, *map(str, Path(__file__).parents[:2])]
    with subprocess.Popen(words) as process:
        deadline = time.monotonic() + 60
        while len(list(folder.glob("epoch-*/model.npz"))) != 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    names = sorted(path.name for path in folder.glob("epoch-*/"))
    last = max(path.parent for path in folder.glob("epoch-*/model.npz"))
    if damage == "a shard":
        content = (last / "shard-00001.npz").read_bytes()
        (last / "shard-00001.npz").write_bytes(content[:-100])
    elif damage == "the model":
        content = bytearray((last / "model.npz").read_bytes())
        content[len(content) // 2] ^= 255
        (last / "model.npz").write_bytes(content)
    elif damage != "none":
        for path in last.glob("shard*"):
            path.unlink()
    if damage == "none" and names[-1] == last.name:
        model = WassersteinNMF.load(where, client=client)
    else:
        with pytest.warns(UserWarning, match="is damaged or not complete"):
            model = WassersteinNMF.load(where, client=client)
    assert 1 <= model.n_iter_ <= int(last.name[6:])
    assert (model.n_iter_ < int(last.name[6:])) == (damage != "none")
    same_nmf(model.resume(shards()), alone)
    assert sorted(path.name for path in folder.glob("epoch-*")) == ["epoch-00000013", "epoch-00000014"]
    same_nmf(WassersteinNMF.load(where), alone)


def test_checkpoints_in_one_process(tmp_path):
    folder = tmp_path / "run"
    model = WassersteinNMF(**OPTIONS | {"max_epochs": 6}, checkpoint=folder, checkpoint_seconds=1e-6).fit(shards())
    assert sorted(path.name for path in folder.glob("epoch-*")) == ["epoch-00000005", "epoch-00000006"]
    with pytest.raises(ValueError, match="has checkpoints of another fit"):
        WassersteinNMF(**OPTIONS, checkpoint=folder).fit(shards())
    loaded = WassersteinNMF.load(folder)
    same_nmf(loaded, model)
    assert loaded.checkpoint == str(folder)
    same_nmf(loaded.set_params(max_epochs=14).resume(shards()), prolonged(6))
    for path in folder.glob("*/model.npz"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="trying the one before") as warned,
        pytest.raises(ValueError, match="has no checkpoint that is complete"),
    ):
        WassersteinNMF.load(folder)
    assert len(warned) == 1  # there is none before the first


def test_memory_of_workers_stays_flat(client):
    """Over 200 epochs, each of which sends 80 kB and brings back 160."""
    psutil = pytest.importorskip("psutil")  # Dask needs it
    rows = sparse.random_array((21, 1024), density=0.02, random_state=0, format="csr")

    def memory(model):
        if model.n_iter_ in (40, 200):
            sizes.append(max(client.run(lambda: psutil.Process().memory_info().rss).values()))

    sizes: list[int] = []
    start = np.random.default_rng(0).random((20, 1024)), np.ones((21, 20))
    options = {"n_components": 20, "max_epochs": 200, "tau": 1, "tol": 0.0, "random_state": 0, "update": "full"}
    model = WassersteinNMF(**options, cost=GridCost((32, 32)), init=start, client=client, callbacks=[memory])
    model.fit([rows[:7], rows[7:14], rows[14:]])
    assert model.n_iter_ == 200
    assert sizes[1] - sizes[0] < 20e6  # one leaked answer an epoch would be 26 MB


def test_copies_and_pickles_have_no_client(client, alone):
    model = WassersteinNMF(**OPTIONS, client=client).fit(shards())
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other.client is None
        np.testing.assert_array_equal(other.transform(X), alone.transform(X))
        with pytest.raises(AttributeError, match="memberships_: is known after a fit only"):
            _ = other.memberships_


def test_clones_share_the_client(client):
    model = WassersteinNMF(**OPTIONS, client=client)
    other = clone(model)
    assert other.client is client
    assert other.cost is model.cost  # costs do not change, so that they are not copied


@pytest.mark.filterwarnings("ignore:the certified gap")
@pytest.mark.parametrize("memory", [1.0, None])
def test_barycenters(client, memory):
    """With weights; the bounds are bit-identical too. By descent alone, and by the linear programme."""
    options = {"cost": GridCost((SIDE, SIDE)), "max_epochs": 12, "tau": 3, "max_memory": memory, "random_state": 0}
    weights = 1 + np.arange(30) % 4
    alone = WassersteinBarycenter(**options).fit(X, sample_weight=weights)
    for cuts, where in (("uneven, one empty", None), ("uneven, one empty", client), ("many", client)):
        model = WassersteinBarycenter(**options, client=where).fit(shards(cuts), sample_weight=weights)
        np.testing.assert_array_equal(model.barycenter_, alone.barycenter_)
        assert (model.objective_, model.lower_bound_) == (alone.objective_, alone.lower_bound_)
        for a, b in zip(model.history_, alone.history_, strict=True):
            np.testing.assert_array_equal(a._replace(seconds=0.0), b._replace(seconds=0.0))
    assert clone(model).client is client


@pytest.mark.filterwarnings("ignore:the certified gap")
def test_a_barycenter_is_resumed_from_its_checkpoint(client, tmp_path):
    """On a cluster, bit-identical to a fit without an interrupt."""
    options = {"cost": GridCost((SIDE, SIDE)), "max_epochs": 12, "tau": 3, "max_memory": 1.0, "random_state": 0}
    alone = WassersteinBarycenter(**options).fit(X)

    def stop(model):
        return model.n_iter_ == 7

    model = WassersteinBarycenter(**options, client=client, checkpoint=tmp_path, callbacks=[stop])
    assert model.fit(shards()).status_ == "stopped"
    model = WassersteinBarycenter.load(tmp_path, client=client)
    assert (model.n_iter_, model.status_) == (7, "stopped")
    model.resume(shards())
    np.testing.assert_array_equal(model.barycenter_, alone.barycenter_)
    assert (model.objective_, model.lower_bound_, model.n_iter_) == (alone.objective_, alone.lower_bound_, 12)
    np.testing.assert_array_equal([each[:6] for each in model.history_], [each[:6] for each in alone.history_])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the certified gap")
@pytest.mark.parametrize(("method", "checkpoints"), [("ascend", True), ("exact", False)])
def test_a_worker_is_killed_during_a_barycenter(tmp_path, method, checkpoints):
    """In the ascent of the lower bound and in the level method; the epochs before are replayed."""
    options = {"cost": GridCost((SIDE, SIDE)), "max_epochs": 108, "tau": 3, "max_memory": 1.0, "random_state": 0}
    options |= {"temperature": 1e-5, "tol": 1.0}  # so that the descent ends after 100 epochs
    alone = WassersteinBarycenter(**options).fit(X)
    assert np.isfinite([epoch.upper for epoch in alone.history_]).sum() > 4  # steps of the level method
    if checkpoints:
        options |= {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e-3}
    with cluster(2) as two, distributed.Client(two) as client:
        client.run(Dies("before", tmp_path / "marker", BarycenterShard, method))
        before = set(client.nthreads())
        model = WassersteinBarycenter(**options, client=client).fit(shards())
        assert (tmp_path / "marker").exists()
        assert set(client.nthreads()) != before
    np.testing.assert_array_equal(model.barycenter_, alone.barycenter_)
    assert (model.objective_, model.lower_bound_, model.status_) == (
        alone.objective_,
        alone.lower_bound_,
        alone.status_,
    )
    np.testing.assert_array_equal([each[:6] for each in model.history_], [each[:6] for each in alone.history_])


KMEANS = {
    "fixed": ({"cost": GridCost((SIDE, SIDE))}, X),
    "free": ({"support": "free", "n_support": 4}, [np.random.default_rng(k).random((5, 2)) + k % 3 for k in range(24)]),
    "parts": ({"cost": [GridCost((SIDE, SIDE)), "line"]}, [X, X[:, ::-1]]),
}


def same_kmeans(first: WassersteinKMeans, other: WassersteinKMeans) -> None:
    same_fit(first, other, "labels_", "inertia_", "inertia_bounds_", "centroid_gaps_", "counts_")
    for a, b in zip(first.cluster_centers_, other.cluster_centers_, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", KMEANS)
def test_kmeans(client, kind):
    """Data that are split, shards that are given, and a Dask array."""
    options, data = KMEANS[kind]
    options = options | {"n_clusters": 3, "random_state": 0}
    alone = WassersteinKMeans(**options).fit(data)
    same_kmeans(WassersteinKMeans(**options, client=client).fit(data), alone)
    if kind == "fixed":
        for cuts in ("uneven, one empty", "many"):
            same_kmeans(WassersteinKMeans(**options, client=client).fit(shards(cuts)), alone)
        same_kmeans(WassersteinKMeans(**options, client=client).fit(da.from_array(X, chunks=(11, -1))), alone)


@pytest.mark.parametrize("kind", KMEANS)
def test_kmeans_is_resumed_from_its_checkpoint(client, tmp_path, kind):
    """On a cluster and then in one process, bit-identical to a fit without an interrupt."""
    options, data = KMEANS[kind]
    options = options | {"n_clusters": 3, "random_state": 0}
    alone = WassersteinKMeans(**options).fit(data)

    def stop(model):
        return model.n_iter_ == 2

    WassersteinKMeans(**options, client=client, checkpoint=tmp_path, callbacks=[stop]).fit(data)
    for where in (client, None):
        model = WassersteinKMeans.load(tmp_path, client=where)
        same_kmeans(model.resume(data), alone)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "checkpoints"), [("fixed", False), ("fixed", True), ("free", True)])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_is_killed_during_kmeans(tmp_path, kind, checkpoints, moment):
    options, data = KMEANS[kind]
    options = options | {"n_clusters": 3, "random_state": 0}
    alone = WassersteinKMeans(**options).fit(data)
    if checkpoints:
        options |= {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e-3}
    with cluster(2) as two, distributed.Client(two) as client:
        client.run(Dies(moment, tmp_path / "marker", KMeansShard, "run"))
        before = set(client.nthreads())
        model = WassersteinKMeans(**options, client=client).fit(shards() if kind == "fixed" else data)
        assert (tmp_path / "marker").exists()
        assert set(client.nthreads()) != before
    same_kmeans(model, alone)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([X[:5], -X[5:]], r"X\[1\]: has negative weights, the first at row 0"),
        ([X[:5], X[5:, :-1]], r"X\[1\]: has 35 columns; expected 36"),
        ([X[:5], np.full((3, SIDE * SIDE), np.nan)], r"X\[1\]: has NaN weights, the first at row 0"),
        ([np.zeros((3, SIDE * SIDE))] * 2, "X: has no mass in any row"),
        (["nowhere.npy"], "nowhere.npy"),
    ],
)
@pytest.mark.parametrize("where", ["here", "there"])
def test_bad_shards(client, where, bad, message):
    model = WassersteinNMF(**OPTIONS, client=client if where == "there" else None)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        model.fit(bad)


def test_bad_clients():
    for bad in ("tcp://localhost:1", 3):
        with pytest.raises(ValueError, match=r"client: expected a dask\.distributed\.Client"):
            WassersteinNMF(**OPTIONS, client=bad).fit(X)


def test_rows_without_mass_in_shards(client):
    rows = X.copy()
    rows[[2, 11]] = 0
    with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 2"):
        whole = WassersteinNMF(**OPTIONS).fit(rows)
    for data in (np.split(rows, [2, 3, 12]), rows):
        with pytest.warns(UserWarning, match="X: 2 rows have no mass, the first is row 2") as told:
            model = WassersteinNMF(**OPTIONS, client=client).fit(data)
        assert [warning.filename for warning in told if "mass" in str(warning.message)] == [__file__]
        same_nmf(model, whole)


@pytest.mark.slow
def test_the_command_line(tmp_path, capfd, monkeypatch):
    """A folder of matrices on a cluster of its own, and resumed: bit-identical to a fit in this process."""
    main = pytest.importorskip("gibbsot.cli").main
    folder, out = tmp_path / "shards", tmp_path / "out"
    folder.mkdir()
    for k, shard in enumerate(shards()):
        np.save(folder / f"{k}.npy", shard)
    words = ["nmf", str(folder), "--components", "3", "--shape", "6", "6", "--out", str(out), "--quiet"]
    assert main([*words, "--epochs", "4", "--workers", "2"]) == 0
    options = {"n_components": 3, "cost": GridCost((6, 6)), "random_state": 0, "update": "full"}
    whole = WassersteinNMF(**options, max_epochs=4).fit(X)
    np.testing.assert_array_equal(np.load(out / "memberships.npy"), whole.memberships_)
    np.testing.assert_array_equal(np.load(out / "components.npy"), whole.components_)
    assert {path.name for path in out.glob("*.png")} == {"components.png", "convergence.png", "reconstruction.png"}
    assert main([*words, "--workers", "1"]) == 2
    assert "use --resume to resume it" in capfd.readouterr().err
    monkeypatch.chdir(tmp_path)
    words[words.index(str(out))] = "out"
    assert main([*words, "--epochs", "6", "--workers", "1", "--resume"]) == 0
    assert sorted(path.name for path in out.glob("checkpoints/epoch-*")) == ["epoch-00000004", "epoch-00000006"]
    np.testing.assert_array_equal(
        np.load(out / "memberships.npy"), whole.set_params(max_epochs=6).resume(X).memberships_
    )
    model = WassersteinNMF.load(out / "model.npz")
    np.testing.assert_array_equal(model.components_, whole.components_)
    with pytest.raises(ValueError, match="resume: this model has no fit"):
        model.resume(X)


@pytest.mark.slow
def test_the_command_line_resumes_on_other_workers(tmp_path):
    main = pytest.importorskip("gibbsot.cli").main
    np.save(tmp_path / "X.npy", X)
    words = ["nmf", str(tmp_path / "X.npy"), "--components", "3", "--out", str(tmp_path / "out"), "--quiet"]
    assert main([*words, "--epochs", "2", "--workers", "1"]) == 0
    assert main([*words, "--epochs", "3", "--workers", "2", "--resume"]) == 0
    options = {"n_components": 3, "random_state": 0, "update": "full"}
    whole = WassersteinNMF(**options, max_epochs=2).fit(X).set_params(max_epochs=3).resume(X)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "memberships.npy"), whole.memberships_)


@pytest.mark.slow
def test_an_interrupt_reaches_the_client_alone(tmp_path):
    """A terminal sends Ctrl-C to all processes; the fit stops after its epoch, and can be resumed."""
    pytest.importorskip("typer")
    np.save(tmp_path / "X.npy", X)
    code = "import sys; from gibbsot.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["nmf", tmp_path / "X.npy", "--components", "3", "--out", tmp_path / "out", "--epochs", "5000"]
    words = [sys.executable, "-c", code, *map(str, words), "--workers", "2", "--checkpoint", "0.1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("out/checkpoints/*/model.npz")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to resume:" in told
    assert "Traceback" not in told
    assert WassersteinNMF.load(tmp_path / "out" / "checkpoints").n_iter_ >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "--workers: expected at least 1"),
        (("--workers", "1", "--scheduler", "tcp://a:1"), "not together with --scheduler"),
        (("--limit", "3"), "--limit: is for a single file"),
        (("--shape", "5", "7"), "has rows of 36; expected 35 for images of 5 x 7"),
    ],
)
def test_bad_options_of_the_command_line(tmp_path, capfd, options, message):
    main = pytest.importorskip("gibbsot.cli").main
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "0.npy", X)
    assert main(["nmf", str(tmp_path / "data"), "--components", "3", "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
