"""What the lag of the mixing test does in each model: the exact value and CPU seconds, by ``tau``, in one run.

    python benchmarks/lags.py

- NMF: 200 fives 28 x 28, 40 components, 200 epochs. Each image has memberships of its own.
- barycenter: 30 fives 28 x 28, to a gap of 1e-2 by the descent alone. One model averages the noise of all chains.
- classifier: 1,000 samples of the 30 tags of ``benchmarks/labels.py``, noise 0.4; the mean cost of 1,000 new ones.
- oracle: ``method="gibbs"`` and `minimize` on the smoothing loss of ``benchmarks/own_losses.py``. The lag is a tenth of
  ``max_sweeps``. Each frame sees the noise of three chains.

Values are means over two seeds, seconds CPU seconds of one thread of one fit.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import labels
import own_losses
from gibbsot import GridCost, Oracle, WassersteinBarycenter, WassersteinClassifier, WassersteinNMF, datasets

LAGS, SEEDS = (5, 20, 40, 50, 80), (0, 1)


def nmf(tau: int, seed: int) -> float:
    model = WassersteinNMF(n_components=40, cost=GridCost((28, 28)), tau=tau, random_state=seed, n_jobs=1)
    return float(model.fit(datasets.mnist_fives()).reconstruction_err_)


def barycenter(tau: int, seed: int) -> float:
    X = datasets.mnist_fives()[::6][:30]
    model = WassersteinBarycenter(
        GridCost((28, 28)), gap=1e-2, tau=tau, max_memory=1e6, max_epochs=320, random_state=seed, n_jobs=1
    )
    return float(model.fit(X).objective_)


def classifier(tau: int, seed: int) -> float:
    data = labels.tags(30, 0.4, 1000, 1000, np.random.default_rng(seed))
    model = WassersteinClassifier(data.M, tau=tau, random_state=seed, n_jobs=1).fit(data.X, data.Y)
    return labels.transport(model.predict_proba(data.X_new), data.Y_new, data.M)


def oracle(tau: int, seed: int) -> float:
    def make(cost: GridCost, targets: own_losses.Array | None = None) -> Oracle:
        return Oracle(cost, targets, method="gibbs", max_sweeps=10 * tau, rng=seed)

    return own_losses.smoothing(make, 0).value


MODELS: dict[str, Callable[[int, int], float]] = {
    "NMF": nmf, "barycenter": barycenter, "classifier": classifier, "oracle, smoothing": oracle
}  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore")
    console = Console(width=130)
    table = Table(
        "model", *(f"tau = {tau}" for tau in LAGS), title="value and CPU seconds by the lag of the mixing test"
    )
    for name, fitted in MODELS.items():
        cells = []
        for tau in LAGS:
            begin = time.process_time()
            value = np.mean([fitted(tau, seed) for seed in SEEDS])
            cells.append(f"{value:.4g}, {(time.process_time() - begin) / len(SEEDS):.2g} s")
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
