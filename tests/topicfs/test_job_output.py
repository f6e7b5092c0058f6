"""Tests of the output of a pipeline job: its progress bar, and its rows as people, pipes and programs get them."""

from __future__ import annotations

import io
import threading
from datetime import date

import pytest
from rich.console import Console

from topicfs.jobs import progress_bar as drawing
from topicfs.jobs import run as running
from topicfs.jobs.progress_bar import JobProgress, ProgressBar, status_text
from topicfs.jobs.run import print_rows, table
from topicfs.terminal import THEME

COLUMNS = ("topic", "date", "first_offset", "ratio", "note")
ROWS = [
    {"topic": "orders", "date": date(2026, 1, 2), "first_offset": 1234567, "ratio": 0.5, "note": None},
    {"topic": "[red]", "date": date(2026, 1, 3), "first_offset": 8, "ratio": None, "note": "x"},
]


def test_a_pipe_gets_fields_separated_by_tabs(capsys):
    """In a pipe, rows are lines of tab-separated fields without a header; null is an empty field."""
    print_rows(COLUMNS, ROWS, as_program=False)
    assert "orders\t2026-01-02\t1234567\t0.5\t\n[red]\t2026-01-03\t8\t\tx\n" == capsys.readouterr().out


def test_a_program_gets_one_array(capsys):
    """With --json, all rows are one array of objects. A value that JSON has no type for becomes text."""
    print_rows(("topic", "date"), [{"topic": "orders", "date": date(2026, 1, 2)}], as_program=True)
    assert '[{"topic": "orders", "date": "2026-01-02"}]\n' == capsys.readouterr().out
    print_rows(("topic",), [], as_program=True)
    assert "[]\n" == capsys.readouterr().out


def test_people_get_a_table(monkeypatch):
    """On a terminal, rows are a table with grouped digits; text in brackets in a name is not taken for a style."""
    shown = io.StringIO()
    monkeypatch.setattr(running, "is_terminal", lambda: True)
    monkeypatch.setattr(running, "console", lambda: Console(file=shown, width=80, theme=THEME))
    print_rows(COLUMNS, ROWS, as_program=False)
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert [
        "topic   date        first offset  ratio  note",
        "orders  2026-01-02     1,234,567    0.5  -",
        "[red]   2026-01-03             8      -  x",
    ] == lines


def test_nothing_from_outside_reaches_a_terminal_as_it_is(monkeypatch, capsys):
    """Escape sequences and newlines in names are escaped in rows, in the progress bar and in messages."""
    evil, shown = "a\x1b[31m\nb", r"a\x1b[31m\nb"
    print_rows(("topic", "rows"), [{"topic": evil, "rows": 1}], as_program=False)
    assert f"{shown}\t1\n" == capsys.readouterr().out
    screen = io.StringIO()
    monkeypatch.setattr(running, "is_terminal", lambda: True)
    monkeypatch.setattr(running, "console", lambda: Console(file=screen, width=80, theme=THEME))
    print_rows(("topic",), [{"topic": evil}], as_program=False)
    assert f"topic\n{shown}\n" == "".join(f"{line.rstrip()}\n" for line in screen.getvalue().splitlines())
    assert f"left: {shown} 7" == status_text(JobProgress(left={evil: 7}))
    ProgressBar("replay", Screen(disable=True)).say(evil)
    assert f"{shown}\n" == capsys.readouterr().err
    with drawing.progress_bar("replay") as drawn:
        monkeypatch.setattr(drawn._progress, "disable", False)
        drawn.say(evil)
    assert shown == capsys.readouterr().err.rstrip("\n")


def test_a_table_of_nothing_has_its_titles():
    """A table without rows still has its header."""
    assert ["topic", "records"] == [column.header for column in table(("topic", "records"), []).columns]


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (JobProgress(), "Spark plans"),
        (JobProgress(3, 1200), "3 of 1,200 tasks"),
        (
            JobProgress(1, 2, 50_000, {"orders": 10_000}),
            "50,000 records · left: orders 10,000 · 1 of 2 tasks",
        ),
    ],
)
def test_the_bar_says_what_is_known(work, text):
    """The bar shows the tasks, the records read, and the records left in each topic, as far as these are known."""
    assert text == status_text(work)


class Screen:
    """A stand-in for rich's Progress that stores the updates."""

    def __init__(self, *, disable=False):
        self.disable = disable
        self.updates = []
        self.updated = threading.Event()

    def add_task(self, description, **fields):
        return 0

    def update(self, task, **fields):
        self.updates.append(fields)
        self.updated.set()


def test_the_bar_follows_while_a_job_runs(monkeypatch):
    """The bar is updated by a thread while the job runs."""
    looks = iter([JobProgress(1, 4), JobProgress(2, 4)])
    monkeypatch.setattr(
        drawing,
        "ProgressReader",
        lambda spark: type("ProgressReader", (), {"read": lambda self: next(looks)})(),
    )
    screen = Screen()
    with ProgressBar("archive", screen).watching(None):
        assert screen.updated.wait(30)
    assert {"completed": 1, "total": 4, "status": "1 of 4 tasks"} == screen.updates[0]


def test_a_failing_bar_does_not_stop_the_job(monkeypatch):
    """If the progress cannot be read, the bar stops and the job continues."""
    asked = threading.Event()

    class Broken:
        def __init__(self, spark):
            pass

        def read(self):
            asked.set()
            raise ConnectionError("Spark is gone")

    monkeypatch.setattr(drawing, "ProgressReader", Broken)
    screen = Screen()
    with ProgressBar("archive", screen).watching(None):
        assert asked.wait(30)
    assert [] == screen.updates


def test_without_a_terminal_no_thread_is_started(monkeypatch):
    """Without a terminal, no thread is started to update a progress bar."""
    monkeypatch.setattr(drawing, "ProgressReader", None)
    before = set(threading.enumerate())
    with ProgressBar("archive", Screen(disable=True)).watching(None):
        assert set() == set(threading.enumerate()) - before


def test_only_important_lines_of_spark_are_shown(monkeypatch):
    """While a bar is drawn, each of topicfs's lines in Spark's output is shown once. Spark's own lines are hidden."""
    said = []
    drawn = ProgressBar("replay", Screen())
    monkeypatch.setattr(drawn, "say", said.append)
    with running._captured_stderr(drawn) as stderr:
        stderr.write(b"WARN Executor: \xff\ntopicfs: /data: passed over 2 records\n" * 2)
    assert ["topicfs: /data: passed over 2 records"] == said
