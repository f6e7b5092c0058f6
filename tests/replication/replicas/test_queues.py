"""Tests of queues over replicas: every in-sync replica has the acknowledgements, whichever disk fails."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.doubles.replicated import ORDERS, Replicated
from tests.doubles.several_disks import break_disk
from topicfs.coordination.share_groups import Acknowledgement, Leased, RejectedBy
from topicfs.coordination.shares.group import QueueSession
from topicfs.replication import open_engine
from topicfs.storage.disk.names import QUEUES
from topicfs.storage.manager import Machine

ACCEPT, RELEASE, REJECT = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT


def served(*, lines: int = 6) -> Replicated:
    two = Replicated()
    for internal in ("__consumer_offsets", "__share_group_state"):
        two.engine.create_topic(internal, partitions=1)
    two.engine.create_topic("orders", partitions=1)
    two.append("".join(f"{at}\n" for at in range(lines)), ORDERS)
    return two


def opened(two: Replicated) -> QueueSession:
    return two.engine.share_groups.group("jobs").open(["orders"], holder="a test")


def taken(session: QueueSession) -> Leased:
    leased = session.take()
    assert leased is not None
    return leased


def acknowledged(session: QueueSession, word: Acknowledgement) -> int:
    """Take a record and acknowledge it with `word`; return the record's offset."""
    leased = taken(session)
    session.acknowledge({leased.record_name: word})
    return leased.record_name.offset


def rest(session: QueueSession) -> Sequence[int]:
    """Accept all records that are still delivered; return their offsets."""
    found = []
    while (leased := session.take()) is not None:
        session.acknowledge({leased.record_name: ACCEPT})
        found.append(leased.record_name.offset)
    return found


def rejected(two: Replicated) -> list[tuple[int, str]]:
    found = two.engine.share_groups.group("jobs").rejected("orders")
    return [(one.record_name.offset, one.holder) for one in found]


@pytest.mark.parametrize("broken", [1, 2])
def test_a_failed_disk_loses_no_acknowledgement(broken: int) -> None:
    """Whichever disk fails, accepted records stay accepted, leased records stay leased, rejected records are listed."""
    two = served()
    session = opened(two)
    assert [0, 1] == [acknowledged(session, ACCEPT), acknowledged(session, REJECT)]
    held = taken(session)
    break_disk(two.disk(broken))
    session.acknowledge({held.record_name: ACCEPT})
    assert [3, 4] == [acknowledged(session, ACCEPT), acknowledged(session, REJECT)]

    assert [5] == rest(session)
    assert [(1, "a test"), (4, "a test")] == rejected(two)
    (position,) = two.engine.share_groups.group("jobs").positions("orders")
    assert (6, 0) == (position.start_offset, position.lag)


@pytest.mark.parametrize("begin", ["reopen", "kill", "crash"])
def test_the_next_process_continues(begin: str) -> None:
    """After a restart the queue continues with the delivery count of a released record."""
    two = served()
    two.engine.share_groups.create("jobs").alter({"share.delivery.count.limit": "2"})
    session = opened(two)
    assert [0, 1, 2] == [acknowledged(session, word) for word in (ACCEPT, REJECT, RELEASE)]
    for topic in two.engine.topics().values():
        for partition in topic.partitions().values():
            partition.sync()
    getattr(two, begin)()

    session = opened(two)
    again = taken(session)
    assert (2, 2) == (again.record_name.offset, again.delivery_count)
    session.acknowledge({again.record_name: RELEASE})
    assert [3, 4, 5] == rest(session)
    if begin == "crash":
        return  # The journal is synced only after the change that it describes.
    assert [(1, RejectedBy.REJECT), (2, RejectedBy.LIMIT)] == [
        (one.record_name.offset, one.by) for one in two.engine.share_groups.group("jobs").rejected("orders")
    ]


@pytest.mark.parametrize("away", [1, 2])
def test_a_returning_directory_gets_the_state_of_the_queue(away: int) -> None:
    """After a directory has returned, each directory alone has the queue's current state, as a single broker would."""
    two = served()
    session = opened(two)
    acknowledged(session, REJECT)
    break_disk(two.disk(away))
    acknowledged(session, REJECT)
    acknowledged(session, ACCEPT)
    two.bring_back(away)
    assert (1, 2) == tuple(sorted(two.in_sync()))
    two.engine.close()
    for root in two.roots:
        files = two.disks.read_only_view()
        with closing(open_engine(root, machine=Machine(files=files), read_only=True)) as alone:
            group = alone.share_groups.groups()["jobs"]
            assert [0, 1] == [one.record_name.offset for one in group.rejected("orders")]
            assert [3] == [one.start_offset for one in group.positions("orders")]


def test_a_duty_of_the_replicated_engine_ends_expired_leases() -> None:
    """The duty of the replicated engine ends expired leases."""
    two = served(lines=1)
    first, second = opened(two), opened(two)
    taken(first)
    two.wait(29_999)
    assert second.take() is None
    two.wait(1)
    assert 2 == taken(second).delivery_count


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_a_directory_that_could_not_note_a_rejection_leaves_at_once(number: int) -> None:
    """A directory that fails to record a rejection is immediately out of sync, because its state is outdated."""
    two = served()
    session = opened(two)
    acknowledged(session, REJECT)
    for operation in ("append", "pwrite", "open"):
        two.disk(number).fail(operation, times=1_000, suffix=QUEUES)
    acknowledged(session, REJECT)
    assert ((3 - number,), 3 - number) == (two.in_sync(), two.leader())
    assert [(0, "a test"), (1, "a test")] == rejected(two)
