"""Tests that all replicas complete appends that the death of the owner interrupted."""

from __future__ import annotations

import io

import pytest

from tests.doubles.line_encoder import FirstPartition
from tests.doubles.replicated import DISKS, ORDERS, Replicated, with_orders
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import WriteId
from topicfs.storage.idempotence.producer import NamedProducer, whole_lines
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.model import Offset
from topicfs.storage.producers.entry import next_run
from topicfs.storage.staging.area import StagingArea
from topicfs.storage.staging.manifest import BegunAppend

WRITE = WriteId("e59ff979-41aa")


def test_a_begun_write_is_completed_under_other_settings():
    """If settings become stricter after a write has begun, the leader and the follower still complete the write."""
    on_disks = Replicated()
    topic = on_disks.engine.create_topic("orders")
    area = StagingArea(DISKS[0], on_disks.disks)
    writer = area.stage(WRITE, 0)
    writer.append(ORDERS, encode_lines(b"a\nb\n", timestamp=1_700_000_000_000)[0])
    area.submit(WRITE, [writer.finish()])
    manifest = area.claim(WRITE)
    assert manifest is not None
    begun = BegunAppend(*next_run(None), {ORDERS: Offset(0)}, {"orders": topic.topic_id})
    area.note(WRITE, manifest._replace(begun=begun))
    on_disks.engine.alter_config("orders", {"max.message.bytes": "10"})
    on_disks.engine.maintenance(on_disks.clock())
    assert (["a", "b"], (1, 2)) == (on_disks.lines(), on_disks.in_sync())
    assert on_disks.files(1) == on_disks.files(2)
    assert area.is_empty()


def test_a_named_producer_continues_with_another_leader():
    """Each replica knows the producer's last sequence number, so the producer continues with another leader."""
    on_disks = with_orders()
    text = b"".join(b"%d\n" % number for number in range(60))

    def run(block, blocks):
        registry = ProducerRegistry(on_disks.disks, lambda: [DISKS[1]])
        partitions = {0: on_disks.partition()}
        return NamedProducer(registry, "p", "file > orders/0@T", partitions).append_file(
            io.BytesIO(text), FirstPartition(), blocks
        )

    def dying(stream):
        yield from list(whole_lines(stream, 50))[:2]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run(50, dying)
    there = len(on_disks.lines())
    assert 1 == on_disks.leader()
    on_disks.reopen(DISKS[1], left_out=(DISKS[0],))
    assert 2 == on_disks.leader()
    outcome = run(50, whole_lines)
    assert (there, 60 - there) == (outcome.passed_over, outcome.appended)
    assert text.decode().split() == on_disks.lines()
