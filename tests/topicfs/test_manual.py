"""The manual pages contain the texts of the commands, and man and mandoc format them without an error."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from tests.topicfs.test_command import EVERY_COMMAND
from topicfs.callers.mount_helper import mount_options
from topicfs.commands.manual import page, paragraphs, terms
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.main import cli, run

pytestmark = pytest.mark.slow

COMMANDS = {("topicfs",): cli} | {("topicfs", *words): command for words, command in EVERY_COMMAND.items()}
DAY = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(scope="module")
def manual(tmp_path_factory) -> Path:
    """A folder with all pages, as the command writes them."""
    folder = tmp_path_factory.mktemp("man")
    assert 0 == run(["manual", str(folder)])
    return folder


def shown(page: Path) -> str:
    """Return the text that man prints on a wide screen, with single spaces; fail if man warns."""
    done = subprocess.run(
        ["man", "--warnings", "--encoding=UTF-8", "--local-file", str(page)],
        env={**os.environ, "MANWIDTH": "500", "MANROFFOPT": "-c", "GROFF_NO_SGR": "1", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr, page.name
    return " ".join(re.sub(".\b", "", done.stdout).split())


def test_there_is_a_page_for_each_command(manual: Path):
    """There is a page for each command, and one for mount.topicfs."""
    expected = {f"man1/{'-'.join(words)}.1" for words in COMMANDS} | {"man8/mount.topicfs.8"}
    assert expected == {str(page.relative_to(manual)) for page in manual.rglob("*.?")}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_page_says_what_the_help_says(manual: Path, words: tuple[str, ...]):
    """A page contains the command's summary, paragraphs, options, examples and subcommands."""
    command = COMMANDS[words]
    context = click.Context(command, info_name=" ".join(words))
    page = shown(manual / "man1" / f"{'-'.join(words)}.1")
    options = [one.get_help_record(context) for one in command.get_params(context)]
    assert isinstance(command, ExampleCommand | ExampleGroup)
    expected = [
        f"{'-'.join(words)} - {command.get_short_help_str(limit=200).rstrip('.')}",
        " ".join([*words, *command.collect_usage_pieces(context)]),
        *(command.help or "").split("\n\n"),
        *(f"{name} {text}" for name, text in filter(None, options)),
        *(f"{example.line} {example.meaning}" for example in command.examples),
        *(f"{'-'.join((*words, name))}(1)" for name in getattr(command, "commands", ())),
    ]
    for text in expected:
        assert " ".join(text.replace("`", "").split()) in page.replace("`", "")


def test_the_page_of_the_mount_helper_has_the_options_of_a_mount(manual: Path):
    """The page of mount.topicfs contains all options of a mount, without dashes."""
    page = shown(manual / "man8" / "mount.topicfs.8")
    for name in mount_options():
        assert re.search(rf" {name}(=\S+)? [A-Za-z]", page), name
    assert " acks=0|1|all When a write is answered" in page
    assert " allow-other Let other users access" in page


def test_mandoc_finds_nothing(manual: Path):
    """mandoc, the man program of Alpine and the BSDs, accepts all pages in its strictest mode."""
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "style", *sorted(map(str, manual.rglob("*.?")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)


HOSTILE = [
    ".SH",
    "'br",
    "\\fB \\",
    'a-b "c" ^~',
    "it's",
    "…×€😀",
    "--option -x well-known",
    ".",
    "x" * 200,
]
"""Texts that have special meanings in man pages. The first two are requests if they begin a line."""


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_comes_out_as_it_is(tmp_path: Path, text: str):
    """Any text is shown unchanged, both in sentences and as an option."""
    parts = [("DESCRIPTION", paragraphs(text)), ("OPTIONS", terms([(text, text, text)]))]
    file = tmp_path / "p.1"
    file.write_text(page("p", 1, '"2026-11-21" "topicfs 1"', text, parts))
    assert 5 <= shown(file).count(text)
    lint = ["mandoc", "-T", "lint", "-W", "warning", str(file)]
    assert "" == subprocess.run(lint, capture_output=True, text=True, check=False).stdout


def test_the_same_sources_give_the_same_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With SOURCE_DATE_EPOCH the pages have that date, so that builds are reproducible."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(DAY.timestamp())))
    assert 0 == run(["manual", str(tmp_path)])
    head = (tmp_path / "man1" / "topicfs.1").read_text().splitlines()[0]
    assert '.TH "TOPICFS" 1 "2026-11-21" "topicfs 0.1.0"' == head


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """If the folder cannot be written, one line of error is printed."""
    (tmp_path / "man1").write_text("a file")
    assert 1 == run(["manual", str(tmp_path)])
    assert f"topicfs: {tmp_path}/man1: File exists\n" == capsys.readouterr().err
