"""Awkward input of ``gibbsot ot``: the right answer, or one line that says what to do."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest

from cli_runs import Image, check_picture, fails, succeeds
from gibbsot import GridCost, PointCost, solve
from gibbsot.cli import main
from gibbsot.io import formats

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=(40, 2)) + 2
W = RNG.random(30)
PLANE = solve(None, None, PointCost(X, Y)).value


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(values, mark=",", point=".", header=""):
    rows = [mark.join(f"{x:.17g}".replace(".", point) for x in row) for row in values]
    return "\n".join(([header] if header else []) + rows) + "\n"


def write(name, text, encoding="utf-8"):
    with open(name, "w", encoding=encoding) as file:
        file.write(text)


def told(capfd, *words):
    """Run a command that succeeds with warnings; return the value and the warnings."""
    assert main([*map(str, words), "--json"]) == 0
    printed = capfd.readouterr()
    assert all(line.startswith("warning: ") for line in printed.err.splitlines())
    return json.loads(printed.out)["value"], printed.err


# what is read


@pytest.mark.parametrize(
    "text",
    [
        lines(X, header="x,y"),
        lines(X, mark=";", header="x;y"),
        lines(X, mark=";", point=","),
        lines(X, mark=";", point=",", header="L\xe4nge;Breite"),
        lines(X, mark="\t", header="x\ty"),
        lines(X, mark=" "),
        "\n\n" + lines(X).replace("\n", "\r\n"),
        "\n".join(f'"{a}","{b}"' for a, b in X.tolist()),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_tables_of_all_habits(capfd, text, encoding):
    write("a.csv", text, encoding)
    write("b.csv", lines(Y))
    report = succeeds(capfd, "ot", "a.csv", "b.csv", "--points")
    assert report["value"] == pytest.approx(PLANE, rel=1e-12)
    assert report["read"] == [f"{n} points in the plane, weights uniform" for n in (30, 40)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("header", "reason"), [(",x,y", "no name"), ("Unnamed: 0,x,y", "Unnamed: 0"), ("id,x,y", "id"), ("", "counts")]
)
def test_an_index_column_is_named_and_can_be_left_out(capfd, header, reason):
    write("a.csv", lines(np.column_stack([np.arange(30), X]), header=header))
    write("b.csv", lines(np.column_stack([np.arange(40) + 1, Y]), header=header))
    value, warned = told(capfd, "ot", "a.csv", "b.csv", "--points")
    assert value > PLANE
    assert warned.count("\n") == 2
    assert "a.csv: the first column looks like an index" in warned
    assert reason in warned
    value, warned = told(capfd, "ot", "a.csv", "b.csv", "--points", "--columns", "2,3")
    assert value == pytest.approx(PLANE, rel=1e-12)
    assert warned == ""


@pytest.mark.filterwarnings("default")
def test_columns_that_only_count_because_they_are_coordinates(capfd):
    write("a.csv", "x,weight\n0,1\n1,2\n2,3\n")
    write("b.csv", "0,1\n1,2\n2,3\n")
    assert told(capfd, "ot", "a.csv", "b.csv", "--points", "--weighted") == (0, "")


@pytest.mark.filterwarnings("default")
def test_a_first_line_of_numbers_that_may_be_names(capfd):
    write("a.csv", "0,1\n" + lines(X))
    write("b.csv", lines(Y))
    assert "a.csv: the first line, 0, 1, ..., is taken as data" in told(capfd, "ot", "a.csv", "b.csv", "--points")[1]


def test_points_against_what_is_none(capfd):
    write("a.csv", lines(X, header="x,y"))
    write("b.csv", lines(abs(Y)))
    assert "b.csv: expected points, as a.csv has columns x, y" in fails(capfd, "ot", "a.csv", "b.csv")


@pytest.mark.filterwarnings("default")
def test_a_weight_that_is_taken_as_a_coordinate(capfd):
    write("a.csv", lines(np.column_stack([W, X]), header="Weight,x,y"))
    write("b.csv", lines(np.column_stack([Y, np.ones(40)]), header="x,y,mass"))
    warned = told(capfd, "ot", "a.csv", "b.csv", "--points")[1]
    assert "a.csv: column 'Weight' is taken as a coordinate; --weighted" in warned
    assert "b.csv: column 'mass' is taken as a coordinate" in warned
    write("b.csv", lines(np.column_stack([np.ones(40), Y]), header="Weight,x,y"))
    value, warned = told(capfd, "ot", "a.csv", "b.csv", "--points", "--weighted", "--columns", "x,y,Weight")
    assert warned == ""
    assert value == pytest.approx(solve(W, np.ones(40), PointCost(X, Y), normalize=True).value, rel=1e-9)


def test_words_in_a_column_that_is_not_chosen(capfd):
    rows = [f"point {k},{a:.17g},{b:.17g}" for k, (a, b) in enumerate(X)]
    write("a.csv", "\n".join(rows))
    write("b.csv", lines(np.column_stack([np.ones(40), Y])))
    value = succeeds(capfd, "ot", "a.csv", "b.csv", "--points", "--columns", "2,3")["value"]
    assert value == pytest.approx(PLANE, rel=1e-12)


def test_one_point(capfd):
    write("a.csv", "3,4\n")
    write("b.csv", "0,0\n")
    report = succeeds(capfd, "ot", "a.csv", "b.csv", "--points")
    assert (report["value"], report["read"][0]) == (25, "1 point in the plane, weights uniform")


def test_images_of_all_modes(capfd):
    grey = RNG.integers(0, 200, (6, 5), dtype=np.uint8)
    other = RNG.integers(0, 200, (6, 5), dtype=np.uint8)
    Image.fromarray(other).save("b.png")
    expected = solve(grey.ravel(), other.ravel(), GridCost((6, 5)), normalize=True).value
    opaque = np.full((6, 5), 255, np.uint8)
    pictures = {
        "L": Image.fromarray(grey),
        "RGB": Image.fromarray(np.stack([grey] * 3, axis=2)),
        "RGBA": Image.fromarray(np.stack([grey] * 3 + [opaque], axis=2)),
        "LA": Image.fromarray(np.stack([grey, opaque], axis=2)),
        "P": Image.fromarray(grey).convert("P"),
        "I;16": Image.fromarray(grey.astype(np.uint16) * 256),
    }
    for mode, picture in pictures.items():
        assert picture.mode == mode
        picture.save("a.png")
        report = succeeds(capfd, "ot", "a.png", "b.png")
        assert report["value"] == pytest.approx(expected, rel=1e-9), mode
        assert report["read"][0].startswith("an image of 6 x 5 pixels")


@pytest.mark.filterwarnings("default")
def test_frames_of_an_animation(capfd):
    frames = [Image.fromarray(np.full((4, 4), k, np.uint8)) for k in (10, 20, 30)]
    frames[0].save("a.gif", save_all=True, append_images=frames[1:])
    frames[0].save("b.png")
    value, warned = told(capfd, "ot", "a.gif", "b.png")
    assert "a.gif: has 3 frames; the first is taken" in warned
    assert value == 0


def test_equal_images_and_all_equal_pixels(capfd):
    Image.fromarray(RNG.integers(0, 200, (20, 20), dtype=np.uint8)).save("a.png")
    assert succeeds(capfd, "ot", "a.png", "a.png")["value"] == 0
    for name, value in (("a", 7), ("b", 200)):
        Image.fromarray(np.full((9, 9), value, np.uint8)).save(f"{name}.png")
    assert succeeds(capfd, "ot", "a.png", "b.png")["value"] == 0


def test_one_image_of_a_stack(capfd):
    stack = RNG.random((5, 4, 3))
    np.savez("a.npz", images=stack, labels=np.arange(5))
    report = succeeds(capfd, "ot", "a.npz", "a.npz", "--rows", "0", "4")
    expected = solve(stack[0].ravel(), stack[4].ravel(), GridCost((4, 3)), normalize=True).value
    assert report["value"] == pytest.approx(expected, rel=1e-9)
    assert report["read"] == ["an image of 4 x 3 pixels"] * 2
    assert "--rows I J" in succeeds(capfd, "ot", "a.npz", "a.npz")["read"][0]


def test_arrays_of_other_types(capfd):
    weights = RNG.integers(0, 2, 20)
    weights[0] = 1
    np.save("b.npy", np.ones(20))
    values = set()
    for dtype in (bool, np.uint8, ">i4", np.float16, "<f4"):
        np.save("a.npy", np.asfortranarray(weights.astype(dtype)))
        values.add(round(succeeds(capfd, "ot", "a.npy", "b.npy")["value"], 12))
    assert len(values) == 1


# what is refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "(it is empty)"),
        (b"\n \n", "(it is empty)"),
        (b"x,y\n", "(it has the names of columns, but no rows)"),
        (b"x,y\n1,2\n\n3\n", "(line 4 has 1 fields, line 2 has 2)"),
        (b"1,2\n3,4,5\n", "(line 2 has 3 fields, line 1 has 2)"),
        (b"1,2\n3,\n", "(line 2 has an empty field)"),
        (b"1,2\n3,NaN\n", "has NaN or infinite coordinates"),
        (b"1,2\n3,n/a\n", "(line 2 has 'n/a', which is not a number)"),
        (b"1,5\t2,5\n1,5\t2,7\n", "decimal commas need semicolons"),
        (b"1,5;2.5\n1,5;2\n", "(it has both decimal commas and decimal points)"),
        (b"1.234,5;2,5\n0,25;4,0\n", "(line 1 has '1.234,5', which is not a number; expected numbers without"),
        (b"Dear all,\nthe data are attached.\nRegards\n", "expected a table of numbers"),
        (b"\x00\x01\x02\x89", "is not text"),
        (b"PK\x03\x04", "is not text"),
    ],
)
def test_tables_that_are_none(capfd, content, message):
    write("b.csv", lines(Y))
    with open("a.csv", "wb") as file:
        file.write(content)
    line = fails(capfd, "ot", "a.csv", "b.csv", "--points")
    assert line.startswith("error: a.csv: ")
    assert message in line


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("negative", [[1.0, -1.0]], "has negative weights, the first at entry 1"),
        ("nan", [np.nan, 1.0], "has NaN weights"),
        ("zero", np.zeros((4, 4)), "has no mass"),
        ("words", np.array(["a", "b"]), "expected real numbers, got an array of <U1"),
        ("complex", np.array([1j]), "expected real numbers"),
        ("objects", np.array([None, 1], object), "it has Python objects; expected numbers"),
        ("records", np.zeros(3, [("x", float)]), "expected real numbers"),
        ("empty", np.zeros((0, 3)), "expected weights on a grid"),
        ("four", np.ones((2, 2, 2, 2)), "one to three axes"),
    ],
)
def test_arrays_that_are_no_measures(capfd, name, values, message):
    np.save(f"{name}.npy", values, allow_pickle=True)
    np.save("b.npy", np.ones(2))
    line = fails(capfd, "ot", f"{name}.npy", "b.npy")
    assert line.startswith(f"error: {name}.npy: ")
    assert message in line


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither pipes nor devices in folders")
def test_pipes_and_devices_are_refused(capfd):
    """They may have no end, and nobody may ever write to them."""
    write("b.csv", lines(Y))
    os.mkfifo("pipe.csv")
    for words in (("ot", "pipe.csv", "pipe.csv"), ("ot", "b.csv", "pipe.csv", "--points")):
        assert "pipe.csv: is a pipe; expected a file, or - for a table from standard input" in fails(capfd, *words)
    assert "/dev/zero: is a device; expected a file" in fails(capfd, "ot", "/dev/zero", "b.csv")
    line = fails(capfd, "nmf", "pipe.csv", "--components", 2, "--out", "out")
    assert "pipe.csv: is a pipe" in line


def test_a_table_from_standard_input(capfd, monkeypatch):
    write("b.csv", lines(Y))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(X, header="x,y").encode())))
    assert succeeds(capfd, "ot", "-", "b.csv", "--points")["value"] == pytest.approx(PLANE)
    assert "standard input is one table" in fails(capfd, "ot", "-", "-")
    monkeypatch.setattr(formats, "_LONGEST_INPUT", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(X).encode())))
    assert "-: standard input is longer" in fails(capfd, "ot", "-", "b.csv", "--points")


def test_errors_without_words(capfd, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("gibbsot.io.readers.measure", fail)
    assert fails(capfd, "ot", "a.csv", "b.csv") == "error: not enough memory\n"


def test_long_lines_need_no_matrix(capfd):
    weights = RNG.random((2, 40_000))
    for name, row in zip("ab", weights, strict=True):
        np.save(f"{name}.npy", row)
    cost = PointCost(np.arange(40_000) / 40_000)
    report = succeeds(capfd, "ot", "a.npy", "b.npy")
    assert report["value"] == pytest.approx(solve(*weights, cost, normalize=True).value, rel=1e-9)
    assert report["cost"] == "squared distance, in units of the longest side of the grid"
    assert succeeds(capfd, "ot", "a.npy", "b.npy", "--power", "1")["status"] == "optimal"


def test_weights_with_a_cost_matrix_have_no_place(capfd):
    np.save("a.npy", np.ones(2))
    np.save("M.npy", np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert succeeds(capfd, "ot", "a.npy", "a.npy", "--cost", "M.npy")["read"] == ["2 weights", "2 weights"]


def test_points_that_are_taken_as_weights(capfd):
    write("a.csv", lines(X, header="east,north"))
    assert "if the rows are points: --points" in fails(capfd, "ot", "a.csv", "a.csv")


def test_archives(capfd):
    np.savez("two.npz", x=np.ones(3), y=np.ones(3))
    assert "two.npz: has the arrays x, y; choose one with the key (--key)" in fails(capfd, "ot", "two.npz", "two.npz")
    assert succeeds(capfd, "ot", "two.npz", "two.npz", "--key", "x")["value"] == 0
    with zipfile.ZipFile("a.npz", "w") as file:
        file.writestr("readme.txt", "no array")
    assert "a.npz: is damaged or not an npz file of numbers" in fails(capfd, "ot", "a.npz", "a.npz")


def test_an_archive_that_unpacks_to_more_than_its_array(capfd):
    np.save("x.npy", np.ones(3))
    with open("x.npy", "ab") as file:
        file.write(b"\0" * 10**6)
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.write("x.npy")
    assert "but its header promises 152" in fails(capfd, "ot", "a.npz", "a.npz")


def test_images_of_different_sizes(capfd):
    Image.fromarray(np.ones((8, 6), np.uint8)).save("a.png")
    Image.fromarray(np.ones((6, 8), np.uint8)).save("b.png")
    assert "b.png: is 6 x 8, a.png is 8 x 6; expected one size (or --size, --cost)" in fails(
        capfd, "ot", "a.png", "b.png"
    )
    assert succeeds(capfd, "ot", "a.png", "b.png", "--size", "3", "3")["value"] == pytest.approx(0, abs=1e-12)


def test_huge_images_are_refused_or_read_scaled(capfd):
    for side in (13_000, 20_000):  # the second is beyond Pillow's own limit
        header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        with open("a.png", "wb") as file:  # the pixels are missing, as they are not read
            file.write(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)))
            file.write(struct.pack(">I", 10**6) + b"IDAT")
        line = fails(capfd, "ot", "a.png", "a.png")
        assert "a.png: " in line
        assert "expected at most 16.8 million pixels, or a size to shrink to (--size)" in line
    pixels = RNG.integers(0, 2, (50, 60)).repeat(76, axis=0).repeat(76, axis=1)
    Image.fromarray(pixels.astype(np.uint8)).save("a.png", compress_level=1)
    report = succeeds(capfd, "ot", "a.png", "a.png", "--size", "25", "30", "--plan", "plan.csv")
    assert report["read"][0].startswith("an image of 25 x 30 pixels")
    small = pixels[::76, ::76].reshape(25, 2, 30, 2).mean(axis=(1, 3)).ravel()
    plan = np.loadtxt("plan.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(np.bincount(plan[:, 0].astype(int), plan[:, 2], 750), small / small.sum(), atol=1e-12)


def test_folders_and_missing_files(capfd):
    os.mkdir("data")
    assert "data: is a folder; expected a file" in fails(capfd, "ot", "data", "data")
    assert "none.csv: there is no such file" in fails(capfd, "ot", "none.csv", "none.csv")


# names


@pytest.mark.skipif(os.name == "nt", reason="such names are not allowed")
def test_names_with_escape_sequences_do_not_reach_the_terminal(capfd):
    name = "\x1b[2J\x07evil\n.npy"
    line = fails(capfd, "ot", name, name)
    assert line == "error: \\x1b[2J\\x07evil .npy: there is no such file\n"
    np.save(name, np.ones(3))
    assert main(["ot", name, name]) == 0
    printed = capfd.readouterr()
    assert printed.err.splitlines()[:2] == ["\\x1b[2J\\x07evil\\n.npy: 3 weights on a line"] * 2
    if sys.platform == "linux":
        os.mkdir(b"\xff\xfe")
        assert (
            fails(capfd, "ot", os.fsdecode(b"\xff\xfe"), name)
            == "error: \\udcff\\udcfe: is a folder; expected a file\n"
        )


@pytest.mark.parametrize(
    "stem", ["$a^b", "$a^b$", "$\\frac{1$", "\u5730\u56fe", "_under", "\x1b[2J", "a_b & <i>", "[red]x[/]"]
)
def test_names_do_not_break_pictures(capfd, stem):
    Image.fromarray(RNG.integers(0, 200, (6, 5), dtype=np.uint8)).save(f"{stem.replace('/', '-')}.png")
    name = f"{stem.replace('/', '-')}.png"
    succeeds(capfd, "ot", name, name, "--plan-picture", "plan.png")
    check_picture("plan.png")
