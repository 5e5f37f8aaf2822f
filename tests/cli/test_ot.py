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


def test_unbalanced_ot(pair, capfd):
    p, q = (x / x.sum() for x in map(np.load, pair))
    report = succeeds(capfd, "ot", *pair, "--kl", "0.1")
    assert report["value"] == pytest.approx(solve(p, q, GridCost(20), kl=0.1).value, rel=1e-9)
    assert report["status"] == "gap reached"
    assert "--kl" in fails(capfd, "ot", *pair, "--kl", "0")


def test_ot_of_points(tmp_path, capfd):
    rng = np.random.default_rng(0)
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    X = rng.random((6, 3))
    np.savetxt(a, X, delimiter=",", header="x,y,w", comments="")
    np.savetxt(b, X + np.array([3, 0, 0]), delimiter=",")
    report = succeeds(capfd, "ot", a, b, "--points", "--weighted", "--plan-picture", tmp_path / "a.png")
    assert report["value"] == pytest.approx(9)  # all move by three
    assert report["cost"] == "squared Euclidean distance"
    check_picture(tmp_path / "a.png")
    report = succeeds(capfd, "ot", a, b, "--points", "--power", "1")
    assert report["value"] == pytest.approx(3)
    np.savetxt(b, X + np.array([3, 4, 0]), delimiter=",")
    report = succeeds(capfd, "ot", a, b, "--points", "--cost", "euclidean", "--plan-picture", tmp_path / "b.png")
    assert report["value"] == pytest.approx(5)
    check_picture(tmp_path / "b.png")


def test_ot_with_a_matrix_of_costs(pair, tmp_path, capfd):
    M = np.ones((20, 20))
    np.save(tmp_path / "M.npy", M)
    words = ["ot", *pair, "--cost", tmp_path / "M.npy"]
    report = succeeds(capfd, *words, "--plan-picture", tmp_path / "a.png")
    assert report["value"] == pytest.approx(1)
    assert report["cost"] == f"the matrix in {tmp_path / 'M.npy'}"
    check_picture(tmp_path / "a.png")


def test_ot_prints_a_table_or_just_the_number(pair, capfd):
    assert main(["ot", *map(str, pair), "--method", "gibbs", "--sweeps", "200"]) == 0
    printed, said = capfd.readouterr()
    files = "".join(f"{path}: 20 weights on a line\n" for path in pair)
    assert said == f"{files}cost: squared distance, in units of the longest side of the grid\n"
    low, high, estimate = (float(line.split()[k]) for line, k in zip(printed.splitlines(), (2, 2, 1), strict=True))
    assert low <= high
    assert ("outside the bounds" in printed) == (not low <= estimate <= high)
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
        (("p.npy", "nan.npy"), "nan.npy: has NaN weights, the first at entry 0"),
        (("p.npy", "fake.png"), "fake.png: is damaged or not an image"),
        (("p.npy", "broken.npz"), "broken.npz: is damaged"),
        (("p.npy", "q.npy", "--cost", "short.npy"), "short.npy: expected costs of shape (20, 20), got (7,)"),
        (("p.npy", "q.npy", "--cost", "euclid"), "--cost: 'euclid' is neither a file nor a metric"),
        (
            ("p.npy", "q.npy", "--cost", "cosine"),
            "--cost: is cosine; expected sqeuclidean, euclidean or l1 between pixels",
        ),
        (("p.npy", "q.npy", "--max-seconds", "0"), "--max-seconds: expected a positive number"),
        (("p.npy", "q.npy", "--power", "0.5"), "power: expected a number of at least 1"),
        (("p.npy", "q.npy", "--points", "--power", "3"), "--power: expected 1 or 2"),
        (("p.npy", "q.npy", "--weighted"), "--weighted: needs --points"),
        (("p.npy", "flat.npy", "--points"), "flat.npy: has points with 2 coordinates; expected 1"),
        (("p.npy", "q.npy", "--method", "gibbs", "--sweeps", "0"), "--sweeps: expected at least 1"),
        (("p.npy", "q.npy", "--sweeps", "many"), "'--sweeps'"),
        (("p.npy", "q.npy", "--sweeps", "9"), "--sweeps: is an option of --method gibbs"),
        (("p.npy", "q.npy", "--method", "gibbs", "--gap", "1"), "--gap: is an option of --method exact"),
        (("p.npy", "q.npy", "--gap", "-1"), "--gap: expected a number >= 0"),
        (("p.npy", "q.npy", "--rows", "0", "0"), "p.npy: is a single measure"),
        (("flat.npy", "flat.npy", "--rows", "0", "3"), "flat.npy: has no row 3; expected a number from 0 to 2"),
        (("p.npy", "q.npy", "--columns", "x"), "p.npy: is not a table; columns can be chosen in .csv and .parquet"),
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
    line = fails(capfd, "ot", *pair, "--plan", tmp_path / "plan.csv", "--quiet")
    assert "plan.csv: No space left on device" in line
    assert sorted(os.listdir(tmp_path)) == before


def test_a_huge_problem_says_what_it_takes_and_what_would_be_faster(tmp_path, monkeypatch, capfd):
    """Nothing is solved here."""
    solved = []

    def answer(problem, *_):
        solved.append(problem.cost.shape)
        raise ValueError("enough")

    monkeypatch.setattr("gibbsot.cli.ot.solve_problem", answer)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "image.npy", np.ones((1024, 1024), np.uint8))
    np.save(tmp_path / "points.npy", rng.random((300_000, 2)))
    np.save(tmp_path / "small.npy", np.ones((128, 128)))
    for name, options, expected in (
        ("image", (), "about 8 minutes and 2.2 GB; --size 256 256 takes about 10 seconds and 0.1 GB"),
        ("points", ("--points",), "about 84 seconds and 0.6 GB; a sample of 75,000 points takes about 12 seconds"),
        ("small", (), None),
    ):
        path = str(tmp_path / f"{name}.npy")
        assert main(["ot", path, path, *options]) == 2
        said = capfd.readouterr().err
        assert "error: enough" in said
        assert ("about" in said) == (expected is not None)
        assert (expected or "") in said
    assert len(solved) == 3


def test_rows_that_may_be_points_are_named(tmp_path, capfd):
    (tmp_path / "a.csv").write_text("".join(f"{k % 7},{k}\n" for k in range(1, 21)))
    report = succeeds(capfd, "ot", tmp_path / "a.csv", tmp_path / "a.csv")
    assert report["read"] == ["an image of 20 x 2 pixels, 38 with weight; if the rows are points: --points"] * 2
