"""The short form of the session with several Kafka releases. It uses only the tests' own release."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.broker.libraries import Java
from tests.soak.compatibility import visit


@pytest.mark.java
@pytest.mark.fuse
def test_a_session_with_the_present_release(tmp_path: Path, java: Java) -> None:
    """The mount, the groups, the mirror and `topicfs top` show the same as a Kafka client of the broker."""
    done = visit(tmp_path, java, lines=500, seed=1)
    assert {
        "lines appended": 500,
        "records read": 1001,
        "lines followed": 40,
        "records given to groups": 1041,
        "changes of topics": 8,
        "records mirrored": 1041,
    } == done
