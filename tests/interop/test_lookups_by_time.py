"""Tests of lookups by time that a broker and our engine answer differently, as docs/differences.md says."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing, send
from tests.doubles.waiting import wait_until
from tests.interop import ours
from topicfs.storage.disk import names
from topicfs.storage.model import Timestamp, TopicPartition

pytestmark = pytest.mark.java

TWO_A_SEGMENT = {"internal.segment.bytes": "2000"}
EARLY, LATE, LATEST = 1_700_000_001_000, 1_700_000_005_000, 1_700_000_006_000
BETWEEN = LATE - 1


def record(timestamp: int, key: bytes = b"k", size: int = 800) -> Outgoing:
    return Outgoing(b"x" * size, key, [], timestamp)


def answers(
    broker: Broker, client: Client, topic: str, timestamp: int, folder: Path, *, start: int = 0
) -> tuple[int, int]:
    """Return the broker's answer and our answer for a copy of the broker's files; -1 means that no record was found."""
    said = client.offset_at(topic, timestamp)
    source = broker.log_dir / names.partition_directory(TopicPartition(topic, 0))
    shutil.copytree(source, folder / source.name)
    log = ours.load(folder / source.name, clean=False, log_start_offset=start)
    found = log.offset_for_timestamp(Timestamp(timestamp))
    return said, -1 if found is None else found.offset


def test_a_broker_answers_with_the_offset_of_a_transactions_marker(broker, client, tmp_path):
    """A broker may return a commit marker's offset, because markers have times; our lookups find only records."""
    client.create_topic("times-marker", settings={"retention.ms": "-1"})
    writer = client.producer(transactional_id="times-marker")
    writer.init_transactions(30)
    asked = int(time.time() * 1000) - 60_000
    with client.transaction(writer):
        send(writer, "times-marker", [record(EARLY)])
    wait_until(lambda: client.offset_for("times-marker") == 2, "the marker is written")
    assert (1, -1) == answers(broker, client, "times-marker", asked, tmp_path)


def test_a_broker_finds_nothing_if_the_first_late_record_was_deleted(broker, client, tmp_path):
    """If the first record that is late enough is below the log start, a broker finds no record.

    The broker searches only the segment of this record. Our lookup continues in the next segment.
    """
    client.create_topic("times-deleted", settings={"retention.ms": "-1", **TWO_A_SEGMENT})
    client.produce("times-deleted", map(record, (LATE, EARLY, LATEST, LATEST)), batch=1)
    assert 0 == client.offset_at("times-deleted", BETWEEN)
    client.delete_records("times-deleted", 1)
    assert (-1, 2) == answers(broker, client, "times-deleted", BETWEEN, tmp_path, start=1)


def test_a_broker_finds_nothing_if_compaction_left_an_empty_batch(broker, client, tmp_path):
    """A broker finds no record if only the header of an empty batch has a time that is late enough.

    Compaction leaves such batches.
    """
    topic = "times-compacted"
    client.create_topic(
        topic, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", **TWO_A_SEGMENT}
    )
    client.produce(topic, [record(LATE)], enable_idempotence=True)
    client.produce(topic, map(record, (EARLY, LATEST, LATEST, LATEST)), batch=1)
    client.set_setting(topic, "min.cleanable.dirty.ratio", "0.0")
    wait_until(lambda: len(client.records(topic)) < 5, "the broker has compacted")
    first = client.records(topic)[0].offset
    assert 0 < first
    assert (-1, first) == answers(broker, client, topic, BETWEEN, tmp_path)
