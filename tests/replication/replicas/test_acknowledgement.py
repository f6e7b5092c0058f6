"""Tests of what a durable append and a flush guarantee: how many disks have a record, and what an error means."""

from __future__ import annotations

import errno
from io import BytesIO
from pathlib import Path

import pytest

from tests.doubles.engines import engine_on, read_lines
from tests.doubles.line_encoder import FirstPartition
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.batch import set_producer
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    PartitionOfflineError,
)
from topicfs.storage.idempotence.producer import NamedProducer, whole_lines
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.model import ProducerId

WRITES = "pwrite"
FLUSHES = "sync"


def replicated(disks: int = 2, *, needed: int = 2) -> Replicated:
    """Make a topic with a replica on each of `disks` disks; `needed` is its min.insync.replicas."""
    return with_orders(disks, replicas=disks, min_insync_replicas=needed)


def durably(replicas: Replicated, text: str) -> None:
    """Append lines as a mount does with acks=all."""
    replicas.partition().check_in_sync()
    replicas.partition().append(batch(text), durable=True, encoded_here=True)


def batch(text: str) -> bytearray:
    (encoded,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
    return encoded


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize("call", [WRITES, FLUSHES])
def test_a_disk_that_dies_in_the_append_is_not_counted(call: str, number: int):
    """A record on only one disk is not acknowledged. After both disks are back, it is visible and stored once."""
    two = replicated()
    durably(two, "a\n")
    two.disk(number).fail(call, times=1_000_000)
    with pytest.raises(NotEnoughReplicasAfterAppendError, match="1 of 2 replicas in sync"):
        durably(two, "b\n")
    assert (3 - number,) == two.in_sync()
    two.bring_back(number)
    assert ["a", "b"] == two.lines()
    durably(two, "c\n")
    two.crash(keep=0.0)
    assert ["a", "b", "c"] == two.lines()


def test_a_record_on_too_few_disks_is_not_visible():
    """A record on only one disk is not visible, so that the loss of that disk loses no record that was read."""
    two = replicated()
    two.disk(2).fail(WRITES, times=1_000_000)
    with pytest.raises(NotEnoughReplicasAfterAppendError):
        durably(two, "a\n")
    assert [] == two.lines()


def test_an_append_is_refused_while_too_few_replicas_are_in_sync():
    """While too few replicas are in sync, a durable append is refused before anything is written.

    Records of other appends are not visible until enough replicas are in sync.
    """
    two = replicated()
    two.partition().check_in_sync()
    break_disk(two.disk(2))
    two.append("a\n")
    too_few = r"1 of 2 replicas in sync and min\.insync\.replicas=2"
    with pytest.raises(NotEnoughReplicasError, match=too_few) as caught:
        durably(two, "b\n")
    assert NotEnoughReplicasError is type(caught.value)
    assert [] == two.lines()
    two.bring_back(2)
    assert ["a"] == two.lines()


def test_two_of_three_are_enough():
    """Two of three disks are enough: an append survives the failure of one disk, but not of two."""
    three = replicated(3)
    three.disk(3).fail(WRITES, times=1_000_000)
    durably(three, "a\n")
    assert ["a"] == three.lines()
    three.disk(1).fail(FLUSHES, times=1_000_000)
    with pytest.raises(NotEnoughReplicasAfterAppendError, match="1 of 3 replicas in sync"):
        durably(three, "b\n")


@pytest.mark.parametrize("dies", ["before", "meanwhile"])
def test_a_flush_needs_enough_disks(dies: str):
    """fsync(2) fails while fewer disks than min.insync.replicas have all records. A later fsync can succeed."""
    two = replicated()
    if dies == "before":
        break_disk(two.disk(2))
    two.append("a\n")
    two.disk(2).fail(FLUSHES, times=1_000_000)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicasError, match="1 of 2 replicas in sync"):
            two.partition().sync()
    two.bring_back(2)
    two.partition().sync()
    two.crash(keep=0.0)
    assert ["a"] == two.lines()


def test_a_flush_for_flush_messages_is_no_promise():
    """Appends with acks=1 that flush because of flush.messages succeed, however few replicas are in sync."""
    two = with_orders(min_insync_replicas=2, flush_messages=1)
    two.disk(2).fail(FLUSHES, times=1_000_000)
    assert 0 == two.append("a\n")
    assert (1,) == two.in_sync()


def test_an_offline_partition_is_not_taken_for_one_with_too_few_replicas():
    """The error for an offline partition names the disk to bring back, and does not report too few replicas."""
    two = replicated(needed=1)
    two.append("a\n")
    for number in (1, 2):
        break_disk(two.disk(number))
    with pytest.raises((PartitionOfflineError, OSError)):
        two.append("b\n")
    two.engine.maintenance(two.clock())
    assert two.partition().leader is None
    for ask in (two.partition().check_in_sync, two.partition().sync):
        with pytest.raises(PartitionOfflineError, match="bring back its disk"):
            ask()


def test_a_min_insync_replicas_above_the_replicas_means_all():
    """A min.insync.replicas above the number of replicas means all replicas, even without replication.

    Kafka 4 has the same rule.
    """
    one = engine_on(SimulatedDisk())
    one.create_topic("orders", overrides={"min.insync.replicas": "2"})
    partition = one.partition("orders", 0)
    partition.check_in_sync()
    partition.append(batch("a\n"), durable=True)
    partition.sync()
    assert ["a"] == read_lines(partition)
    two = replicated(needed=5)
    durably(two, "a\n")
    assert ["a"] == two.lines()
    two.disk(2).fail(WRITES, times=1_000_000)
    with pytest.raises(NotEnoughReplicasAfterAppendError, match=r"1 of 2 .* min\.insync\.replicas=5"):
        durably(two, "b\n")


def test_a_producer_that_sends_its_batch_again_has_it_in_the_log_once():
    """A producer's repeated batch is refused until enough replicas are back. Then the batch is in the log once.

    A broker's NOT_ENOUGH_REPLICAS_AFTER_APPEND has the same effect.
    """
    two = replicated()

    def send() -> None:
        again = batch("a\n")
        set_producer(again, 0, producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
        two.partition().check_in_sync()
        two.partition().append(again, durable=True)

    two.disk(2).fail(WRITES, times=1_000_000)
    with pytest.raises(NotEnoughReplicasAfterAppendError):
        send()
    with pytest.raises(NotEnoughReplicasError):
        send()
    two.bring_back(2)
    send()
    assert ["a"] == two.lines()


def test_a_named_producer_that_found_too_few_disks_continues_where_it_was():
    """`append --producer` fails if too few disks have its lines. A repeated run appends no line twice."""
    two, registry_disk = replicated(), SimulatedDisk()

    def run() -> int:
        registry = ProducerRegistry(registry_disk, lambda: [Path("/")])
        run = NamedProducer(registry, "p", "file > orders", {0: two.partition(ORDERS)})
        return run.append_file(BytesIO(b"a\nb\n"), FirstPartition(), whole_lines).appended

    two.disk(2).fail(WRITES, number=errno.ENOSPC, times=1_000_000)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicasError):
            run()
    two.bring_back(2)
    assert 0 == run()
    assert ["a", "b"] == two.lines()
