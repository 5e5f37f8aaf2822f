"""``gibbsot ot``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cli_runs import Image, check_picture, command, fails, installed, succeeds
from gibbsot import GridCost, solve
from gibbsot.cli import main


@pytest.mark.slow
@installed
def test_ot_through_the_script(pair, tmp_path):
    done = command("ot", *pair, "--plan", tmp_path / "plan.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    p, q = (np.load(path) for path in pair)
    expected = solve(p / p.sum(), q / q.sum(), GridCost(20))
    report = json.loads(done.stdout)
    assert report["value"] == pytest.approx(expected.value)
    assert report["status"] == "optimal"
    plan = np.loadtxt(tmp_path / "plan.csv", delimiter=",", skiprows=1)
    assert plan[:, 2].sum() == pytest.approx(1)


def test_ot_of_images_has_bounds_a_plan_and_a_picture(blobs, tmp_path, capfd):
    plan, picture = tmp_path / "plan.npz", tmp_path / "moves.png"
    words = [
        "ot",
        blobs / "0.png",
        blobs / "1.png",
        "--plan",
        plan,
        "--plan-picture",
        picture,
        "--method",
        "gibbs",
        "--sweeps",
        "500",
    ]
    report = succeeds(capfd, *words)
    assert report["lower_bound"] <= report["upper_bound"]
    assert report["points"] == [48, 48]
    p, q = (np.asarray(Image.open(blobs / f"{k}.png"), float).ravel() for k in (0, 1))
    Z = sparse.load_npz(plan)
    np.testing.assert_allclose(Z.sum(axis=1), p / p.sum(), atol=1e-9)
    np.testing.assert_allclose(Z.sum(axis=0), q / q.sum(), atol=1e-9)
    check_picture(picture)


def test_ot_of_points(tmp_path, capfd):
    rng = np.random.default_rng(0)
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    X = rng.random((6, 3))
    np.savetxt(a, X, delimiter=",", header="x,y,w", comments="")
    np.savetxt(b, X + np.array([3, 0, 0]), delimiter=",")
    report = succeeds(capfd, "ot", a, b, "--points", "--weighted", "--plan-picture", tmp_path / "a.png")
    assert report["value"] == pytest.approx(9)  # all move by three
    check_picture(tmp_path / "a.png")
    report = succeeds(capfd, "ot", a, b, "--points", "--power", "1")
    assert report["value"] == pytest.approx(3)


def test_ot_with_a_matrix_of_costs(pair, tmp_path, capfd):
    M = np.ones((20, 20))
    np.save(tmp_path / "M.npy", M)
    words = ["ot", *pair, "--cost", tmp_path / "M.npy"]
    assert succeeds(capfd, *words, "--plan-picture", tmp_path / "a.png")["value"] == pytest.approx(1)
    check_picture(tmp_path / "a.png")


def test_ot_prints_a_table_or_just_the_number(pair, capfd):
    assert main(["ot", *map(str, pair), "--method", "gibbs", "--sweeps", "200"]) == 0
    printed = capfd.readouterr().out
    assert "at least" in printed
    assert "at most" in printed
    assert main(["ot", *map(str, pair), "--method", "gibbs", "--sweeps", "200", "-q"]) == 0
    assert float(capfd.readouterr().out) > 0


def test_the_seed_decides(pair, capfd):
    values = [
        succeeds(capfd, "ot", *pair, "--method", "gibbs", "--sweeps", "50", "--seed", seed)["value"]
        for seed in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p.npy",), "Missing argument 'B'"),
        (("p.npy", "none.npy"), "none.npy: there is no such file"),
        (("p.npy", "short.npy"), "short.npy: is 7, p.npy is 20"),
        (("p.npy", "nan.npy"), "nan.npy: has NaN weights, the first at row 0, entry 0"),
        (("p.npy", "fake.png"), "fake.png: is damaged or not an image"),
        (("p.npy", "broken.npz"), "broken.npz: is damaged"),
        (("p.npy", "q.npy", "--cost", "short.npy"), "short.npy: expected costs of shape (20, 20), got (7,)"),
        (("p.npy", "q.npy", "--power", "0.5"), "power: expected a number of at least 1"),
        (("p.npy", "q.npy", "--points", "--power", "3"), "--power: expected 1 or 2"),
        (("p.npy", "q.npy", "--weighted"), "--weighted: needs --points"),
        (("p.npy", "flat.npy", "--points"), "flat.npy: has points with 2 coordinates; expected 1"),
        (("p.npy", "q.npy", "--method", "gibbs", "--sweeps", "0"), "n_sweeps: expected at least 1"),
        (("p.npy", "q.npy", "--sweeps", "many"), "'--sweeps'"),
        (("p.npy", "q.npy", "--jobs", "0"), "n_jobs: 0 has no meaning"),
        (("p.npy", "q.npy", "--seed", "-1"), "--seed: expected"),
        (("p.npy", "q.npy", "--size", "2", "2"), "expected an image to shrink"),
        (("p.npy", "q.npy", "--plan", "plan.doc"), "plan.doc: expected a name that ends in .npz or .csv"),
        (("p.npy", "q.npy", "--plan", "nowhere/plan.csv"), "plan.csv: the folder to write to does not exist"),
        (("p.npy", "q.npy", "--plan-picture", "."), ".: expected a name that ends in .png"),
        (("p.npy", "q.npy", "--unknown"), "--unknown"),
        ((".", "q.npy"), ".: is a folder; expected a file"),
    ],
)
def test_bad_input_of_ot(pair, tmp_path, monkeypatch, capfd, words, message):
    monkeypatch.chdir(tmp_path)
    np.save("short.npy", np.ones(7))
    np.save("nan.npy", np.full(20, np.nan))
    np.save("flat.npy", np.ones((3, 2)))
    for name in ("fake.png", "broken.npz"):
        Path(name).write_bytes(b"PK\x03\x04 but not really")
    before = sorted(os.listdir())
    assert message in fails(capfd, "ot", *words)
    assert sorted(os.listdir()) == before


def test_a_full_disk_leaves_no_part_of_a_plan(pair, tmp_path, full_disk, capfd):
    before = sorted(os.listdir(tmp_path))
    line = fails(capfd, "ot", *pair, "--plan", tmp_path / "plan.csv")
    assert "plan.csv: No space left on device" in line
    assert sorted(os.listdir(tmp_path)) == before
