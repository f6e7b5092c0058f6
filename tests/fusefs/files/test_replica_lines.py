"""The lines about replicas in `status` and `replicas`."""

from __future__ import annotations

from tests.doubles.replicated import DISKS, Replicated
from topicfs.fusefs.files.replicas import replica_lines
from topicfs.storage.model import Offset, ReplicaStatus


def test_a_replica_that_is_out_of_sync_has_its_reason() -> None:
    """The line of a replica that is not in sync ends with the reason; the line of a replica in sync has no reason."""
    two = Replicated()
    two.engine.create_topic("orders")
    two.append("first\n")
    two.reopen(DISKS[0], left_out=(DISKS[1],))
    leader, away = replica_lines(two.partition().status())
    assert leader.startswith("replica /a leader log_end_offset 1")
    assert "reason" not in leader
    assert "replica replica 2 out_of_sync away reason its directory is not named" == away


def test_a_reason_is_on_one_line() -> None:
    """A newline in a reason, for example in the name of a file, is escaped."""
    two = Replicated()
    two.engine.create_topic("orders")
    status = two.partition().status()
    one = ReplicaStatus("/b", False, False, Offset(3), 30, reason="/b/x\ny: cut")
    lines = replica_lines(status._replace(replicas=(one,)))
    assert ["replica /b out_of_sync log_end_offset 3 reason /b/x\\ny: cut"] == lines
