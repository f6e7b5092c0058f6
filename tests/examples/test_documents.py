"""The README's sessions are typed in and compared with what it says they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.examples.conftest import ROOT, shell

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
