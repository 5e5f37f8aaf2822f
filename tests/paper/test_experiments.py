"""The experiments in their quick form, with numbers checked against computations of our own, and the report of them."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import stat
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import ot
import pytest

from gibbsot import Gibbs, datasets, schedules, solve_batch
from gibbsot.core import native
from kernels import using
from paper import bounds, chains, factorisations, figure1, figure2, figure3, figure5, plans, report
from paper.outcome import Claim, Outcome, Run
from paper.slips import SLIPS

pytestmark = pytest.mark.filterwarnings("ignore:max_epochs:sklearn.exceptions.ConvergenceWarning")  # of short fits

MODULES = {"figure1": figure1, "figure2": figure2, "figure3": figure3, "bounds": bounds}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def found(folder) -> dict[str, Outcome]:
    return {result.name: result for result in report.reproduce(list(MODULES), folder, quick=True, seed=3)}


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def numbers(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_files_and_claims(found, name):
    result = found[name]
    assert result.name == name
    assert result.title
    assert result.sentence.endswith(".")
    for path in result.pictures:
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert path.with_suffix(".pdf").read_bytes()[:4] == b"%PDF"
        assert path.stat().st_size > 20_000
    assert all(path.stat().st_size > 50 for path in result.data)
    for claim in result.claims:
        assert claim.holds in (True, False, None)
        assert not isinstance(claim.holds, np.bool_)
        assert any(character.isdigit() for character in claim.measured)
        assert "nan" not in claim.measured


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_the_same_seed_gives_the_same_bytes(found, name, tmp_path):
    shares = []
    again = MODULES[name].run(Run(tmp_path, True, 3, n_jobs=2, advance=lambda share, _="": shares.append(share)))
    assert sum(shares) == pytest.approx(1)
    assert again.claims == found[name].claims
    for old, new in zip(found[name].data, again.data, strict=True):
        assert new.name == old.name
        assert new.read_bytes() == old.read_bytes()


@pytest.mark.slow
def test_figure1_is_a_run_of_the_sampler(found, folder):
    snapshots = numbers(folder, "figure1")["snapshots"]
    assert [snapshot["sweeps"] for snapshot in snapshots] == [20, 40, 60]
    table = rows(folder, "figure1")
    assert len(table) == 3 * 128
    for row in table:
        assert float(row["g"]) <= float(row["U"])
        assert float(row["h"]) >= float(row["L"])
    # the last sweep's L and U by their definitions
    M = datasets.coulomb_uniform().cost.matrix()
    g, L = (np.array([float(row[name]) for row in table if row["sweeps"] == "60"]) for name in "gL")
    np.testing.assert_allclose(L, (g[:, None] - M).max(axis=0), rtol=1e-12)
    for snapshot in snapshots:
        # 2 x 128 x 100 exponentials, of which 95 % are in the band: five standard deviations
        assert snapshot["inside"] == pytest.approx(0.95, abs=5 * np.sqrt(0.95 * 0.05 / 25_600))
        assert snapshot["band"] == pytest.approx(np.log(20) * snapshot["T"] * 128)
        assert snapshot["measured"] == pytest.approx([snapshot["band"]] * 2, rel=0.1)
    assert found["figure1"].claims[0].holds is True


@pytest.mark.slow
def test_figure1_finds_noise_that_is_not_exponential(tmp_path, monkeypatch):
    """Samples at 1.1 times their distance: the band gets thinner as well, but does not hold 95 %."""
    run = figure1.sampler.run

    def wrong(*args, **options):
        state, info = run(*args, **options)
        return state, info._replace(g=info.U - 1.1 * (info.U - info.g))

    monkeypatch.setattr(figure1.sampler, "run", wrong)
    assert figure1.run(Run(tmp_path, quick=True)).claims[0].holds is False


@pytest.mark.slow
def test_figure2_agrees_with_pot(found, folder):
    p, q, cost = datasets.two_modes()
    W = ot.emd2(p, q, cost.matrix())
    assert numbers(folder, "figure2")["W"] == pytest.approx(W, rel=1e-9)
    table = {(row["method"], int(row["iterations"])): row for row in rows(folder, "figure2")}
    assert len(table) == 5 * 4
    for (method, budget), row in table.items():
        assert 0 <= float(row["plan_variation"]) <= 1
        assert float(row["plan_rounded"]) >= -1e-9  # a coupling costs W at least
        assert float(row["dual_error"]) >= -1e-9 or method == "B-ADMM"
        assert budget in (1, 10, 50, 200)
    Z = ot.sinkhorn(p, q, cost.matrix(), 2 / 128, numItermax=200, stopThr=0, warn=False)
    assert float(table["IBP 2/N", 200]["plan_cost"]) == pytest.approx((Z * cost.matrix()).sum() / W - 1, abs=1e-9)
    cooling = schedules.geometric(2 / 128, 200, ratio=200.0**-3)
    ours = solve_batch(np.tile(p, (5, 1)), q, cost, method=Gibbs(schedule=cooling, rng=3))
    error = np.median(np.abs(ours.value / W - 1))
    assert float(table["Gibbs-OT", 200]["error"]) == pytest.approx(error, abs=1e-9)
    assert error < 0.01
    # duals are compared with duals, and plans as couplings
    at = {method: row for (method, budget), row in table.items() if budget == 200}
    values, couplings = found["figure2"].claims[1:3]
    rivals = ["IBP 0.1/N", "IBP 0.5/N", "IBP 2/N", "B-ADMM"]
    lacking = [float(at[method]["dual_error"]) for method in rivals[:3]]
    assert values.holds is (float(at["Gibbs-OT"]["dual_error"]) < min(lacking))
    assert "primal only" in values.measured
    above = [float(at[method]["plan_rounded"]) for method in rivals]
    assert couplings.holds is (float(at["Gibbs-OT"]["plan_rounded"]) < min(above))


@pytest.mark.slow
def test_figure3_knows_the_answer(found, folder):
    assert numbers(folder, "figure3")["W"] == pytest.approx(2)
    table = {(row["method"], int(row["iterations"])): row for row in rows(folder, "figure3")}
    assert len(table) == 3 * 4
    p, q, cost = datasets.coulomb_uniform()
    Z = ot.sinkhorn(p, q, cost.matrix(), 0.5 / 128, numItermax=200, stopThr=0, warn=False)
    off = np.abs(Z.sum(axis=1) - p).sum() + np.abs(Z.sum(axis=0) - q).sum()
    assert float(table["entropic", 200]["marginals"]) == pytest.approx(off / 2, rel=1e-6)
    assert float(table["entropic", 200]["edge_peak"]) > 1.5
    assert float(table["Gibbs-OT", 200]["edge_peak"]) == pytest.approx(1, abs=0.3)
    exact = np.roll(np.eye(128), 64, axis=1) / 128
    assert float(table["entropic", 200]["variation"]) == pytest.approx(np.abs(Z - exact).sum() / 2, rel=1e-6)


@pytest.mark.slow
def test_bounds_hold(found, folder):
    for row in rows(folder, "bounds"):
        assert float(row["measured"]) <= float(row["bound"]) + 1e-12
    kept = numbers(folder, "bounds")
    assert kept["width_below"] > -kept["quantile_below"] > 0
    assert kept["width_above"] > kept["quantile_above"] > 0
    assert [claim.holds for claim in found["bounds"].claims] == [True, True, True, True, None]
    assert abs(kept["apart_where_cold_in_standard_errors"]) < 4
    assert kept["change_where_cold"] == pytest.approx(kept["expected_where_cold"], rel=0.2)


@pytest.mark.slow
def test_bounds_find_increments_that_are_wrong(tmp_path, monkeypatch):
    """Expected increments that are off by a fifth, and steps that are bounded too tightly, are found out."""
    trace = bounds.theory.trace

    def wrong(*args):
        state, seen = trace(*args)
        wide = seen.r[:, :1] + 30 * (seen.r - seen.r[:, :1])
        return state, seen._replace(increment=0.8 * seen.increment, r=wide)

    monkeypatch.setattr(bounds.theory, "trace", wrong)
    holds = [claim.holds for claim in bounds.run(Run(tmp_path, quick=True)).claims]
    assert holds[1:4] == [False, False, False]


@pytest.mark.slow
def test_chains(tmp_path):
    """The sentences without a figure, quick: every verdict but that on times, and numbers checked again."""
    [found] = report.reproduce(["chains"], tmp_path, quick=True, seed=3)
    warm, bias, gamma, variance, pinned, _, memory = found.claims
    assert [claim.holds for claim in (warm, bias, gamma, variance, pinned, memory)] == [True] * 6
    measured = [row for row in rows(tmp_path, "chains") if row["(E V(z) - W) / T"] != "not mixed"]
    assert len(measured) >= 15
    for row in measured:
        assert -4 * float(row["standard error"]) < float(row["(E V(z) - W) / T"]) < float(row["m1 + m2"])
    sweeps = rows(tmp_path, "chains_sweeps")
    assert float(sweeps[9]["warm"]) < float(sweeps[9]["cold"]) / 5
    section = (tmp_path / "report.html").read_text().split('<section id="chains">')[1]
    assert "<td>two modes on a line</td>" in section.split("</section>")[0]  # the table is shown


def test_chains_find_a_mean_below_the_cost():
    """A bias that is clearly negative contradicts the paper, unless the chains had not mixed."""
    energies = chains.Energies(1.0, -9.0, 1.0, 3.0, 10, 0.5)
    right = chains.Bias("a", 10, 0.1, 2.0, 0.1, True)
    wrong = right._replace(bias=-1.0)
    assert chains._bias_claims([right], energies)[0].holds is True
    assert chains._bias_claims([right, wrong], energies)[0].holds is False
    assert chains._bias_claims([right, wrong._replace(mixed=False)], energies)[0].holds is True
    assert chains._bias_claims([right], energies._replace(pvalue=1e-6))[1].holds is False
    assert chains._pinned_claim(1e-6).holds is False


def test_rounding_gives_couplings():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(4))
        Z = rng.random((5, 4)) * rng.integers(0, 2, (5, 4)) / 8
        R = plans.rounded(Z, p, q)
        np.testing.assert_allclose(R.sum(axis=1), p, atol=1e-15)
        np.testing.assert_allclose(R.sum(axis=0), q, atol=1e-15)
        assert (R >= 0).all()
        # the theorem of Altschuler, Weed and Rigollet: it moves twice the violation at most
        off = np.abs(Z.sum(axis=1) - p).sum() + np.abs(Z.sum(axis=0) - q).sum()
        assert np.abs(R - Z).sum() <= 2 * off + 1e-12
    coupling = np.outer(p, q)
    np.testing.assert_allclose(plans.rounded(coupling, p, q), coupling, atol=1e-15)


def test_entropic_plans_do_not_underflow():
    """The smallest epsilon of figure 2 is as well without logarithms; one that is not is found out."""
    pair = datasets.two_modes()
    M = pair.cost.matrix()
    Z, U, how = plans.entropic(pair, 0.1 / 128, 30)
    assert how == "sinkhorn"
    logged = ot.sinkhorn(pair.p, pair.q, M, 0.1 / 128, method="sinkhorn_log", numItermax=30, stopThr=0, warn=False)
    np.testing.assert_allclose(Z, logged, atol=1e-10)
    Z, V, how = plans.entropic(datasets.coulomb_uniform(), 0.1 / 128, 30)
    assert how == "sinkhorn_log"
    assert Z.sum() == pytest.approx(1)
    assert np.isfinite([U, V]).all()


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.slow
def test_report_is_one_page(found, folder):
    text = (folder / "report.html").read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert [section["id"] for section in page.all("section")] == [*MODULES, "slips"]
    assert len(page.all("img")) == sum(len(result.pictures) for result in found.values())
    for image in page.all("img"):
        assert image["src"].startswith("data:image/png;base64,")
        assert len(image["alt"]) > 20
    assert len(page.all("tr")) == 2 + len(SLIPS) + sum(len(result.claims) for result in found.values())
    for link in page.all("a"):
        target = link["href"]
        assert target[1:] in [*MODULES, "slips"] if target.startswith("#") else (folder / target).is_file()
    assert {meta.get("name") for meta in page.all("meta")} >= {"viewport", "color-scheme"}
    assert page.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert not page.all("script")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "h_j &lt; min_i (C_M + g_i)" in text
    for result in found.values():
        assert len(result.differs) > 50
        assert text.count("<strong>Other than in the paper.</strong>") == len(found)
        for claim in result.claims:
            assert claim.measured.split("(")[0].split("'")[0].replace("<", "&lt;").replace(">", "&gt;") in text


@pytest.mark.slow
def test_summary_says_the_same(found, folder):
    summary = numbers(folder, "summary")
    assert summary["settings"]["quick"] is True
    for kept, result in zip(summary["experiments"], found.values(), strict=True):
        assert [Claim(**claim) for claim in kept["claims"]] == list(result.claims)
        assert kept["data"] == [path.name for path in result.data]


@pytest.fixture
def stub(monkeypatch):
    """Experiments that count their runs and write next to nothing."""
    calls: list[str] = []

    def module(path: str, _package: str) -> SimpleNamespace:
        name = path[1:]

        def run(run):
            calls.append(name)
            if name == "table" and calls.count("table") == 1:
                raise KeyboardInterrupt
            run.advance(1.0)
            data = run.record(name, {"seed": run.seed})
            return Outcome(name, "A <title> & more", "It's seen.", [Claim("1 < 2", "it's 1", None)], [], [data])

        return SimpleNamespace(run=run)

    monkeypatch.setattr(report, "import_module", module)
    return calls


def test_outcomes_are_used_again(stub, tmp_path):
    first = report.reproduce(["figure1", "bounds"], tmp_path)
    assert report.reproduce(["bounds", "figure1", "bounds"], tmp_path) == first[::-1]
    assert stub == ["figure1", "bounds"]
    report.reproduce(["figure1"], tmp_path, seed=1)
    report.reproduce(["figure1"], tmp_path, seed=1, quick=True)
    (tmp_path / "figure1.json").unlink()
    report.reproduce(["figure1"], tmp_path, seed=1, quick=True)
    (tmp_path / "figure1.outcome.json").write_text("{")
    report.reproduce(["figure1"], tmp_path, seed=1, quick=True)
    assert stub == ["figure1", "bounds", *["figure1"] * 4]
    text = (tmp_path / "report.html").read_text()
    assert "A &lt;title&gt; &amp; more" in text
    assert "quick" in text


def test_the_report_keeps_what_other_calls_did(stub, tmp_path):
    report.reproduce(["bounds", "figure2"], tmp_path)
    assert [result.name for result in report.reproduce(["figure1"], tmp_path)] == ["figure1"]
    sections = Page((tmp_path / "report.html").read_text()).all("section")
    assert [section["id"] for section in sections] == ["figure1", "figure2", "bounds", "slips"]
    assert [kept["name"] for kept in numbers(tmp_path, "summary")["experiments"]] == ["figure1", "figure2", "bounds"]
    report.reproduce(["figure1"], tmp_path, seed=1)  # other settings: the rest is not of this report
    assert [kept["name"] for kept in numbers(tmp_path, "summary")["experiments"]] == ["figure1"]


def test_what_matters_is_part_of_the_settings(stub, tmp_path, monkeypatch):
    for faces in ("a.npz", "a.npz", "b.npz"):
        monkeypatch.setenv("GIBBSOT_FACES", faces)
        report.reproduce(["figure4", "figure5"], tmp_path)
    assert stub == ["figure4", "figure5", "figure5"]
    with using("numpy"):
        report.reproduce(["figure4"], tmp_path)
    assert stub[3:] == ([] if native.name() == "numpy" else ["figure4"])


@pytest.mark.parametrize("good", range(5))
def test_a_full_disk_leaves_nothing_of_the_experiment(stub, tmp_path, monkeypatch, good):
    """Files are written in this order: the data and the outcome of each experiment, then the summary and the report."""
    written = ["figure1.json", "figure1.outcome.json", "bounds.json", "bounds.outcome.json", "summary.json"]
    fsync, calls, out = os.fsync, [], tmp_path / "a" / "b"

    def full(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # folders are synced too
            calls.append(descriptor)
        if len(calls) > good:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as failure:
            report.reproduce(["figure1", "bounds"], out)
    assert failure.value.filename == str(out / written[good])
    assert failure.value.errno == errno.ENOSPC
    left = written[: good // 2 * 2]
    assert sorted(os.listdir(out) if left else os.listdir(tmp_path)) == sorted(left)
    report.reproduce(["figure1", "bounds"], out)
    assert sorted(os.listdir(out)) == sorted([*written, "report.html"])


def test_a_failure_leaves_older_files(stub, tmp_path, monkeypatch):
    report.reproduce(["figure1"], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    calls: list[int] = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        report.reproduce(["figure1"], tmp_path, seed=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_json_has_no_nan(tmp_path):
    path = Run(tmp_path).record("odd", {"a": [float("nan"), (1.5, float("-inf"))], "b": np.float64("nan")})
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {"a": [None, [1.5, None]], "b": None}


def test_an_interrupt_leaves_the_report_of_what_is_done(stub, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        report.reproduce(["figure1", "table", "bounds"], tmp_path)
    sections = Page((tmp_path / "report.html").read_text()).all("section")
    assert [section["id"] for section in sections] == ["figure1", "slips"]
    assert [kept["name"] for kept in numbers(tmp_path, "summary")["experiments"]] == ["figure1"]
    assert [result.name for result in report.reproduce(["figure1", "table", "bounds"], tmp_path)] == [
        "figure1",
        "table",
        "bounds",
    ]
    assert stub == ["figure1", "table", "table", "bounds"]


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"names: expected some of figure1, .* got 'figure9'"):
        report.reproduce(["figure9"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def without_faces(*args, **options):
    raise datasets.UnavailableError("faces: none here")


@pytest.mark.slow
def test_factorisations(tmp_path):
    """Figure 4, quick: components are weights, as sharp as the table says, and those of Gibbs-OT the nearest."""
    [found] = report.reproduce(["figure4"], tmp_path, quick=True)
    methods = {row["method"]: row for row in rows(tmp_path, "figure4")}
    components = numbers(tmp_path, "figure4-components")
    names = ("the paper's, as printed", "the authors' program", "ours", "ours, random start")
    assert list(methods) == list(components)
    assert list(methods)[:-1] == ["NMF", "smoothed W-NMF", *(f"Gibbs-OT, {name}" for name in names)]
    for method, row in methods.items():
        D = np.array(components[method])
        np.testing.assert_allclose(D.sum(axis=1), 1, atol=1e-6)
        assert float(row["effective pixels"]) == pytest.approx(np.mean(1 / (D**2).sum(axis=1)), rel=1e-3)
        assert float(row["with the best memberships"]) <= 1.01 * float(row["exact mean cost"])
    costs = {method: float(row["exact mean cost"]) for method, row in methods.items()}
    assert costs["Gibbs-OT, ours"] < costs["NMF"] < costs["smoothed W-NMF"]
    assert [claim.holds for claim in found.claims] == [True, True, None]
    assert found.pictures[0].stat().st_size > 10_000


@pytest.mark.parametrize(("ours", "holds"), [(0.04, True), (0.021, None), (0.001, False)])
def test_noise_is_what_plain_nmf_has_not(ours, holds):
    outliers = {"NMF": 0.02, "smoothed W-NMF": 0.001, "Gibbs-OT, the authors' program": ours}
    one = factorisations.Factorisation(np.ones((1, 1)), 1.0, 1.0, 0.0, 1.0, np.nan)
    made = {name: one._replace(outliers=share) for name, share in outliers.items()}
    [claim] = figure5._noise(made)
    assert claim.holds is holds
    assert all(f"{share:.2%}" in claim.measured for share in outliers.values())


def test_outliers_stand_out_alone():
    image = np.ones((6, 6))
    image[1, 1], image[0, 4], image[4, 4] = 0, 2, 1.05  # pepper, salt at the edge, and too little
    image[3, :2] = 5  # two together are a stroke
    assert factorisations._outliers(image) == pytest.approx(2 / 36)


def test_data_that_is_not_there_is_said(tmp_path, monkeypatch):
    """Figure 5 is not run, the table leaves the faces out, and neither is taken for done by the next call."""
    monkeypatch.setattr(datasets, "faces", without_faces)
    figure5, table = report.reproduce(["figure5", "table"], tmp_path, quick=True)
    assert "none here" in figure5.sentence
    assert not (tmp_path / "figure5.outcome.json").exists()
    assert [claim.holds for claim in table.claims if "faces" in claim.paper] == [None]
    assert len(table.claims) == 3
    assert table.complete is False
    assert not (tmp_path / "table.outcome.json").exists()
    assert [claim.holds for claim in table.claims if "Core i5" in claim.paper] == [None]
    text = (tmp_path / "report.html").read_text()
    assert "none here" in text
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, flags=re.DOTALL))
    assert "No figure: the data are not available here." in sections["figure5"]  # in the figure's place
    assert "files" not in sections["figure5"]
    assert "<td>our default</td>" in sections["table"]  # the times themselves, not a link alone
    assert "200 fives 28 x 28" in sections["table"]
    assert text.index("V(z) is the dual value") < text.index("<table>")  # symbols before they are used
