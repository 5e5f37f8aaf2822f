"""Faults while a fit runs: killed, stopped and paused processes, full disks, damaged checkpoints, late workers.

    python tests/faults.py [--kills 100] [--runs 5] [--most N] [--seed 0] [SCENARIO ...]

Each run has to end with the results of an undisturbed fit, bit-identical, or with an error that says what to do, after
which a resumed fit ends with them, and within a deadline. Prints a table of runs, faults, errors and the longest stall:
the time from a fault to the end of the next epoch, or of the command that was started again. Exits with 1 if a run
differs, was lost or did not end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from gibbsot import GridCost, WassersteinNMF
from gibbsot.distributed import dask as bridge
from gibbsot.distributed.dask import connected

SIDE, N, SHARDS = 6, 48, 6
OPTIONS: dict[str, Any] = {
    "n_components": 3, "cost": GridCost((SIDE, SIDE)), "max_epochs": 40, "tau": 3, "tol": 0.0, "random_state": 0,
    "update": "full", "batch_size": 4,
}  # fmt: skip
SILENCE = 10.0  # seconds without a word, at most, while the fit waits for workers
STOPPED = 20.0  # seconds of SIGSTOP
DEADLINE = 120.0  # seconds for a run with its faults on an idle machine, beside the time that processes are stopped
MOST = 1000  # faults of a run; there is about one per epoch
COMMAND = (sys.executable, "-c", "import sys; from gibbsot.cli import main; sys.exit(main(sys.argv[1:]))")


class HangError(Exception):
    """A run did not end within its deadline."""


@dataclass
class Row:
    """The table's row of a scenario."""

    runs: int = 0
    faults: int = 0
    recovered: int = 0
    errors: int = 0
    stalls: list[float] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def data() -> np.ndarray:
    X = np.random.default_rng(0).random((N, SIDE * SIDE)) ** 4
    X[X < 0.1] = 0
    return X


def shards() -> list[np.ndarray]:
    return np.array_split(data(), SHARDS)


class Reference:
    """Results of an undisturbed fit in one process."""

    def __init__(self) -> None:
        model = quietly(lambda: WassersteinNMF(**OPTIONS).fit(shards()))
        self.components, self.memberships = model.components_, np.asarray(model.memberships_)
        self.history = [epoch._replace(seconds=0.0) for epoch in model.history_]

    def check(self, model: WassersteinNMF) -> None:
        """Raise AssertionError if a model differs."""
        np.testing.assert_array_equal(model.components_, self.components)
        np.testing.assert_array_equal(np.asarray(model.memberships_), self.memberships)
        np.testing.assert_array_equal([epoch._replace(seconds=0.0) for epoch in model.history_], self.history)


def quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise HangError after a time."""

    def ring(*_: Any) -> None:
        raise HangError(f"did not end within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Clock:
    """A callback that notes when epochs end, and the faults in between."""

    def __init__(self, pause: float = 0.0) -> None:
        self.epochs, self.faults, self.pause = list[float](), list[float](), pause
        self.ended = threading.Event()

    def __call__(self, model: Any) -> None:
        self.epochs.append(time.monotonic())
        time.sleep(self.pause)

    def fault(self) -> None:
        self.faults.append(time.monotonic())

    def wait_for_epoch(self, since: float, seconds: float = DEADLINE) -> None:
        """Wait until an epoch has ended since a time, or the fit has."""
        self.wait_until(lambda: bool(self.epochs) and self.epochs[-1] > since, seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds, the fit has ended, or the time is over."""
        limit = time.monotonic() + seconds
        while not self.ended.is_set() and time.monotonic() < limit and not condition():
            time.sleep(0.01)

    def stalls(self) -> list[float]:
        after = [[end for end in self.epochs if end > fault] for fault in self.faults]
        return [ends[0] - fault for ends, fault in zip(after, self.faults, strict=True) if ends]


class Harness:
    """Runs scenarios.

    Parameters
    ----------
    kills, runs : int
        Kills of the command line and of workers, and runs of other scenarios.
    seed : int
        Of the random moments.
    stopped : float
        Seconds of SIGSTOP.
    seconds : float
        The deadline of a run.
    most : int
        The largest number of faults of a run.
    """

    def __init__(
        self, kills: int, runs: int, seed: int, stopped: float = STOPPED, seconds: float = DEADLINE, most: int = MOST
    ) -> None:
        self.kills, self.runs, self.stopped, self.deadline, self.most = kills, runs, stopped, seconds, most
        self.client: Any = None
        self.verbose = False
        self.rng, self.reference, self.rows = random.Random(seed), Reference(), dict[str, Row]()

    def run(self, name: str) -> None:
        """Run a scenario until it has had its faults."""
        row = self.rows[name] = Row()
        scenario: Callable[[Row, Path], None] = getattr(self, name)
        wanted = self.kills if name in ("command_line", "worker", "plain_cluster") else self.runs
        extra = self.stopped if name == "stopped_worker" else 0.0
        while row.faults < wanted and len(row.bad) < 3:
            with tempfile.TemporaryDirectory() as folder:
                faults, row.runs = row.faults, row.runs + 1
                try:
                    with deadline(self.deadline + extra):
                        quietly(lambda: scenario(row, Path(folder)))
                    row.recovered += 1
                except Exception as error:
                    traceback.print_exc()
                    row.bad.append(f"{type(error).__name__}: {error}")
                if row.faults == faults and row.runs > 3 * wanted:
                    row.bad.append("the fits end before a fault")
            if self.verbose:
                print(line(name, row), file=sys.stderr, flush=True)
        print(line(name, row), flush=True)

    @contextlib.contextmanager
    def three_workers(self) -> Iterator[None]:
        """Have a cluster that some scenarios share."""
        with contextlib.ExitStack() as self.cluster:
            self.client = self.cluster.enter_context(connected(None, 3))
            yield
        self.client = None

    def _renew_cluster(self) -> None:
        """Start the cluster again if Dask has given up one of its workers, as it does on a busy machine."""
        limit = time.monotonic() + 20
        while len(self.client.cluster.scheduler.workers) < 3:
            if time.monotonic() > limit:
                self.cluster.close()
                self.client = self.cluster.enter_context(connected(None, 3))
            time.sleep(0.05)

    # Scenarios

    def command_line(self, row: Row, folder: Path) -> None:
        """Kill the command line at a random moment, up to ten times, and resume it."""
        np.save(folder / "X.npy", data())
        words = ["nmf", folder / "X.npy", "--components", 3, "--shape", SIDE, SIDE, "--epochs", 400, "--quiet"]
        words = [*COMMAND, *map(str, words)]
        whole, out = self._whole_command(words), folder / "out"
        killed = 0.0
        for _ in range(self.rng.randint(1, min(10, self.most))):
            begun, again = time.monotonic(), ["--resume"] * (out / "model.npz").exists()
            with subprocess.Popen(
                [*words, "--out", str(out), "--checkpoint", "0", *again], stderr=subprocess.PIPE
            ) as run:
                # a third of the kills while it starts, the others after it has written a checkpoint
                if self.rng.random() < 2 / 3:
                    before = modified(out / "model.npz")
                    while run.poll() is None and modified(out / "model.npz") == before:
                        time.sleep(0.005)
                    begun = time.monotonic()
                limit = begun + self.rng.uniform(0, 1.5)
                while run.poll() is None and time.monotonic() < limit:
                    time.sleep(0.005)
                if run.poll() is None:
                    run.kill()
                    row.faults += 1
                    killed = time.monotonic()
                elif run.returncode:
                    raise AssertionError(run.stderr.read().decode() if run.stderr else "")
            if (out / "report.json").exists():
                break
        again = ["--resume"] * (out / "model.npz").exists()
        begun = time.monotonic()
        ended = subprocess.run([*words, "--out", str(out), *again], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        if killed:
            row.stalls.append(max(0.0, time.monotonic() - begun - self.seconds))  # beyond a whole run
        for name, expected in whole.items():
            np.testing.assert_array_equal(np.load(out / name), expected)
        left = sorted(path.name for path in out.iterdir() if path.name.startswith("."))
        assert not left, f"temporary files are left: {left}"

    def _whole_command(self, words: list[str]) -> dict[str, np.ndarray]:
        """Return the results of the command without faults."""
        if not hasattr(self, "whole"):
            with tempfile.TemporaryDirectory() as folder:
                words = [str(Path(folder, "X.npy")) if word.endswith("X.npy") else word for word in words]
                np.save(Path(folder, "X.npy"), data())
                begun = time.monotonic()
                subprocess.run([*words, "--out", folder + "/out"], check=True)
                self.seconds = time.monotonic() - begun
                self.whole = {name: np.load(f"{folder}/out/{name}") for name in ("components.npy", "memberships.npy")}
        return self.whole

    def worker(self, row: Row, folder: Path) -> None:
        """Kill workers, one at a time, with and without checkpoints."""
        self._kill_workers(row, folder, 1)

    def two_workers(self, row: Row, folder: Path) -> None:
        """Kill two of three workers at once."""
        self._kill_workers(row, folder, 2)

    def _kill_workers(self, row: Row, folder: Path, count: int) -> None:
        clock = Clock(0.02)

        def kill() -> None:
            pids = self._pids(count + 1, clock)
            time.sleep(self.rng.uniform(0, 0.2))
            if not pids or clock.ended.is_set():
                return
            for pid in self.rng.sample(pids, count):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            clock.fault()
            clock.wait_for_epoch(clock.faults[-1])

        checkpoint = folder / "run" if self.rng.random() < 0.5 else None
        self._disturbed(row, clock, kill, checkpoint)

    def plain_cluster(self, row: Row, folder: Path) -> None:
        """Kill some or all workers of a LocalCluster as Dask makes it: the results, or an error, and no silence."""
        clock, often = Clock(0.02), {"checkpoint": folder / "run", "checkpoint_seconds": 1e-3}

        def kill() -> None:
            pids = self._pids(1, clock)
            time.sleep(self.rng.uniform(0, 0.2))
            if not pids or clock.ended.is_set():
                return
            for pid in self.rng.sample(pids, self.rng.choice((1, 1, 2, 3, 3)) if len(pids) == 3 else 1):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    row.faults += 1
            clock.fault()
            clock.wait_for_epoch(clock.faults[-1])

        def disturb() -> None:
            clock.wait_for_epoch(0.0)
            while not clock.ended.is_set() and len(clock.faults) < min(self.most, 12):
                kill()

        options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        thread = threading.Thread(target=disturb, daemon=True)
        with (
            distributed.LocalCluster(**options, silence_logs=50) as cluster,
            distributed.Client(cluster) as self.client,
        ):
            thread.start()
            with Listening() as heard:
                try:
                    model = WassersteinNMF(**OPTIONS, client=self.client, callbacks=[clock], **often).fit(shards())
                except bridge.NoWorkerError as error:
                    if "load it with a client of theirs and resume the fit" not in str(error):
                        raise AssertionError(f"an error without a hint: {error}") from error
                    row.errors += 1
                    model = None
                finally:
                    clock.ended.set()
                    thread.join(30)
            row.stalls += clock.stalls()
            row.silences.append(heard.longest_silence(clock))
            if model is not None:
                self.reference.check(model)
        if model is None:
            model = WassersteinNMF.load(folder / "run").set_params(callbacks=())
            self.reference.check(model.resume(shards()))
        assert row.silences[-1] <= SILENCE, f"silence of {row.silences[-1]:.1f} s"

    def _pids(self, count: int, clock: Clock) -> list[int]:
        """Return the processes of the workers when `count` of them are there."""
        cluster, limit = self.client.cluster, time.monotonic() + self.deadline
        while not clock.ended.is_set() and time.monotonic() < limit:
            pids = [nanny.pid for nanny in cluster.workers.values() if nanny.status.name == "running" and nanny.pid]
            if min(len(pids), len(cluster.scheduler.workers)) >= count:
                return pids
            time.sleep(0.02)
        return []

    def _disturbed(self, row: Row, clock: Clock, fault: Callable[[], None], checkpoint: Path | None) -> None:
        """Fit while a thread repeats a fault; compare the result."""
        options = {} if checkpoint is None else {"checkpoint": checkpoint, "checkpoint_seconds": 0.5}

        def disturb() -> None:
            clock.wait_for_epoch(0.0)
            while not clock.ended.is_set() and len(clock.faults) < self.most:
                fault()

        self._renew_cluster()
        thread = threading.Thread(target=disturb, daemon=True)
        thread.start()
        try:
            model = WassersteinNMF(**OPTIONS, client=self.client, callbacks=[clock], **options).fit(shards())
            clock.ended.set()
            self.reference.check(model)
        finally:
            clock.ended.set()
            thread.join(30)
            row.faults += len(clock.faults)
            row.stalls += clock.stalls()

    def stopped_worker(self, row: Row, folder: Path) -> None:
        """Stop a worker by SIGSTOP for a while."""
        clock = Clock(0.02)

        def stop() -> None:
            pids = self._pids(3, clock)
            if not pids or clock.faults:
                clock.ended.wait(1)
                return
            pid = self.rng.choice(pids)
            os.kill(pid, signal.SIGSTOP)
            clock.fault()
            clock.ended.wait(self.stopped)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        self._disturbed(row, clock, stop, None)

    def paused_worker(self, row: Row, folder: Path) -> None:
        """Pause a worker, as Dask does at its memory limit."""
        clock = Clock()
        with connected(None, 2) as self.client:
            moment = self.rng.randint(1, 30)

            def pause_one(model: Any) -> None:
                clock(model)
                if model.n_iter_ == moment:
                    self.client.run(pause, workers=[model._run.shards._addresses[0]])
                    clock.fault()

            model = WassersteinNMF(**OPTIONS, client=self.client, callbacks=[pause_one]).fit(shards())
            self.reference.check(model)
            row.faults += 1
            row.stalls += clock.stalls()

    def late_worker(self, row: Row, folder: Path) -> None:
        """Add a worker to the only one."""
        clock = Clock(0.02)
        before, bridge._REBALANCE_SECONDS = bridge._REBALANCE_SECONDS, 0.1
        try:
            with connected(None, 1) as self.client:
                moment = self.rng.randint(1, 20)

                def grow(model: Any) -> None:
                    clock(model)
                    if model.n_iter_ == moment:
                        self.client.cluster.scale(2)
                        self.client.wait_for_workers(2)
                        clock.fault()
                        time.sleep(0.2)

                model = WassersteinNMF(**OPTIONS, client=self.client, callbacks=[grow]).fit(shards())
                self.reference.check(model)
                assert len(set(model._run.shards._addresses)) == 2, "the new worker has no shards"
                row.faults += 1
                row.stalls += clock.stalls()
        finally:
            bridge._REBALANCE_SECONDS = before

    def scheduler(self, row: Row, folder: Path) -> None:
        """Kill the scheduler: the error says how to resume, and the resumed fit is identical."""
        words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
        words += ["--scheduler-file", str(folder / "scheduler.json")]
        quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        processes, clients = [subprocess.Popen(words, **quiet)], []
        try:
            while not (folder / "scheduler.json").exists():
                time.sleep(0.05)
            time.sleep(0.2)
            address = json.loads((folder / "scheduler.json").read_text())["address"]
            options = [address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
            words = [sys.executable, "-m", "distributed.cli.dask_worker", *options]
            processes += [subprocess.Popen(words, **quiet) for _ in range(2)]
            clock, client = Clock(0.02), distributed.Client(address)
            clients.append(client)
            client.wait_for_workers(2)

            def kill() -> None:
                clock.wait_for_epoch(0.0)
                time.sleep(self.rng.uniform(0, 1.0))
                clock.fault()  # before the client can know of it
                processes[0].kill()

            thread = threading.Thread(target=kill, daemon=True)
            thread.start()
            often = {"checkpoint": folder / "run", "checkpoint_seconds": 1e-3, "callbacks": [clock]}
            try:
                WassersteinNMF(**OPTIONS, client=client, **often).fit(shards())
            except ConnectionError as error:
                if "load it with a new client and resume" not in str(error):
                    raise AssertionError(f"an error without a hint: {error}") from error
                row.errors += 1
                row.stalls.append(time.monotonic() - clock.faults[-1])
            clock.ended.set()
            thread.join()
            row.faults += 1
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for client in clients:
                with contextlib.suppress(Exception):
                    client.close(timeout=1)
        model = WassersteinNMF.load(folder / "run").set_params(callbacks=())
        self.reference.check(model.resume(shards()))

    def client_killed(self, row: Row, folder: Path, damage: bool = False) -> None:
        """Kill the client at a random moment; another one resumes from its checkpoints."""
        address = self.client.scheduler.address
        words = [sys.executable, __file__, "--fit", address, str(folder / "run")]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            while len(list(folder.glob("run/epoch-*/model.npz"))) < 2:
                assert process.poll() is None, "the client ended early"
                time.sleep(0.01)
            mine = folder / "run" / "epoch-1" / "thesis.txt"  # of somebody else, in the meantime
            mine.parent.mkdir()
            mine.write_text("mine")
            time.sleep(self.rng.uniform(0, 0.5))
            process.kill()
        killed = time.monotonic()
        row.faults += 1
        if damage:
            last = max(path.parent for path in folder.glob("run/epoch-*/model.npz"))
            file = self.rng.choice(sorted(last.iterdir()))
            content = bytearray(file.read_bytes())
            at = self.rng.randrange(len(content))
            if self.rng.random() < 0.5:
                del content[at:]
            else:
                content[at] ^= 1 << self.rng.randrange(8)
            file.write_bytes(content)
        clock = Clock()
        model = WassersteinNMF.load(folder / "run", client=self.client).set_params(callbacks=[clock])
        self.reference.check(model.resume(shards()))
        assert mine.read_text() == "mine"
        row.stalls += [end - killed for end in clock.epochs[:1]]

    def damaged_checkpoint(self, row: Row, folder: Path) -> None:
        """Kill the client and damage its last checkpoint: the one before is used."""
        self.client_killed(row, folder, damage=True)

    def full_disk(self, row: Row, folder: Path) -> None:
        """Let no file grow beyond a random size; the error names the file, and with room the fit is identical."""
        import resource

        np.save(folder / "X.npy", data())
        words = ["nmf", folder / "X.npy", "--components", 3, "--shape", SIDE, SIDE, "--epochs", 400, "--quiet"]
        words = [*COMMAND, *map(str, words)]
        whole, out = self._whole_command(words), folder / "out"
        words += ["--out", str(out)]
        limit = self.rng.randint(100, 60_000)
        ended = subprocess.run(
            [*words, "--checkpoint", "0"], capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip
        row.faults += 1
        if ended.returncode:
            row.errors += 1
            assert ended.returncode == 2, ended.stderr
            assert str(out) in ended.stderr, ended.stderr
            assert "File too large" in ended.stderr, ended.stderr
            again = ["--resume"] * (out / "model.npz").exists()
            subprocess.run([*words, *again], check=True)
        for name, expected in whole.items():
            np.testing.assert_array_equal(np.load(out / name), expected)


class Listening(logging.Handler):
    """Notes when gibbsot logs or warns of something."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.times, self.logger = [time.monotonic()], logging.getLogger("gibbsot")

    def __enter__(self) -> Listening:
        self.before, self.stack = self.logger.level, contextlib.ExitStack()
        self.logger.addHandler(self)
        self.logger.setLevel(logging.INFO)
        self.stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: self.times.append(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        self.logger.removeHandler(self)
        self.logger.setLevel(self.before)
        self.times.append(time.monotonic())

    def emit(self, record: logging.LogRecord) -> None:
        self.times.append(time.monotonic())

    def longest_silence(self, clock: Clock) -> float:
        """Return the longest time in which no epoch ended and nothing was said."""
        events = sorted([*self.times, *clock.epochs])
        return max(np.diff(events).tolist())


def modified(path: Path) -> int:
    """Return when a file was written, 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def pause(dask_worker: Any) -> None:
    """Do what Dask does at the memory limit, for good; runs on a worker."""
    dask_worker.memory_manager.memory_pause_fraction = False
    dask_worker.status = distributed.Status.paused


SCENARIOS = {
    "command_line": "kill -9 of the command line",
    "worker": "kill -9 of a worker",
    "two_workers": "kill -9 of two of three workers",
    "plain_cluster": "kill -9 with Dask's own timeouts",
    "scheduler": "kill -9 of the scheduler",
    "client_killed": "kill -9 of the client",
    "damaged_checkpoint": "... and a damaged last checkpoint",
    "stopped_worker": "SIGSTOP of a worker",
    "paused_worker": "a paused worker",
    "late_worker": "a worker that joins late",
    "full_disk": "a disk without room",
}


def line(name: str, row: Row) -> str:
    stall = f"{max(row.stalls):.1f} s" if row.stalls else ""
    middle = f"{np.median(row.stalls):.1f} s" if row.stalls else ""
    return (
        f"{SCENARIOS[name]:36} {row.runs:5} {row.faults:7} {row.recovered:10} {row.errors:7} {len(row.bad):5}"
        f" {middle:>13} {stall:>13}" + (f" {max(row.silences):8.1f} s" if row.silences else "")
    )


HEAD = (
    f"{'':36} {'runs':>5} {'faults':>7} {'identical':>10} {'errors':>7} {'bad':>5} {'median stall':>13}"
    f" {'longest':>13} {'silence':>10}"
)


def fit(address: str, folder: str) -> None:
    """Fit on a cluster until killed."""
    with distributed.Client(address) as client:
        often = {"checkpoint": folder, "checkpoint_seconds": 1e-3, "callbacks": [lambda _: time.sleep(0.05)]}
        quietly(lambda: WassersteinNMF(**OPTIONS, client=client, **often).fit(shards()))


def main(words: list[str] | None = None) -> int:
    """Run the scenarios; return the number of bad runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--kills", type=int, default=100, help="of the command line and of workers")
    parser.add_argument("--runs", type=int, default=5, help="of other scenarios")
    parser.add_argument("--most", type=int, default=MOST, help="faults of a run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stopped", type=float, default=STOPPED, help="seconds of SIGSTOP")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds of a run; more on a busy machine")
    parser.add_argument("--verbose", action="store_true", help="print the row after each run")
    options = parser.parse_args(words)
    logging.getLogger("gibbsot").setLevel(logging.ERROR)  # each fault is a warning
    shared = {"worker", "two_workers", "client_killed", "damaged_checkpoint", "stopped_worker"}
    harness = Harness(options.kills, options.runs, options.seed, options.stopped, options.deadline, options.most)
    harness.verbose = options.verbose
    print(HEAD)
    names = options.scenarios or list(SCENARIOS)
    with harness.three_workers() if shared & set(names) else contextlib.nullcontext():
        for name in names:
            if name in shared:
                harness.run(name)
    for name in names:
        if name not in shared:
            harness.run(name)
    bad = [f"{name}: {what}" for name, row in harness.rows.items() for what in row.bad]
    print(*bad, sep="\n")
    return len(bad)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit(*sys.argv[2:])
    else:
        sys.exit(bool(main()))
