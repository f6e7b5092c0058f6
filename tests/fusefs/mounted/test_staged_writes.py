"""The daemon of a mount appends writes that other processes have staged, while users read and write."""

from __future__ import annotations

import pytest

from topicfs.pipeline.sink.commit_request import CommitRequest, staging_area
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import WriteId, parse_write_file
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.fuse


def test_a_write_handed_in_shows_in_the_mount(mount):
    """A staged write appears once, after the records that exist, and none of its files remains."""
    (mount.path / "orders").mkdir()
    log = mount.path / "orders" / "0" / "log"
    with log.open("ab") as file:
        file.write(b"before\n")
    write = WriteId("7c1f3f0a", 0)
    for _ in range(2):
        staged = staging_area([mount.data]).stage(write, 0)
        staged.append(TopicPartition("orders", 0), encode_lines(b"one\ntwo\n", timestamp=0)[0])
        CommitRequest([mount.data], write, [staged.finish()]).commit(30)
    assert b"before\none\ntwo\n" == log.read_bytes()
    assert [] == [path.name for path in mount.data.iterdir() if parse_write_file(path.name)]
