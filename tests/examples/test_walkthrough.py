"""Tests that every command of the walkthrough of Kafka's storage prints what its page shows, in both languages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.doubles.console import examples, pattern
from tests.examples.conftest import ROOT, shell

PAGE = ROOT / "docs/walkthrough.md"
IN_CHINESE = ROOT / "docs/zh/walkthrough.md"


@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("hexdump") is None, reason="hexdump is not installed")
def test_every_command_prints_what_the_page_shows(checkout):
    """The page's commands, run in order in one directory, print what the page shows."""
    (checkout / "walk").mkdir()
    differences = []
    try:
        for example in examples(PAGE.read_text()):
            printed = shell(checkout, f"cd walk\n{example.command}\n:")
            if not pattern(example.printed).fullmatch(printed):
                differences.append(
                    f"line {example.line}: $ {example.command}\n{printed}instead of\n{example.printed}"
                )
    finally:
        shell(checkout, "! mountpoint -q walk/mnt || topicfs umount walk/mnt")
    assert [] == differences, "\n".join(differences)


def code(page: Path) -> list[str]:
    """Return the lines of a page's fenced and indented code blocks."""
    text = page.read_text()
    fenced = re.findall(r"(?ms)^```(\w+\n.*?)^```$", text)
    indented = re.findall(r"(?m)^    .*", re.sub(r"(?ms)^```.*?^```$", "", text))
    return [line for block in (*fenced, "\n".join(indented)) for line in block.splitlines()]


def test_both_languages_have_the_same_code():
    """Both languages have the same commands, outputs and pictures; only the prose differs."""
    assert len(code(PAGE)) > 100
    assert code(PAGE) == code(IN_CHINESE)
