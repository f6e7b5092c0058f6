"""Each example of fusefs/SEMANTICS.md prints on a real mount the output that the document shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.console import examples, pattern
from tests.fusefs.mounted.conftest import ROOT, Mount, shell
from tests.fusefs.mounted.over_a_cluster import differs

pytestmark = pytest.mark.fuse

DOCUMENT = ROOT / "fusefs" / "SEMANTICS.md"


def test_the_document_has_examples():
    """The document has more than 40 examples; fewer would mean that its format has changed."""
    assert len(list(examples(DOCUMENT.read_text()))) > 40


def test_every_example_prints_what_is_shown(mount: Mount, tmp_path: Path):
    """Each example prints what the document shows; over a cluster, only the listed examples may differ."""
    failures = {}
    shown = list(examples(DOCUMENT.read_text()))
    for example in shown:
        result = shell("bash", f"exec 2>&1\n{example.command}", mount.path)
        if not pattern(example.printed).fullmatch(result.stdout):
            failures[example.command] = (
                f"line {example.line}: $ {example.command}\n{result.stdout}instead of\n{example.printed}"
            )

    expected = {one.command for one in shown if mount.topics_in and differs(one.command)}
    assert expected == failures.keys(), "\n".join(failures.values())
