"""Whatever clients send to a listener, before and after authentication, is answered or ends their connection."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.fuzz.frames import GUARDED, KNOWN, OPEN, STATES, inputs, message, read_frames, target
from tests.fuzz.frames import request as request_of
from topicfs.protocol.messages import METADATA

CHANGES = 1500


def test_changes_of_the_corpus_are_answered_or_refused(tmp_path: Path) -> None:
    """The corpus and changed inputs cause no unexpected error, and change nothing without authentication."""
    read_frames(tmp_path, CHANGES)


def test_inputs_reach_each_state(tmp_path: Path) -> None:
    """A client's request is answered if the state of its connection allows the request, and only then."""
    sent = request_of(METADATA, 12, topics=[])
    with target(tmp_path) as reading:
        before = [reading.read(bytes([state])) for state in range(len(STATES))]
        after = [reading.read(bytes([state]) + sent) for state in range(len(STATES))]
        assert {OPEN, KNOWN} == {
            state
            for state in range(len(STATES))
            if b"\0\0\0\6client" in after[state] or b"\7client" in after[state]
        }
        assert b"" == after[GUARDED]
        login = reading.read(b"\3" + message(b"\0alice\0alice-secret"))
        assert before[KNOWN] == login
        (size,) = struct.unpack_from(">i", login)
        assert size < len(login)
    assert {data[0] for data in inputs()} >= set(range(len(STATES)))
