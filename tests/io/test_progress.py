"""Bars, lines and log messages."""

import io
import logging
import sys

import pytest

from gibbsot.io import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar("cooking", True) as advance:
        advance(0.5, "warm")
    assert "cooking" in terminal.getvalue()
    assert "warm" in terminal.getvalue()
    with progress.bar("cooking", False) as advance:
        advance(0.5, "cold")
    assert "cold" not in terminal.getvalue()


@pytest.mark.parametrize("endless", [False, True])
def test_lines_at_most_once_a_second(capsys, monkeypatch, endless):
    now = iter([0.0, 1.0, 1.0, 1.1, 2.5, 2.5])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.bar("cooking", True, endless) as advance:
        advance(0.25, "a")
        advance(0.25, "b")
        advance(0.25, "c")
        if endless:
            advance(0.25)
    shares = ["", ""] if endless else ["25% ", "75% "]
    assert capsys.readouterr().err == f"cooking: {shares[0]}a\ncooking: {shares[1]}c\n"


@pytest.mark.parametrize("wanted", [False, True])
def test_the_log_has_every_note_once(capsys, caplog, wanted):
    with caplog.at_level(logging.INFO, "gibbsot"), progress.bar("cooking", wanted) as advance:
        advance(0.5, "a")
        advance(0.5, "b")
    assert [record.getMessage() for record in caplog.records] == ["cooking: 50% a", "cooking: 100% b"]
    assert capsys.readouterr().err == ""


def test_lines_without_rich(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    with progress.bar("cooking", True) as advance:
        advance(1.0)
    assert capsys.readouterr().err == "cooking: 100%\n"


def test_short_work_prints_nothing(capsys):
    with progress.bar("cooking", True) as advance:
        advance(1.0, "done")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("widgets", [False, True])
def test_a_notebook_has_a_bar_where_it_can_show_one(monkeypatch, widgets):
    console = pytest.importorskip("rich.console").Console
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert console().is_jupyter
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if widgets and name == "ipywidgets" else None)
    assert (progress._display(False) is not None) == widgets
