from __future__ import annotations

import gzip
import io
import re
import struct
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from scipy import sparse

from gibbsot.io import formats, readers

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(1, 255, (5, 4), dtype=np.uint8)


def write_idx(path, values, packed=False):
    values = np.asarray(values, np.uint8)
    content = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def npy(shape):
    """A file of NumPy's whose header claims a shape, without the numbers."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".pgm", ".tif", ".PNG"])
def test_image_files_give_their_pixels(tmp_path, suffix):
    Image.fromarray(PIXELS).save(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(readers.image(tmp_path / f"a{suffix}"), PIXELS)
    np.testing.assert_array_equal(readers.image(tmp_path / f"a{suffix}", invert=True), 255.0 - PIXELS)


def test_deep_images_keep_their_shades(tmp_path):
    deep = PIXELS.astype(np.uint16) * 200
    Image.fromarray(deep).save(tmp_path / "a.png")
    np.testing.assert_array_equal(readers.image(tmp_path / "a.png"), deep)
    assert readers.image(tmp_path / "a.png", invert=True).min() == 0


@pytest.mark.parametrize("invert", [False, True])
def test_what_is_transparent_has_no_weight(tmp_path, invert):
    picture = np.full((2, 3, 4), 128, np.uint8)
    picture[..., 3] = [[255, 255, 0], [0, 255, 0]]
    Image.fromarray(picture).save(tmp_path / "a.png")
    found = readers.image(tmp_path / "a.png", invert=invert)
    np.testing.assert_array_equal(found > 0, picture[..., 3] > 0)


def test_arrays_come_back_from_every_format(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    x = RNG.integers(0, 200, (4, 3)).astype(np.uint8)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "one.npz", whatever=x)
    np.savez(tmp_path / "two.npz", images=x, more=x + 1)
    np.savetxt(tmp_path / "comma.csv", x, delimiter=",")
    np.savetxt(tmp_path / "semicolon.csv", x, delimiter=";", header="a;b;c", comments="")
    np.savetxt(tmp_path / "space.txt", x)
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "comma.csv").read_bytes())
    parquet.write_table(pa.table({name: x[:, k] for k, name in enumerate("abc")}), tmp_path / "a.parquet")
    write_idx(tmp_path / "a-idx2-ubyte", x)
    write_idx(tmp_path / "a-idx2-ubyte.gz", x, packed=True)
    for path in tmp_path.iterdir():
        found = readers.array(path)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, x, err_msg=path.name)
    np.testing.assert_array_equal(readers.array(tmp_path / "two.npz", "more"), x + 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.npy", None, "there is no such file"),
        ("a.npy", b"not numpy", "is damaged or not an array"),
        ("a.npy", npy("(3,"), "is damaged or not an array"),
        ("a.npy", npy("(1" + 30 * "0" + ",)"), "is damaged or not an array"),
        ("a.npy", npy("(1000000000000000,)"), "is damaged or not an array"),
        ("a.npz", b"not a zip", "is damaged or not an npz"),
        ("a.csv", b"", "it is empty"),
        ("a.csv", b"x,y\n", "names of columns, but no rows"),
        ("a.csv", b"1" * 200_000 + b",2\n", "expected a table of numbers"),
        ("a.csv", b"1,2\n3\n", "expected a table of numbers"),
        ("a.csv", b"1,2\n3,x\n", "expected a table of numbers"),
        ("a.csv", b"\x00\x81\xff", "is not text"),
        ("a.parquet", b"PAR1", "is damaged or not a Parquet"),
        ("a-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x05ab", "is damaged, its length"),
        ("a-idx1-ubyte", b"\0\0\x08\x03\0", "is damaged, its length"),
        ("a-idx1-ubyte.gz", b"\x1f\x8bxxx", "decompression failed"),
        ("a.doc", b"hello", "has an unknown format; expected an image"),
        ("a", b"", "has an unknown format"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        readers.array(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_arrays_that_are_no_numbers(tmp_path):
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    with pytest.raises(ValueError, match=r"words\.npy: expected real numbers"):
        readers.array(tmp_path / "words.npy")
    np.save(tmp_path / "things.npy", np.array([{}], object))
    with pytest.raises(ValueError, match=r"things\.npy: is damaged or not an array"):
        readers.array(tmp_path / "things.npy")


def test_an_archive_of_several_arrays_needs_the_key(tmp_path):
    np.savez(tmp_path / "a.npz", x=PIXELS, y=PIXELS)
    with pytest.raises(ValueError, match="has the arrays x, y"):
        readers.array(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="has no array 'z', only x, y"):
        readers.array(tmp_path / "a.npz", "z")


def test_a_cut_archive(tmp_path):
    np.savez(tmp_path / "a.npz", x=PIXELS)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[150] ^= 255  # one bit more in the data than the checksum knows
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or not an npz"):
        readers.array(tmp_path / "a.npz")


@pytest.mark.parametrize(("module", "name"), [("PIL", "a.png"), ("pyarrow", "a.parquet")])
def test_missing_packages_are_named(tmp_path, monkeypatch, module, name):
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="pip install 'gibbsot"):
        (readers.image if name == "a.png" else readers.array)(tmp_path / name)


def test_a_measure_on_a_grid_sums_to_one(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    found = readers.measure(tmp_path / "a.png")
    assert found.shape == (5, 4)
    assert found.points is None
    np.testing.assert_allclose(found.weights, PIXELS.ravel() / PIXELS.sum())
    small = readers.measure(tmp_path / "a.png", size=(2, 2))
    assert small.shape == (2, 2)


@pytest.mark.parametrize("text", ["1\n2\n1\n", "1,2,1\n", "weight\n1\n2\n1"])
def test_one_line_or_one_column_is_a_measure_on_a_line(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    found = readers.measure(tmp_path / "a.csv")
    assert found.shape == (3,)
    np.testing.assert_allclose(found.weights, [0.25, 0.5, 0.25])


@pytest.mark.parametrize("header", ["x,y", "X, Y, weight", "x,y,z", "x,y,z,mass"])
def test_columns_x_and_y_are_points(tmp_path, header):
    rows = np.random.default_rng(0).random((5, header.count(",") + 1))
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header=header, comments="")
    found = readers.measure(tmp_path / "a.csv")
    weighted = header[-1] not in "yz"
    assert found.weighted == weighted
    np.testing.assert_array_equal(found.points, rows[:, :-1] if weighted else rows)
    np.testing.assert_allclose(found.weights, rows[:, -1] / rows[:, -1].sum() if weighted else 0.2)


def test_the_names_that_pandas_gives_are_no_measure(tmp_path):
    rows = np.arange(20.0).reshape(4, 5)
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="0,1,2,3,4", comments="")
    np.testing.assert_array_equal(readers.collection(tmp_path / "a.csv").rows, rows)


def test_points_with_and_without_weights(tmp_path):
    (tmp_path / "a.csv").write_text("0,1,3\n2,2,1\n")
    found = readers.measure(tmp_path / "a.csv", points=True)
    assert found.points.shape == (2, 3)
    np.testing.assert_allclose(found.weights, 0.5)
    found = readers.measure(tmp_path / "a.csv", points=True, weighted=True)
    np.testing.assert_array_equal(found.points, [[0, 1], [2, 2]])
    np.testing.assert_allclose(found.weights, [0.75, 0.25])


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([1, np.nan], {}, "has NaN weights, the first at entry 1"),
        ([1, np.inf], {}, "has infinite weights, the first at entry 1"),
        ([[1, -1]], {}, "has negative weights, the first at entry 1"),
        ([0, 0], {}, "has no mass"),
        ([1e308, 1e308], {}, "a sum that overflows"),
        (np.ones((2, 2, 2, 2)), {}, "one to three axes"),
        ([], {}, "one to three axes"),
        ([[1, np.nan]], {"points": True}, "NaN or infinite coordinates"),
        ([1, 2], {"points": True, "weighted": True}, "expected points as rows"),
        (np.ones((2, 2, 2)), {"points": True}, "expected points as rows"),
        ([1, 2], {"size": (1, 1)}, "expected an image to shrink"),
    ],
)
def test_bad_measures(tmp_path, values, options, message):
    np.save(tmp_path / "a.npy", np.asarray(values, np.float64))
    with pytest.raises(ValueError, match=rf"a\.npy: .*{message}"):
        readers.measure(tmp_path / "a.npy", **options)


def test_a_folder_in_the_order_of_its_names(tmp_path):
    for k in (10, 2, 1):
        (tmp_path / f"s{k}").mkdir()
        Image.fromarray(np.full((3, 2), k, np.uint8)).save(tmp_path / f"s{k}" / "1.pgm")
    (tmp_path / "readme.txt").write_text("not an image")
    Image.fromarray(np.full((9, 9), 1, np.uint8)).save(tmp_path / ".thumbnail.png")
    found = readers.collection(tmp_path)
    assert found.shape == (3, 2)
    np.testing.assert_array_equal(found.rows[:, 0], [1, 2, 10])
    assert len(readers.collection(tmp_path, limit=2).rows) == 2


def test_folders_that_will_not_do(tmp_path):
    with pytest.raises(ValueError, match="has no images"):
        readers.collection(tmp_path)
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    Image.fromarray(PIXELS.T.copy()).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"b\.png: is 4 x 5, a\.png is 5 x 4; expected one size"):
        readers.collection(tmp_path)
    assert readers.collection(tmp_path, size=(3, 3)).rows.shape == (2, 9)
    with pytest.raises(ValueError, match=r"a\.png: shape: expected at most"):
        readers.collection(tmp_path, size=(9, 9))
    with pytest.raises(ValueError, match=r"a\.png: is one image; expected a folder of them"):
        readers.collection(tmp_path / "a.png")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        readers.collection(tmp_path / "none.png")
    (tmp_path / "c.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"c\.png: is damaged or not an image"):
        readers.collection(tmp_path, size=(3, 3))


def test_a_matrix_and_the_shape_of_its_images(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((6, 12)))
    assert readers.collection(tmp_path / "a.npy").shape is None
    assert readers.collection(tmp_path / "a.npy", shape=(4, 3)).shape == (4, 3)
    with pytest.raises(ValueError, match="has rows of 12; expected 10"):
        readers.collection(tmp_path / "a.npy", shape=(5, 2))
    with pytest.raises(ValueError, match="only images can be resized"):
        readers.collection(tmp_path / "a.npy", size=(1, 1))


def test_a_sparse_matrix_is_a_collection(tmp_path):
    dense = np.where(RNG.random((6, 12)) < 0.5, RNG.random((6, 12)), 0)
    sparse.save_npz(tmp_path / "a.npz", sparse.csc_array(dense))
    found = readers.collection(tmp_path / "a.npz", limit=4)
    assert sparse.issparse(found.rows)
    np.testing.assert_array_equal(found.rows.toarray(), dense[:4])
    assert found.shape is None
    images = readers.collection(tmp_path / "a.npz", shape=(4, 3))
    np.testing.assert_array_equal(images.rows, dense)
    assert images.shape == (4, 3)
    labels = write_idx(tmp_path / "labels-idx1-ubyte", [5, 1, 5, 2, 5, 5])
    assert readers.collection(tmp_path / "a.npz", labels=labels, label=5).rows.shape == (4, 12)
    with pytest.raises(ValueError, match=r"expected shape \(n, height, width\) or \(n, m\)"):
        readers.collection(tmp_path / "a.npz", key="data")


def test_a_table_with_an_index_is_named(tmp_path):
    (tmp_path / "a.csv").write_text(",x,y\n0,1,2\n1,3,4\n2,5,6\n")
    with pytest.warns(UserWarning, match=r"a\.csv: the first column looks like an index .* leave it out of the file"):
        assert readers.collection(tmp_path / "a.csv").rows.shape == (3, 3)


def test_labels_select(tmp_path):
    images = write_idx(tmp_path / "images-idx3-ubyte.gz", RNG.integers(1, 9, (6, 4, 3)), packed=True)
    labels = write_idx(tmp_path / "labels-idx1-ubyte", [5, 1, 5, 2, 5, 5])
    found = readers.collection(images, labels=labels, label=5, limit=3)
    assert found.shape == (4, 3)
    np.testing.assert_array_equal(found.rows, readers.collection(images).rows[[0, 2, 4]])
    for options, message in (
        ({"labels": labels, "label": 7}, "none of the 6 labels is 7"),
        ({"label": 7}, "expected both"),
        ({"labels": images, "label": 7}, "expected 6 labels"),
        ({"limit": 0}, "limit: expected at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            readers.collection(images, **options)


def peak(call) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", ["surplus", "shape", "huge shape", "sparse"])
def test_what_unpacks_to_more_than_promised_is_not_unpacked(tmp_path, what):
    """Each file has some 20 kB and would unpack to 20 MB or more."""
    zeros = bytes(20_000_000)
    path = tmp_path / ("x.npz" if what == "sparse" else "x-idx3-ubyte.gz")
    if what == "sparse":
        file = io.BytesIO()
        np.save(file, np.zeros(2_500_000))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("format.npy", file.getvalue())
            archive.writestr("shape.npy", file.getvalue())
    else:
        sides = {"surplus": (2, 2, 2), "shape": (20, 1000, 999), "huge shape": (2**32 - 1, 2**32 - 1, 2**32 - 1)}[what]
        path.write_bytes(gzip.compress(b"\0\0\x08\3" + struct.pack(">3I", *sides) + zeros))
    del zeros

    def read():
        with pytest.raises(ValueError, match=re.escape(str(path))):
            readers.matrix(path)

    assert peak(read) < 1e6


def test_idx_files_of_every_damage(tmp_path):
    good = b"\0\0\x08\2" + struct.pack(">2I", 2, 3) + bytes(range(6))
    for pack in (bytes, gzip.compress):
        path = tmp_path / "x-idx2-ubyte"
        path.write_bytes(pack(good))
        np.testing.assert_array_equal(readers.matrix(path), [[0, 1, 2], [3, 4, 5]])
        for bad in (good[:-1], good + b"x", good[:6], good[:3], b"", good[:3] + b"\0"):
            path.write_bytes(pack(bad))
            with pytest.raises(ValueError, match=r"is damaged, its length|unknown format"):
                readers.matrix(path)
    path.write_bytes(gzip.compress(good)[:-9])
    with pytest.raises(ValueError, match="decompression failed"):
        readers.matrix(path)


def test_a_sparse_matrix_of_huge_shape_is_not_made_dense(tmp_path):
    """Its rows are not images of the shape that is asked for."""
    wide = sparse.csr_array(([1.0, 1.0], [0, 5], [0, 1, 2]), shape=(2, 10**9))
    sparse.save_npz(tmp_path / "x.npz", wide)

    def read():
        with pytest.raises(ValueError, match="has rows of 1000000000; expected 4"):
            readers.collection(tmp_path / "x.npz", shape=(2, 2))

    assert peak(read) < 1e6


def test_digits_of_other_scripts_in_names(tmp_path):
    for name in ("a5²6.npy", "a5².npy", "a٣.npy", "a10.npy", "a9.npy"):
        np.save(tmp_path / name, np.ones((2, 3)))
    names = [path.name for path in readers.matrices(tmp_path)]
    assert len(names) == 5
    assert names.index("a9.npy") < names.index("a10.npy")


def test_few_rows_of_many_columns_and_types_in_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "a": [1, 2, None],
        "b": [True, False, True],
        "c": np.array([1.5, 2, 3], np.float32),
        "d": ["x", "y", "z"],
    }
    columns["e"] = pa.array([1, 2, 1]).dictionary_encode()
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = formats.table(tmp_path / "a.parquet", columns=["c", "b", "a", "e"])
    np.testing.assert_array_equal(found.values, [[1.5, 1, 1, 1], [2, 0, 2, 2], [3, 1, np.nan, 1]])
    with pytest.raises(ValueError, match=r"a\.parquet: column 'd' is not numeric"):
        formats.table(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"a": [True, None]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="column 'a' is not numeric"):
        formats.table(tmp_path / "a.parquet")


def test_a_promise_far_beyond_the_file_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((9000, 1000)))
    with pytest.raises(ValueError, match=r"a\.npz: has \d+ bytes that would unpack to 72 MB; expected at most 67 MB"):
        readers.collection(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=np.ones((9000, 1000)))  # not compressed: it has what it promises
    assert readers.collection(tmp_path / "a.npz").rows.shape == (9000, 1000)


def test_what_reading_changes_is_said(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    grey = np.arange(1, 13, dtype=np.uint8).reshape(3, 4) * 20
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.stack([grey] * 3, axis=-1)).save(tmp_path / "colour.png")
    Image.fromarray(grey).convert("P").save(tmp_path / "palette.gif")
    turned = Image.fromarray(grey)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    turned.save(tmp_path / "turned.png", exif=exif)
    for name, size, said in (
        ("grey.png", None, ""),
        ("palette.gif", None, ""),
        ("colour.png", None, "colours as grey values"),
        ("colour.png", (3, 2), "shrunk from 3 x 4 out of proportion, colours as grey values"),
        ("grey.png", (2, 3), "shrunk from 3 x 4"),  # in whole pixels
        ("turned.png", (2, 1), "shrunk from 4 x 3"),
    ):
        assert readers.measure(tmp_path / name, size=size).changed == said
    np.save(tmp_path / "stack.npy", np.ones((2, 8, 8)))
    assert readers.collection(tmp_path / "stack.npy", size=(4, 2)).changed == "shrunk from 8 x 8 out of proportion"
    (tmp_path / "folder").mkdir()
    Image.fromarray(np.stack([grey] * 3, axis=-1)).save(tmp_path / "folder" / "a.png")
    assert readers.collection(tmp_path / "folder").changed == "colours as grey values"


def test_labels_in_a_column(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(4))
    (tmp_path / "labels.csv").write_text("label\n0\n1\n1\n0\n")
    found = readers.collection(tmp_path / "X.npy", labels=tmp_path / "labels.csv", label=1)
    np.testing.assert_array_equal(found.rows, np.eye(4)[1:3])
