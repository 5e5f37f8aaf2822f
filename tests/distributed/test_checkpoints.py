"""Folders of checkpoints: two are kept, and damaged ones are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from gibbsot.distributed import checkpoints


def write(folder: Path | str, epoch: int, previous: str = "") -> str:
    with checkpoints.writing(folder, epoch, previous) as path:
        Path(path.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        (Path(path.removeprefix("file://")) / "model.npz").write_text(str(epoch))
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
    return sorted(path.name for path in (tmp_path / "run").iterdir())


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
    with pytest.raises(OSError, match="full"), checkpoints.writing(folder, 2, first):
        raise OSError("full")
    assert names(tmp_path)[0] == "epoch-00000001"


def test_damaged_checkpoints_are_skipped(folder, tmp_path):
    write(folder, 2, write(folder, 1))
    (tmp_path / "run" / "epoch-00000002" / "model.npz").write_text("damaged")
    (tmp_path / "run" / "epoch-00000003").mkdir()
    with pytest.warns(UserWarning, match="is damaged or not complete") as caught:
        assert checkpoints.load_last(folder, load) == "1"
    assert len(caught) == 2


def test_other_folders_are_left_alone(folder, tmp_path):
    (tmp_path / "run" / "mine").mkdir(parents=True)
    write(folder, 1)
    write(folder, 2)
    assert names(tmp_path) == ["epoch-00000002", "mine"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"checkpoint: .*file/run cannot be a folder"):
        checkpoints.prepare(tmp_path / "file" / "run")
