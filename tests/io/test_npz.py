"""A file is whole or the old one, and whatever is not a file of ours is refused by name."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gibbsot.io import npz
from gibbsot.io.schemas import Schema

NUMBERS = Schema("numbers")
OLD = {"x": np.arange(5.0), "name": "old", "count": 3}


@pytest.fixture
def path(tmp_path):
    """A file that was saved earlier, alone in its folder."""
    path = tmp_path / "a.npz"
    npz.save(path, NUMBERS, OLD)
    return path


def check_old(path) -> None:
    """Nothing has changed and nothing was left behind."""
    assert os.listdir(path.parent) == [path.name]
    found = npz.load(path, NUMBERS)
    assert found.keys() == OLD.keys()
    for key, value in OLD.items():
        np.testing.assert_array_equal(found[key], value)


@given(
    st.dictionaries(
        st.text("abcxyz_", min_size=1),
        st.one_of(
            st.floats(),
            st.integers(-(2**63), 2**63 - 1),
            st.text("abc ü"),
            arrays.arrays(
                st.sampled_from([np.float32, np.float64, np.int64, np.uint64, np.bool_]),
                arrays.array_shapes(min_dims=0, min_side=0),
            ),
        ),
        max_size=4,
    )
)
def test_arrays_come_back_as_they_were(tmp_path_factory, entries):
    path = tmp_path_factory.getbasetemp() / "round.npz"
    npz.save(path, Schema("some kind"), entries)
    found = npz.load(str(path), Schema("some kind"))
    assert found.keys() == entries.keys()
    for key, value in entries.items():
        assert found[key].dtype == np.asarray(value).dtype
        np.testing.assert_array_equal(found[key], value)


def test_a_file_keeps_its_name(tmp_path):
    """NumPy would add .npz to it."""
    npz.save(tmp_path / "model", NUMBERS, OLD)
    check_old(tmp_path / "model")


def test_a_new_file_replaces_the_old(path):
    npz.save(path, NUMBERS, {"y": 1})
    assert npz.load(path, NUMBERS).keys() == {"y"}
    assert os.listdir(path.parent) == [path.name]


class Unwilling:
    def __array__(self, *args, **options):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("value", "error"),
    [(object(), TypeError), (None, TypeError), ([[1], [1, 2]], ValueError), (Unwilling(), KeyboardInterrupt)],
    ids=["object", "None", "ragged", "interrupted"],
)
def test_what_cannot_be_saved_leaves_the_old_file(path, value, error):
    """An array of objects would be pickled, into a file that could not be read again."""
    with pytest.raises(error):
        npz.save(path, NUMBERS, {"x": np.ones(3), "bad": value})
    check_old(path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_file(path, monkeypatch, name, error):
    def fails(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fails)
        with pytest.raises(type(error)):
            npz.save(path, NUMBERS, {"x": np.zeros(1000)})
    check_old(path)


def test_a_save_that_fails_leaves_no_buffer_that_cannot_be_closed(path, monkeypatch):
    """Its view is released: from Python 3.13 on the collector complains of a BufferError otherwise."""

    def fails(*args):
        raise OSError(28, "No space left on device")

    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left") as caught:
        npz.save(path, NUMBERS, {"x": np.zeros(1000)})
    views = [frame.frame.f_locals.get("content") for frame in caught.traceback]
    for view in views:
        if isinstance(view, memoryview):
            with pytest.raises(ValueError, match="released"):
                view.tobytes()
    assert any(isinstance(view, memoryview) for view in views)
    del caught, views, view
    gc.collect()
    assert not complaints


def test_a_disk_that_fills_up_leaves_the_old_file(path, monkeypatch):
    """After the first bytes have been written."""

    def begins(file, **entries):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", begins)
        with pytest.raises(OSError, match="No space left"):
            npz.save(path, NUMBERS, {"x": np.zeros(1000)})
    check_old(path)


def test_the_old_file_is_there_until_the_new_one_is_whole(path, monkeypatch):
    """At the moment of the exchange, both can be read."""
    replace, seen = os.replace, []

    def exchange(new, old):
        seen.extend(int(npz.load(name, NUMBERS)["count"]) for name in (new, old))
        replace(new, old)

    monkeypatch.setattr(os, "replace", exchange)
    npz.save(path, NUMBERS, {"count": 4})
    assert seen == [4, 3]
    assert int(npz.load(path, NUMBERS)["count"]) == 4


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        npz.save(tmp_path / "nowhere" / "a.npz", NUMBERS, OLD)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        npz.load(tmp_path / "nowhere.npz", NUMBERS)


def test_every_truncation_is_noticed(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"path: .*a\.npz is damaged or not a gibbsot file"):
            npz.load(path, NUMBERS)


@settings(max_examples=500)
@given(position=st.integers(0, 1999), value=st.integers(1, 255))
def test_a_byte_that_has_changed_never_changes_an_array(tmp_path_factory, position, value):
    """It is noticed, or leaves an array out, which those who read the file notice, or does not matter."""
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    npz.save(path, NUMBERS, OLD)
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= value
    path.write_bytes(content)
    try:
        found = npz.load(path, NUMBERS)
    except ValueError as error:
        assert str(error).startswith(f"path: {path} ")  # noqa: PT017
    else:
        for key in found.keys() & OLD.keys():
            np.testing.assert_array_equal(found[key], OLD[key])


def test_a_file_that_claims_to_be_encrypted(path):
    """One bit of the directory; zipfile then wants a password."""
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"path: .*a\.npz is damaged or not a gibbsot file"):
        npz.load(path, NUMBERS)


def write_npy(path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def write_zip(path, **entries: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)


def array_file(x) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x)
    return buffer.getvalue()


FORMAT = array_file("gibbsot numbers 1")


def npy(shape: str) -> bytes:
    """A file of NumPy's whose header claims a shape, without the numbers."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b""), "damaged or not a gibbsot file"),
        (lambda path: path.write_bytes(b"garbage" * 100), "damaged or not a gibbsot file"),
        (lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)), "damaged or not a gibbsot file"),
        (lambda path: path.write_bytes(pickle.dumps({"x": 1})), "damaged or not a gibbsot file"),
        (write_npy, "damaged or not a gibbsot file"),
        (lambda path: np.savez(path, format="gibbsot numbers 1", x=np.array([{}])), "damaged or not a gibbsot file"),
        (lambda path: write_zip(path, format=b"gibbsot numbers 1"), "damaged or not a gibbsot file"),
        (lambda path: write_zip(path, format=FORMAT, x=npy("(3,")), "damaged or not a gibbsot file"),
        (lambda path: write_zip(path, format=FORMAT, x=npy("(1" + 30 * "0" + ",)")), "damaged or not a gibbsot file"),
        (lambda path: write_zip(path, format=FORMAT, x=npy("(1000000000000000,)")), "damaged or not a gibbsot file"),
        (lambda path: write_zip(path), "holds 'no format'; expected 'gibbsot numbers 1'"),
        (lambda path: np.savez(path, x=np.ones(3)), "holds 'no format'; expected 'gibbsot numbers 1'"),
        (lambda path: np.savez(path, format="gibbsot numbers 2"), "holds 'gibbsot numbers 2'; expected"),
        (
            lambda path: npz.save(path, Schema("letters"), OLD),
            "holds 'gibbsot letters 1'; expected 'gibbsot numbers 1'",
        ),
        (lambda path: path.mkdir(), "a folder; expected a file"),
    ],
    ids=[
        *("empty", "text", "noise", "pickle", "npy", "objects", "zip", "header", "overflow", "petabytes"),
        *("none", "npz", "version", "kind", "folder"),
    ],
)
def test_foreign_files_are_named(tmp_path, write, message):
    path = tmp_path / "foreign.npz"
    write(path)
    with pytest.raises(ValueError, match=rf"path: .*foreign\.npz (is )?{message}"):
        npz.load(path, NUMBERS)


def test_what_the_schema_does_not_have_is_neither_written_nor_read(tmp_path):
    schema = Schema("numbers", entries={"x": "f8/1", r"y\d": "iu/0"})
    arrays = {"x": np.ones(2), "y1": np.int64(3)}
    npz.save(tmp_path / "a.npz", schema, arrays)
    assert npz.load(tmp_path / "a.npz", schema).keys() == {"x", "y1"}
    with pytest.raises(ValueError, match="z: is not an entry of the schema 'gibbsot numbers 1'"):
        npz.save(tmp_path / "a.npz", schema, arrays | {"z": 1.0})
    with pytest.raises(ValueError, match="x: expected numbers of kind 'f8' on 1 axes, got float32"):
        npz.save(tmp_path / "a.npz", schema, {"x": np.ones(2, np.float32)})
    np.savez(tmp_path / "b.npz", format="gibbsot numbers 1", **arrays, z=np.zeros(9))
    assert npz.load(tmp_path / "b.npz", schema).keys() == {"x", "y1"}
    np.savez(tmp_path / "b.npz", format="gibbsot numbers 1", x=np.ones((1, 2)))
    with pytest.raises(
        ValueError, match=r"b\.npz is damaged .*x: expected .* on 1 axes, got float64 of shape \(1, 2\)"
    ):
        npz.load(tmp_path / "b.npz", schema)


def test_compressed_entries_are_refused(tmp_path):
    """Files of gibbsot have none: what unpacks to more than the file is no file of ours."""
    np.savez_compressed(tmp_path / "a.npz", format="gibbsot numbers 1", x=np.zeros(1000))
    with pytest.raises(ValueError, match=r"a\.npz is damaged .*is compressed; expected entries that are not"):
        npz.load(tmp_path / "a.npz", NUMBERS)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_nothing_is_ever_unpickled(tmp_path):
    """A file from someone else cannot run code."""
    bomb = Bomb(str(tmp_path / "exploded"))
    np.savez(tmp_path / "a.npz", format="gibbsot numbers 1", x=np.array([bomb], object))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(bomb))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(ValueError, match=rf"path: .*{name} is damaged"):
            npz.load(tmp_path / name, NUMBERS)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("where", ["format", "another format", "array", "surplus"])
def test_what_unpacks_to_more_than_promised_is_not_unpacked(tmp_path, where):
    """Each file has 20 kB and would unpack to 20 MB."""
    bomb = array_file(np.zeros(2_500_000))
    entries = {
        "format": {"format": bomb},
        "another format": {"x": bomb, "format": array_file("gibbsot letters 1")},
        "array": {"format": FORMAT, "x": npy("(3,)") + bomb},
        "surplus": {"format": FORMAT, "x": array_file(np.ones(3)) + bomb},
    }[where]
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)
    del bomb, entries
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bomb\.npz"):
        npz.load(tmp_path / "bomb.npz", NUMBERS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
