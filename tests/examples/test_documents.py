"""The README's sessions are typed in and compared with what it says they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.examples.conftest import ROOT, shell
from topicfs.main import cli
from topicfs.pipelining.group import JOBS

LOG_DIRS = ROOT / "tests" / "vectors" / "kafka" / "log-dirs"


class Typed(NamedTuple):
    """A command of a document, and what it says the command prints."""

    line: str
    output: str


def sessions(document: Path) -> list[list[Typed]]:
    """The `console` blocks of a document."""
    blocks = re.findall(r"```console\n(.*?)```", document.read_text(), flags=re.DOTALL)
    return [list(commands(block)) for block in blocks]


def commands(block: str) -> Iterator[Typed]:
    for command in re.split(r"(?m)^\$ ", block)[1:]:
        line, _, output = command.partition("\n")
        yield Typed(line, output)


def timeless(text: str) -> str:
    """Times differ from run to run."""
    return re.sub(r'"ts":\d+', '"ts":0', text)


@pytest.mark.fuse
def test_the_readmes_first_session_prints_what_it_says(mounted):
    """Command by command; a last line without an end shows as one all the same."""
    session = sessions(ROOT / "README.md")[0]
    assert len(session) > 10
    for command in session:
        printed = shell(mounted, f"{command.line} || true")
        assert timeless(command.output.rstrip("\n")) == timeless(printed.rstrip("\n")), command.line


def test_the_readmes_explanation_is_the_commands_own(checkout):
    """On a directory that a broker wrote."""
    [command] = sessions(ROOT / "README.md")[1]
    assert command.output == shell(checkout, command.line, TOPICFS_DATA=str(LOG_DIRS))


def test_the_evidence_for_each_difference_exists():
    """Every test that docs/differences.md names is there."""
    text = (ROOT / "docs" / "differences.md").read_text()
    every_test = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in re.findall(r"tests/[\w/]+\.py", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"\btest_\w+(?!\.py)\b", text):
        assert f"def {name}(" in every_test or list((ROOT / "tests").rglob(f"{name}.py")), name


@pytest.mark.parametrize("document", ["README.md", "docs/scaling.md"])
def test_every_job_stands_in_the_documents(document):
    """A new job is told to those who read before they type."""
    text = (ROOT / document).read_text()
    jobs = {job.name for job in JOBS}
    named = set(re.findall(r"topicfs pipeline ([a-z|\\]+)", text)) | set(
        re.findall(r"(?m)^\| `(\w+)` \|", text)
    )
    assert not jobs - {name for words in named for name in re.split(r"\W+", words)}


def test_the_commands_of_the_way_to_many_machines_are_understood():
    """Sub-commands and options are those the command has; what they do needs machines."""
    text = (ROOT / "docs" / "scaling.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"(?m)^ *\$ (?:\w+=\S+ )?(topicfs .*)", text)
    assert len(lines) > 5
    for line in lines:
        command: click.Command = cli
        context = click.Context(cli)
        words = line.split()[1:]
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, line
        known = {name for parameter in command.params for name in parameter.opts}
        assert not {word for word in words if word.startswith("--")} - known, line
