"""Tests that the copy's files equal the broker's files byte for byte."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from testing.broker.client import Outgoing
from tests.doubles.waiting import wait_until
from topicfs.replication import open_engine

pytestmark = pytest.mark.java

SEGMENT_BYTES = 1_048_576
"""The smallest segment size that a broker accepts."""


def files(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in suffixes}


def sealed(directory: Path, suffix: str) -> dict[str, bytes]:
    """Return the files with `suffix` except the active segment's files, whose indexes a broker preallocates."""
    return dict(sorted(files(directory, suffix).items())[:-1])


def assert_identical(ours: Path, theirs: Path) -> None:
    """Assert that both directories have equal logs, transaction indexes, sealed indexes, and common snapshots."""
    assert files(theirs, ".log") == files(ours, ".log")
    assert {n: c for n, c in files(theirs, ".txnindex").items() if c} == {
        n: c for n, c in files(ours, ".txnindex").items() if c
    }
    for suffix in (".index", ".timeindex"):
        assert sealed(theirs, suffix) == sealed(ours, suffix)
    snapshots = files(theirs, ".snapshot")
    common = {name: content for name, content in files(ours, ".snapshot").items() if name in snapshots}
    assert common == {name: snapshots[name] for name in common}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_every_codec(copy, broker, client, codec):
    """For each codec, the copy's segments begin at the broker's offsets, and their logs and indexes are equal."""
    topic = f"codec-{codec}"
    client.create_topic(topic, settings={"segment.bytes": str(SEGMENT_BYTES)})
    values = (bytes(f"{number} " * (300 + number % 7), "ascii") for number in range(1200))
    records = [Outgoing(value, b"k", [("h", b"v"), ("n", None)]) for value in values]
    client.produce(topic, records, batch=30, compression_type=codec)
    summary = copy.once(topic)
    assert (1, 1, ()) == (summary.topics, summary.partitions, summary.problems)
    ours, theirs = copy.directory / f"{topic}-0", broker.log_dir / f"{topic}-0"
    assert_identical(ours, theirs)
    if codec == "none":
        assert len(files(ours, ".log")) > 1


def test_transactions_with_their_markers(copy, broker, client):
    """Committed, aborted and plain records of concurrent producers give equal files and snapshots at the rolls."""
    client.create_topic("transactions", settings={"segment.bytes": str(SEGMENT_BYTES)})
    producers = [client.producer(transactional_id=f"mirrored-{number}") for number in range(2)]
    for producer in producers:
        producer.init_transactions(30)
    for number in range(24):
        for producer in producers:
            producer.begin_transaction()
        for producer in producers:
            for _ in range(3):
                producer.produce("transactions", bytes(30_000), b"k%d" % number, partition=0)
            producer.flush(30)
        producers[0].commit_transaction(30)
        (producers[1].abort_transaction if number % 2 else producers[1].commit_transaction)(30)
    client.produce("transactions", [Outgoing(b"plain")], enable_idempotence=True)
    client.wait_for_end("transactions", 24 * 2 * (3 + 1) + 1)
    copy.once("transactions")
    ours, theirs = copy.directory / "transactions-0", broker.log_dir / "transactions-0"
    assert len(files(ours, ".log")) > 2
    assert any(files(ours, ".txnindex").values())
    assert any(files(ours, ".snapshot"))
    assert_identical(ours, theirs)


def test_ids_settings_and_epochs(copy, broker, client):
    """The copy has the topic's id and settings, the broker's settings, all partitions and the leader epoch file."""
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}
    topic_id = client.create_topic("pictured", partitions=3, settings=settings)
    client.produce("pictured", [Outgoing(b"v", b"k")], partition=2)
    copy.once("pictured")
    with closing(open_engine(copy.directory, read_only=True)) as engine:
        topic = engine.topic("pictured")
        assert (topic_id, [0, 1, 2]) == (topic.topic_id, list(topic.partitions()))
        assert {**settings, "segment.index.bytes": "65536"} == topic.overrides
    for number in range(3):
        for file in ("partition.metadata", "leader-epoch-checkpoint"):
            name = Path(f"pictured-{number}") / file
            # A broker writes its epochs in another thread, slightly later.
            wait_until(
                lambda: (broker.log_dir / name).read_text() == (copy.directory / name).read_text(),  # noqa: B023 (at once)
                f"{name} equals the broker's file",
            )
