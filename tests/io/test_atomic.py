"""Atomic writes: a file is complete or the old one, and a group of files is replaced together."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from gibbsot.io import atomic


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    """A folder with two files that were written earlier."""
    for name in "ab":
        (tmp_path / name).write_text("old")
    return tmp_path


def test_a_file_is_replaced_after_the_block(folder):
    with atomic.replace_file(folder / "a") as file:
        file.write(b"new")
        assert (folder / "a").read_text() == "old"
    assert contents(folder) == {"a": "new", "b": "old"}


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(folder, monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(OSError, match="No space left") as failed, atomic.replace_file(folder / "a") as file:
            file.write(b"new")
    assert failed.value.filename == str(folder / "a")
    assert contents(folder) == {"a": "old", "b": "old"}


def test_errors_about_other_files_keep_their_name(folder):
    with pytest.raises(FileNotFoundError) as failed, atomic.replace_file(folder / "a"):
        (folder / "none").read_bytes()
    assert failed.value.filename == str(folder / "none")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_block_leaves_the_old_file(folder, error):
    def write():
        with atomic.replace_file(folder / "a") as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert contents(folder) == {"a": "old", "b": "old"}


def test_a_group_is_replaced_after_its_last_file(folder):
    with atomic.FileGroup() as files:
        with files.open(folder / "a") as file:
            file.write(b"new")
        with files.path(folder / "b") as path:
            path.write_text("new")
        assert {name: text for name, text in contents(folder).items() if len(name) == 1} == {"a": "old", "b": "old"}
    assert contents(folder) == {"a": "new", "b": "new"}


def test_a_group_that_fails_changes_nothing_and_names_the_target(folder, monkeypatch):
    fsync, calls = os.fsync, []

    def second(descriptor):
        calls.append(descriptor)
        (full if len(calls) == 2 else fsync)(descriptor)

    def write():
        with atomic.FileGroup() as files:
            for name in "ab":
                with files.open(folder / name) as file:
                    file.write(b"new")

    monkeypatch.setattr(os, "fsync", second)
    with pytest.raises(OSError, match="No space left") as failure:
        write()
    assert failure.value.filename == str(folder / "b")
    assert contents(folder) == {"a": "old", "b": "old"}


unix = pytest.mark.skipif(os.name == "nt", reason="Windows has neither modes nor pipes")


def write_all(paths: list[Path]) -> None:
    """Write "new" in each of the ways."""
    with atomic.replace_file(paths[0]) as file:
        file.write(b"new")
    with atomic.FileGroup() as files:
        with files.open(paths[1]) as file:
            file.write(b"new")
        with files.path(paths[2]) as temporary:
            temporary.write_text("new")


@unix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_the_mode_is_kept(tmp_path, mode):
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("old")
        path.chmod(mode)
    write_all(paths)
    assert [(path.read_text(), stat.S_IMODE(path.stat().st_mode)) for path in paths] == [("new", mode)] * 3


@unix
def test_nobody_can_read_a_private_file_while_it_is_written(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o600)
    with atomic.replace_file(tmp_path / "a") as file:
        file.write(b"new")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


@unix
def test_new_files_have_the_usual_mode(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    write_all(paths)
    (tmp_path / "d").touch()
    assert {path.stat().st_mode for path in tmp_path.iterdir()} == {(tmp_path / "d").stat().st_mode}


@unix
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_stays_a_link(tmp_path, dangling):
    (tmp_path / "behind").mkdir()
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        target = tmp_path / "behind" / path.name
        if not dangling:
            target.write_text("old")
            target.chmod(0o600)
        path.symlink_to(Path("behind", path.name))
    write_all(paths)
    assert all(path.is_symlink() for path in paths)
    assert contents(tmp_path / "behind") == dict.fromkeys("abc", "new")
    if not dangling:
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


@unix
def test_pipes_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"), atomic.replace_file(tmp_path / "pipe"):
        pass
    with pytest.raises(OSError, match="not a regular file"), atomic.FileGroup() as files, files.open(tmp_path / "pipe"):
        pass
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_targets_are_checked(folder):
    atomic.check_target(folder / "new")
    with pytest.raises(IsADirectoryError, match="is a folder; expected a file"):
        atomic.check_target(folder)
    with pytest.raises(FileNotFoundError, match="the folder to write to does not exist"):
        atomic.check_target(folder / "none" / "a")


def interrupted(path: Path, files: list[str]) -> None:
    with atomic.output_folder(path) as out:
        for name in files:
            (out / name).touch()
        raise KeyboardInterrupt


def test_an_output_folder_is_removed_if_the_work_fails(tmp_path):
    with atomic.output_folder(tmp_path / "kept" / "a"):
        pass
    for name, files in (("new", []), ("used", ["file"])):
        with pytest.raises(KeyboardInterrupt):
            interrupted(tmp_path / name / "b", files)
    assert sorted(os.listdir(tmp_path)) == ["kept", "used"]
    assert os.listdir(tmp_path / "kept") == ["a"]


def test_an_output_folder_that_is_a_file(folder):
    with pytest.raises(NotADirectoryError, match="is a file; expected a folder"), atomic.output_folder(folder / "a"):
        pytest.fail("not reached")


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot fsync a folder")
def test_renames_are_on_the_disk(folder, monkeypatch):
    """First the content, then the rename, then the entry of the folder."""
    events, fsync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(*paths):
        events.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with atomic.replace_file(folder / "a.txt") as file:
        file.write(b"new")
    assert events == ["file", "rename", "folder"]
    events.clear()
    with atomic.FileGroup() as files:
        for name in "ab":
            with files.open(folder / name) as file:
                file.write(b"new")
    assert events == ["file", "file", "rename", "rename", "folder"]


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot fsync a folder")
def test_a_file_system_without_fsync_of_folders(folder, monkeypatch):
    def refused(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refused)
    number = errno.EINVAL
    atomic.sync_folder(folder)
    number = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        atomic.sync_folder(folder)


def test_temporaries_of_killed_processes_are_removed(folder):
    """Those of both ways to write, in subfolders too, and nothing else."""
    mine = [".hidden", ".a.txt.0123abcd", "model.npz", ".model.npz", ".model.npz.0123abc", "x.npz.0123abcd"]
    theirs = [".model.npz.0123abcd", ".components.npy.ffffffff", "..model.npz.01234567.89abcdef"]
    below = folder / "checkpoints" / "epoch-1"
    below.mkdir(parents=True)
    for place in (folder, below):
        for name in (*mine, *theirs):
            (place / name).touch()
    removed = atomic.remove_temporaries(folder)
    assert sorted(path.name for path in removed) == sorted(2 * theirs)
    assert set(mine) <= {path.name for path in folder.iterdir()}
    assert sorted(path.name for path in below.iterdir()) == sorted(mine)
