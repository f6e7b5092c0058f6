"""Tests that the sessions in documents print what the documents show, and that documents follow the rules of form."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.examples.conftest import ROOT, shell
from topicfs.commands.pipeline import pipeline
from topicfs.fusefs.tree.partitions import NAMES
from topicfs.main import cli

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("fusefs/*.md")),
    *sorted(ROOT.glob("tests/**/*.md")),
]
LOG_DIRS = ROOT / "tests" / "vectors" / "kafka" / "log-dirs"


class Typed(NamedTuple):
    """A command of a document and the output that the document shows."""

    line: str
    output: str


def sessions(document: Path) -> list[list[Typed]]:
    """Return the `console` blocks of a document."""
    blocks = re.findall(r"```console\n(.*?)```", document.read_text(), flags=re.DOTALL)
    return [list(commands(block)) for block in blocks]


def commands(block: str) -> Iterator[Typed]:
    for command in re.split(r"(?m)^\$ ", block)[1:]:
        line, _, output = command.partition("\n")
        yield Typed(line, output)


def timeless(text: str) -> str:
    """Replace times in `text`, because they differ from run to run."""
    return re.sub(r'"ts":\d+', '"ts":0', text)


@pytest.mark.fuse
def test_the_readmes_first_session_prints_what_it_says(mounted):
    """Each command of the README's first session prints the shown output, apart from a missing final newline."""
    session = sessions(ROOT / "README.md")[0]
    assert len(session) > 10
    for command in session:
        printed = shell(mounted, f"{command.line} || true")
        assert timeless(command.output.rstrip("\n")) == timeless(printed.rstrip("\n")), command.line


@pytest.mark.fuse
def test_the_recorded_session_is_what_a_mount_prints(tmp_path):
    """A new recording of the README's session equals docs/session.svg byte for byte."""
    drawn = tmp_path / "session.svg"
    subprocess.run([sys.executable, ROOT / "scripts/record_session.py", drawn], check=True)
    assert (ROOT / "docs/session.svg").read_text() == drawn.read_text()


def test_the_explanation_that_is_shown_is_the_commands_own(checkout):
    """`topicfs explain` with a broker's files prints what docs/command.md shows."""
    [command] = sessions(ROOT / "docs" / "command.md")[0]
    assert command.output == shell(checkout, command.line, TOPICFS_DATA=str(LOG_DIRS))


def test_the_evidence_for_each_difference_exists():
    """Every test that docs/differences.md names exists."""
    text = (ROOT / "docs" / "differences.md").read_text()
    every_test = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in re.findall(r"tests/[\w/]+\.py", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"\btest_\w+(?!\.py)\b", text):
        assert f"def {name}(" in every_test or list((ROOT / "tests").rglob(f"{name}.py")), name


@pytest.mark.parametrize("document", ["README.md", "docs/scaling.md"])
def test_every_job_stands_in_the_documents(document):
    """README.md and docs/scaling.md name every job of `topicfs pipeline`."""
    text = (ROOT / document).read_text()
    jobs = set(pipeline.commands)
    named = set(re.findall(r"topicfs pipeline ([a-z|\\]+)", text)) | set(
        re.findall(r"(?m)^\| `(\w+)` \|", text)
    )
    assert not jobs - {name for words in named for name in re.split(r"\W+", words)}


@pytest.mark.parametrize("document", ["docs/command.md", "docs/scaling.md", "docs/spark.md"])
def test_the_commands_of_the_documents_are_understood(document):
    """The documents' commands have existing sub-commands and options; this test parses the commands and runs none."""
    text = (ROOT / document).read_text().replace("\\\n", " ")
    lines = re.findall(r"(?m)^ *\$ (?:\w+=\S+ )?(topicfs .*)", text)
    assert len(lines) > 1
    for line in lines:
        command, words = called(line.split()[1:])
        known = {name for parameter in command.params for name in parameter.opts}
        assert not {word for word in words if word.startswith("--")} - known, line


def called(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that `words` call (the words after `topicfs`), and the remaining words."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(cli), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


def test_every_command_stands_in_its_page():
    """docs/command.md lists exactly the existing commands; another test checks the pipeline's jobs."""
    text = (ROOT / "docs" / "command.md").read_text()
    assert set(cli.list_commands(click.Context(cli))) == set(re.findall(r"(?m)^\| `topicfs ([\w-]+)", text))


def test_every_name_of_a_partition_stands_in_the_page_of_the_mount():
    """docs/mount.md lists every fixed file name in directories of partitions and topics, with or without a suffix."""
    text = (ROOT / "docs" / "mount.md").read_text()
    rows = re.findall(r"(?m)^\| (`.*?) \|", text)
    told = {path.rstrip("/").split("/")[-1] for row in rows for path in re.findall(r"`([^`]+)`", row)}
    plain = {name.partition(".")[0] for name in NAMES}
    assert set() == plain - told
    assert {"config", "status", "@status"} <= told


def test_every_page_says_for_whom_it_is():
    """The first paragraph of every page of docs/ begins with "For …", and the index lists every page."""
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        title, opening = page.read_text().split("\n\n")[:2]
        assert title.startswith("# "), page.name
        assert opening.startswith("For "), page.name
        assert f"]({page.name})" in index or page.name == "README.md", page.name


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_fit_a_screen(document):
    """Lines of the documents are shorter than 120 columns, except in tables and code."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", document.read_text())
    assert [] == [
        line for line in prose.splitlines() if len(line) >= 120 and not line.startswith(("|", "    "))
    ]


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_bullet_begins_a_line(document):
    """Each bullet of a list begins a line, because Markdown shows a bullet after a sentence as a plain asterisk."""
    assert [] == re.findall(r"(?m)^(?! {4}|\|).*[.:] \* .*$", document.read_text())
