"""Folders of checkpoints: two are kept, and damaged ones are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gibbsot.distributed import checkpoints


def local(path: Path | str) -> Path:
    return Path(str(path).removeprefix("file://"))


def write(folder: Path | str, epoch: int, previous: str = "", fit: str | None = None) -> str:
    fit = checkpoints.claim(folder, checkpoints.mark(folder)) if fit is None else fit
    with checkpoints.writing(folder, epoch, previous, fit) as path:
        (local(path) / "model.npz").write_text(str(epoch))
        (local(path) / "shard-00000.npz").write_text(str(epoch))
    return path


def load(path: str) -> str:
    text = (Path(path.removeprefix("file://")) / "model.npz").read_text()
    if text == "damaged":
        raise ValueError(text)
    return text


@pytest.fixture(params=["path", "URL"])
def folder(request, tmp_path) -> str:
    if request.param == "URL":
        pytest.importorskip("fsspec")
        return (tmp_path / "run").as_uri()
    return str(tmp_path / "run")


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "run").iterdir() if path.name != checkpoints.MARK)


def test_nothing_to_load(folder, tmp_path):
    assert not checkpoints.exist(folder)
    with pytest.raises(ValueError, match=r"path: .*run has no checkpoint that is complete"):
        checkpoints.load_last(folder, load)
    (tmp_path / "run" / "epoch-00000001").mkdir(parents=True)
    assert not checkpoints.exist(folder)  # it was not complete


def test_the_last_two_are_kept(folder, tmp_path):
    previous = ""
    for epoch in (3, 20, 100):
        previous = write(folder, epoch, previous)
        assert previous == checkpoints.folder_of(folder, epoch)
        assert checkpoints.exist(folder)
        assert checkpoints.load_last(folder, load) == str(epoch)
    assert names(tmp_path) == ["epoch-00000020", "epoch-00000100"]


def test_a_failed_write_deletes_nothing(folder, tmp_path):
    first = write(folder, 1)
    with pytest.raises(OSError, match="full"), checkpoints.writing(folder, 2, first, checkpoints.mark(folder)):
        raise OSError("full")
    assert names(tmp_path)[0] == "epoch-00000001"


def test_damaged_checkpoints_are_skipped(folder, tmp_path):
    write(folder, 2, write(folder, 1))
    (tmp_path / "run" / "epoch-00000002" / "model.npz").write_text("damaged")
    (tmp_path / "run" / "epoch-00000003").mkdir()
    with pytest.warns(UserWarning, match="is damaged or not complete") as caught:
        assert checkpoints.load_last(folder, load) == "1"
    assert len(caught) == 2


@pytest.mark.parametrize("name", ["epoch-1/thesis.txt", "epoch-final-results/data.csv", "epoch-00000001/notes", ".me"])
def test_a_folder_with_anything_else_is_refused_by_name(folder, tmp_path, name):
    mine = tmp_path / "run" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    what = name.partition("/")[0]
    with pytest.raises(ValueError, match=rf"checkpoint: .*run has '{what}', .*expected a folder that is new or empty"):
        checkpoints.prepare(folder)
    assert mine.read_text() == "mine"
    assert names(tmp_path) == [what]  # no mark either


@pytest.mark.parametrize("name", ["epoch-1/thesis.txt", "epoch-final-results/data.csv", "epoch-00000000/model.npz"])
def test_what_comes_during_the_fit_is_left_alone(folder, tmp_path, name):
    first = write(folder, 1)
    mine = tmp_path / "run" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    write(folder, 3, write(folder, 2, first))
    assert mine.read_text() == "mine"
    assert names(tmp_path) == sorted([mine.parent.name, "epoch-00000002", "epoch-00000003"])


def test_a_file_in_a_checkpoint_is_left_alone(folder, tmp_path):
    first = write(folder, 1)
    (tmp_path / "run" / "epoch-00000001" / "notes.txt").write_text("mine")
    write(folder, 3, write(folder, 2, first))
    assert [path.name for path in (tmp_path / "run" / "epoch-00000001").iterdir()] == ["notes.txt"]


def test_checkpoints_of_another_fit_are_left_alone(folder, tmp_path):
    write(folder, 1)
    for epoch in (2, 3):
        write(folder, epoch, fit="0" * 32)
    assert names(tmp_path) == ["epoch-00000001", "epoch-00000003"]
    with pytest.raises(FileExistsError, match="exists without the mark of this fit"):
        write(folder, 1, fit="0" * 32)
    assert load(checkpoints.folder_of(folder, 1)) == "1"


def test_a_fit_that_was_killed_early_can_start_again(folder, tmp_path):
    """Whatever a kill before the first complete checkpoint leaves."""
    fit = checkpoints.prepare(folder)
    assert checkpoints.prepare(folder) == fit
    (tmp_path / "run" / "epoch-00000001").mkdir()
    assert checkpoints.prepare(folder) == fit
    (tmp_path / "run" / "epoch-00000001" / ".gibbsot.json.0123abcd").touch()
    (tmp_path / "run" / ".gibbsot.json.0123abcd").touch()
    assert checkpoints.prepare(folder) == fit
    with pytest.raises(OSError, match="killed"), checkpoints.writing(folder, 2, "", fit):
        raise OSError("killed")
    assert checkpoints.prepare(folder) == fit
    write(folder, 1)
    write(folder, 3)
    assert names(tmp_path) == [".gibbsot.json.0123abcd", "epoch-00000003"]
    with pytest.raises(ValueError, match="has checkpoints of another fit"):
        checkpoints.prepare(folder)


def test_a_fit_continues_only_in_its_own_folder(folder, tmp_path):
    write(folder, 1)
    fit = checkpoints.mark(folder)
    assert checkpoints.claim(folder, fit) == fit
    with pytest.raises(ValueError, match="has checkpoints of another fit"):
        checkpoints.claim(folder, "0" * 32)
    new = checkpoints.claim(f"{folder}2", fit)
    assert new not in ("", fit)
    assert checkpoints.mark(f"{folder}2") == new


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 900, b'{"fit": 1}', b'{"fit": "../.."}', b"\xff\xfe{"])
def test_a_damaged_mark_is_no_mark(folder, tmp_path, content):
    checkpoints.prepare(folder)
    (tmp_path / "run" / checkpoints.MARK).write_bytes(content)
    assert checkpoints.mark(folder) == ""
    with pytest.raises(ValueError, match=r"has 'gibbsot.json'"):
        checkpoints.prepare(folder)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"checkpoint: .*file/run cannot be a folder"):
        checkpoints.prepare(tmp_path / "file" / "run")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_in_the_place_of_the_mark_does_not_hang(tmp_path):
    """A reader of it would wait for ever; it is something else than a mark, and the folder is refused."""
    os.mkfifo(tmp_path / checkpoints.MARK)
    assert checkpoints.mark(tmp_path) == ""
    with pytest.raises(ValueError, match="checkpoint: "):
        checkpoints.prepare(tmp_path)
