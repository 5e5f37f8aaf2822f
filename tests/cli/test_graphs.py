"""``gibbsot ot --graph``: edge lists and weights of nodes."""

from __future__ import annotations

import pytest

from cli_runs import fails, succeeds

ROADS = "from,to,length\nmill,bridge,2\nbridge,market,3\nmill,market,10\n"


@pytest.fixture
def roads(tmp_path):
    files = {"roads.csv": ROADS, "a.csv": "mill,1\nmarket,1\n", "b.csv": "node,weight\nbridge,2\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def words(folder, *more):
    return ["ot", folder / "a.csv", folder / "b.csv", "--graph", folder / "roads.csv", *more]


def test_the_cost_is_the_shortest_path(roads, capfd):
    report = succeeds(capfd, *words(roads, "--plan", roads / "plan.csv", "--flow", roads / "flow.csv"))
    assert report["value"] == pytest.approx(2.5)
    assert report["status"] == "optimal"
    assert (roads / "plan.csv").read_text() == "i,j,mass\nmill,bridge,0.5\nmarket,bridge,0.5\n"
    assert (roads / "flow.csv").read_text() == "from,to,mass\nmill,bridge,0.5\nmarket,bridge,0.5\n"


@pytest.mark.parametrize(
    ("mark", "encoding"), [("\t", "utf-8-sig"), (";", "latin-1"), ("  ", "utf-16"), (", ", "utf-8")]
)
def test_separators_and_encodings(roads, capfd, mark, encoding):
    text = ROADS.replace("mill", "m\u00fchle").replace(",", mark)
    (roads / "roads.csv").write_text(text, encoding=encoding)
    (roads / "a.csv").write_text(f"m\u00fchle{mark}1\nmarket{mark}1\n", encoding=encoding)
    assert succeeds(capfd, *words(roads))["value"] == pytest.approx(2.5)


def test_directed_edges(roads, capfd):
    message = fails(capfd, *words(roads, "--directed", "--quiet"))
    assert "row 2 has weight in p but only infinite costs" in message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("roads.csv", "mill,bridge,2\nbridge,market\n", "line 2: has 2 columns; expected from,to,length"),
        ("roads.csv", "mill,bridge,2\n\nbridge,market,far\n", "line 3: 'far'; expected a length of at least 0"),
        ("roads.csv", "mill,bridge,-2\n", "line 1: '-2'; expected a length of at least 0"),
        ("roads.csv", "from,to,length\n", "has no edges"),
        ("a.csv", "mill,1\nabbey,2\n", "line 2: node 'abbey' is in no edge"),
        ("a.csv", "mill,1\nmill,2\n", "line 2: node 'mill' has a weight in line 1 already"),
        ("a.csv", "mill,nan\n", "line 1: 'nan'; expected a weight of at least 0"),
        ("a.csv", "mill,0\n", "no node has weight"),
        ("roads.csv", "mill,bridge,2\n" + 200_000 * "x" + ",b,1\n", "line 2: field larger than field limit"),
        ("roads.csv", "mill\tbridge\t2\nbridge,market\t3\n", "line 2: has 2 columns"),
    ],
)
def test_errors_name_the_line(roads, capfd, name, text, message):
    (roads / name).write_text(text)
    assert f"{name}: {message}" in fails(capfd, *words(roads))


def test_options_that_do_not_go_together(roads, capfd):
    assert "--graph: leave out --points" in fails(capfd, *words(roads, "--points"))
    assert "need --graph" in fails(capfd, "ot", roads / "a.csv", roads / "b.csv", "--directed")
