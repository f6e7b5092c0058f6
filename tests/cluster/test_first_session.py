"""Tests that the README's first session prints the same output over a cluster."""

from __future__ import annotations

import pytest

from tests.doubles.cluster_mount import mounted_cluster
from tests.examples.conftest import ROOT, shell
from tests.examples.test_documents import sessions, timeless

pytestmark = [pytest.mark.java, pytest.mark.fuse]


def test_the_readmes_first_session_prints_what_it_says(address, tmp_path, client):
    """Each command prints what the README shows; a last line without a newline counts as a line."""
    session = sessions(ROOT / "README.md")[0]
    assert len(session) > 10
    client.delete_topics(["orders"])
    with mounted_cluster(address, tmp_path, as_a_program=True):
        for command in session:
            printed = shell(tmp_path, f"{command.line} || true")
            assert timeless(command.output.rstrip("\n")) == timeless(printed.rstrip("\n")), command.line
    client.delete_topics(["orders"])
