"""Tests that reads return correct records although a replica is damaged, and start its healing."""

from __future__ import annotations

import pytest

from tests.doubles.flips import flip, path_of
from tests.doubles.records import read_records
from tests.doubles.replicated import Replicated, with_orders
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Isolation, Offset, Position, TopicPartition

LOG = f"{0:020}.log"
TEXTS = ["".join(f"{batch}.{number}\n" for number in range(4)) for batch in range(20)]
LINES = [line for text in TEXTS for line in text.split()]
BASE_OFFSET, LENGTH, EPOCH, VALUE = 7, 11, 15, 70


@pytest.fixture
def two() -> Replicated:
    """Make two replicas of twenty batches; each batch has four lines."""
    both = with_orders()
    for text in TEXTS:
        both.append(text)
    return both


def position(two: Replicated, offset: int) -> int:
    log = two.engine.controller.logs(two.partition().name)[1]
    batch = log.chain.active.find_batch(offset, log.chain.active.size)
    assert batch is not None
    return batch.position


def lines_from(two: Replicated, offset: int) -> list[str]:
    return [(one.value or b"").decode() for one in read_records(two.partition(), offset)]


@pytest.mark.parametrize("at", [0, 6, BASE_OFFSET, 8, LENGTH, EPOCH, VALUE])
@pytest.mark.parametrize("mask", [1, 4, 128])
def test_what_the_leader_has_damaged_is_read_from_a_follower(two, at, mask):
    """If a batch is damaged in the leader, reads from any offset, even inside a batch, give correct records."""
    flip(two, 1, position(two, 40) + at, mask=mask)
    assert LINES == two.lines()
    for offset in range(30, 60):
        assert LINES[offset:] == lines_from(two, offset)


def test_one_batch_with_another_offset_is_noticed(two):
    """A wrong base offset in the last batch is noticed because another replica has different bytes."""
    flip(two, 1, position(two, 40) + BASE_OFFSET, mask=1)
    for offset in range(40, 44):
        fetched = two.partition().read(Offset(offset), max_bytes=1)
        assert (40, 44) == (int.from_bytes(fetched.data[:8], "big"), fetched.next_offset)


@pytest.mark.parametrize("at", [BASE_OFFSET, LENGTH, VALUE])
def test_damage_that_a_read_finds_is_healed(two, at):
    """The healing that a read starts is counted and logged, and afterwards both replicas are equal."""
    good = two.files(1)
    flip(two, 1, position(two, 40) + at, mask=4)
    two.lines()
    two.engine.heal()
    assert good == two.files(1) == two.files(2)
    assert 1 == two.engine.scrubber.counts.batches_healed
    assert two.engine.scrub is not None
    assert "batches_healed 1 files_healed 0 damaged 0" in two.engine.scrub
    assert () == two.engine.warnings


def test_an_index_that_points_beyond_a_batch_hides_nothing(two):
    """If an index points beyond the batch of an offset, the batch is found nevertheless, and the index is rebuilt."""
    two.engine.create_topic("indexed", overrides={"index.interval.bytes": "200"})
    name = TopicPartition("indexed", 0)
    for text in TEXTS:
        two.append(text, name)
    number = two.leader(name)
    assert number is not None
    slots = two.engine.controller.logs(name)[number].chain.active.offset_index.slots
    (before, _), (offset, position) = slots.read(1), slots.read(2)
    file = two.disk(number).open(path_of(two, number, f"{0:020}.index", name))
    file.pwrite((before + 1).to_bytes(4, "big") + position.to_bytes(4, "big"), Position(2 * 8))
    for asked in range(before, offset + 1):
        assert LINES[asked:] == [
            (one.value or b"").decode() for one in read_records(two.partition(name), asked)
        ]
    two.engine.heal()
    assert two.files(1, name) == two.files(2, name)


def test_damage_in_the_follower_disturbs_no_reader(two):
    """The leader's bytes are valid by their checksums, so damage in the follower affects no read."""
    flip(two, 2, position(two, 40) + VALUE)
    assert LINES == two.lines()
    assert 0 == two.engine.scrubber.counts.batches_healed


def test_two_replicas_that_are_damaged_in_different_places_give_everything(two):
    """All records are read, even if damaged lengths prevent both logs from being scanned to an offset."""
    flip(two, 1, position(two, 40) + VALUE)
    flip(two, 2, position(two, 36) + LENGTH, mask=64)
    flip(two, 2, position(two, 44) + VALUE)
    flip(two, 1, position(two, 4) + LENGTH, mask=64)
    assert LINES == two.lines()
    assert LINES[41:] == lines_from(two, 41)


def test_a_batch_damaged_in_all_replicas_is_returned_as_it_is(two):
    """A batch that is damaged in all replicas is returned as it is, and decoding it fails. Its neighbors are read."""
    for number in (1, 2):
        flip(two, number, position(two, 40) + VALUE, mask=number)
    fetched = two.partition().read(Offset(40), max_bytes=1)
    assert len(fetched.data) > 0
    assert LINES[44:] == lines_from(two, 44)
    assert any("checksum" in line for line in two.engine.warnings)


def test_a_log_that_cannot_be_read_on_raises_as_before(two):
    """If the lengths in both replicas are damaged, the read raises CorruptionError."""
    for number in (1, 2):
        flip(two, number, 8, mask=128)
    with pytest.raises(CorruptionError):
        two.partition().read(Offset(0), max_bytes=1)


def test_a_follower_shows_no_more_than_the_leader(two):
    """Records that are not visible yet are not returned, neither from the leader nor from a follower."""
    flip(two, 1, position(two, 76) + VALUE)
    two.engine.controller.logs(two.partition().name)[1].parts.state = two.engine.controller.logs(
        two.partition().name
    )[1].parts.state._replace(replicated=Offset(76))
    fetched = two.partition().read(Offset(72), max_bytes=1 << 20, isolation=Isolation.READ_UNCOMMITTED)
    assert (76, 0) == (fetched.next_offset, len(two.partition().read(Offset(76), max_bytes=1).data))


def test_a_partition_with_one_replica_is_read_as_it_is(two):
    """A partition with one replica is read without any comparison."""
    two.engine.set_replicas("orders", 1)
    flip(two, 1, position(two, 40) + VALUE)
    assert len(two.partition().read(Offset(40), max_bytes=1).data) > 0


def test_a_segment_is_searched_for_readers_at_most_once_a_minute(two, monkeypatch):
    """A segment is searched at most once a minute, so that a batch that stays damaged does not slow each reader."""
    monkeypatch.setattr("topicfs.replication.replicas.healing.healer.RECHECK_AFTER_SECONDS", float("inf"))
    for number in (1, 2):
        flip(two, number, position(two, 40) + VALUE, mask=number)
    two.partition().read(Offset(40), max_bytes=1)
    read = two.engine.scrubber.counts.read_bytes
    two.partition().read(Offset(40), max_bytes=1)
    two.engine.heal()
    assert read == two.engine.scrubber.counts.read_bytes
    monkeypatch.setattr("topicfs.replication.replicas.healing.healer.RECHECK_AFTER_SECONDS", 0.0)
    two.partition().read(Offset(40), max_bytes=1)
    assert read < two.engine.scrubber.counts.read_bytes


def test_directories_that_are_opened_read_only_are_read_from_any_replica_and_not_healed(two):
    """A batch damaged in the leader comes from a follower. A batch damaged in all replicas is not searched for."""
    flip(two, 1, position(two, 40) + VALUE)
    for number in (1, 2):
        flip(two, number, position(two, 60) + VALUE, mask=number)
    two.engine.close()
    before = two.files(1), two.files(2)
    two.open(read_only=True)
    assert LINES[40:44] == [
        (record.value or b"").decode()
        for columns in decode(two.partition().read(Offset(40), max_bytes=1).data)
        for record in columns
    ]
    assert len(two.partition().read(Offset(60), max_bytes=1).data) > 0
    assert (0, before) == (two.engine.scrubber.counts.read_bytes, (two.files(1), two.files(2)))
