"""Tests that each later run of the mirror applies the source's changes to the copy."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewPartitions

from testing.broker.client import Outgoing
from tests.cluster.mirror.conftest import running, values
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.interop.ours import read_records
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import LATEST
from topicfs.cluster.mirror.mirror import MirrorOptions, mirror
from topicfs.cluster.mirror.topics import TopicNames
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.main import cli
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.disk.native import NativeFileSystem

pytestmark = pytest.mark.java

SEGMENT_BYTES = "1048576"


def lines(*texts):
    return [Outgoing(text.encode()) for text in texts]


@contextmanager
def opened(directory):
    with closing(open_engine(directory, read_only=True)) as engine:
        yield engine


def bounds(directory, topic, number=0):
    with opened(directory) as engine:
        offsets = engine.partition(topic, number).offsets()
        return offsets.log_start_offset, offsets.log_end_offset


def log_bytes(directory):
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def size(path):
    return path.stat().st_size if path.exists() else 0


def findings(directory):
    return list(DirectoryCheck(directory, NativeFileSystem(read_only=True)).findings())


def test_a_second_run_continues(copy, client):
    """A second run continues where the first run ended, and copies no record again."""
    client.create_topic("on")
    client.produce("on", lines("a", "b"))
    first = copy.once("on")
    client.produce("on", lines("c"))
    second = copy.once("on")
    assert [b"a", b"b", b"c"] == values(copy.directory, "on")
    assert 0 < second.copied_bytes < first.copied_bytes
    assert 0 == copy.once("on").copied_bytes
    assert [] == copy.said


def test_a_directory_opens_and_is_whole(copy, client):
    """The copied directory can be opened, and `topicfs check` finds no fault in it."""
    client.create_topic("whole", partitions=2)
    client.produce("whole", lines("a"), partition=1)
    copy.once("whole")
    assert [] == findings(copy.directory)


def test_deleted_records_are_followed(copy, client, broker):
    """The copy's log start follows the source's log start, within a segment and across whole segments."""
    client.create_topic("deleted", settings={"segment.bytes": SEGMENT_BYTES})
    client.produce("deleted", [Outgoing(bytes(50_000)) for _ in range(60)], batch=5)
    copy.once("deleted")
    client.delete_records("deleted", 3)
    copy.once("deleted")
    assert (3, 60) == bounds(copy.directory, "deleted")
    client.delete_records("deleted", 47)
    copy.once("deleted")
    assert (47, 60) == bounds(copy.directory, "deleted")
    (first, *_) = sorted((copy.directory / "deleted-0").glob("*.log"))
    assert 0 < int(first.stem) <= 47


def test_records_deleted_before_they_were_copied_are_reported(copy, client):
    """Records deleted before they were copied are reported as a gap; the copy continues at the source's log start."""
    client.create_topic("gap")
    client.produce("gap", lines("a", "b"))
    copy.once("gap")
    client.produce("gap", lines("c", "d", "e"), batch=1)
    client.delete_records("gap", 4)
    copy.once("gap")
    assert (4, 5) == bounds(copy.directory, "gap")
    assert [
        "gap-0: offsets 2 to 3 were deleted at the source before they were read; the copy begins again at 4"
    ] == copy.said


def test_a_start_within_a_batch(copy, client, broker):
    """If the source's log start is inside a batch, the copy keeps the whole batch. Both have the same log start."""
    client.create_topic("within")
    client.produce("within", lines("a", "b", "c", "d"))
    client.delete_records("within", 2)
    copy.once("within")
    assert (2, 4) == bounds(copy.directory, "within")
    assert [b"c", b"d"] == values(copy.directory, "within")
    assert log_bytes(broker.log_dir / "within-0") == log_bytes(copy.directory / "within-0")


def test_a_recreated_topic_replaces_its_copy(copy, client):
    """A recreated topic, recognized by its id, replaces the copy even if names and offsets are equal."""
    client.create_topic("remade")
    client.produce("remade", lines("old"))
    copy.once("remade")
    client.delete_topics(["remade"])
    second = client.create_topic("remade", partitions=2)
    client.produce("remade", lines("new"))
    copy.once("remade")
    assert [b"new"] == values(copy.directory, "remade")
    with opened(copy.directory) as engine:
        assert (second, 2) == (engine.topic("remade").topic_id, len(engine.topic("remade").partitions()))
    assert ["remade: deleted and created again in the cluster, and its copy as well"] == copy.said


class LateBrokers(Brokers):
    """Brokers, one of which lags behind: its first `times` answers to Metadata describe an older state."""

    def __init__(self, address, topic, times):
        super().__init__(address)
        self.topic, self.times = topic, times

    def metadata(self, **options):
        now = super().metadata(**options)
        if not self.times:
            return now
        self.times -= 1
        older = now.topics[self.topic]._replace(topic_id=encode_id(uuid4()))
        return now._replace(topics={**now.topics, self.topic: older})


@pytest.mark.parametrize(("times", "copied", "complete"), [(3, [b"a", b"b"], True), (10**6, [b"a"], False)])
def test_a_lagging_broker_does_not_replace_a_copy(copy, client, address, times, copied, complete):
    """If brokers disagree about a topic's id, the mirror waits until they agree, as some of them may lag behind."""
    name = f"late-{times}"
    client.create_topic(name)
    client.produce(name, lines("a"))
    copy.once(name)
    client.produce(name, lines("b"))
    options = MirrorOptions(
        names=TopicNames((name,)),
        once=True,
        metadata_seconds=0.01,
        idle_timeout_seconds=2 if times > 3 else 20,
    )
    with closing(LateBrokers(address, name, times)) as brokers:
        summary = mirror(copy.directory, brokers, options, copy.said.append, threading.Event())
    text = (
        f"{name}: the cluster reports another topic of that name, but broker 1 has the one that was copied; "
        "the copy stays as it is until all brokers agree"
    )
    assert [text] == copy.said
    assert (() if complete else (text,)) == summary.problems
    assert copied == values(copy.directory, name)


def test_a_deleted_topics_copy_stays(copy, client):
    """The copy of a deleted topic stays, because it may be the last copy."""
    client.create_topic("copy-kept")
    client.produce("copy-kept", lines("a"))
    copy.once("copy-kept")
    client.delete_topics(["copy-kept"])
    summary = copy.once("copy-kept")
    assert (0, ()) == (summary.topics, summary.problems)
    assert [b"a"] == values(copy.directory, "copy-kept")
    assert ["copy-kept: no longer in the cluster; its copy stays"] == copy.said


def test_partitions_and_settings_that_come_later(copy, client):
    """The next run copies added partitions and changed settings."""
    client.create_topic("more-partitions")
    copy.once("more-partitions")
    client.admin.create_partitions([NewPartitions("more-partitions", 3)])["more-partitions"].result(30)
    client.set_setting("more-partitions", "retention.ms", "12345678")
    client.produce("more-partitions", lines("a"), partition=2)
    copy.once("more-partitions")
    assert [b"a"] == values(copy.directory, "more-partitions", 2)
    with opened(copy.directory) as engine:
        assert 12345678 == engine.topic("more-partitions").config.retention_ms


def test_where_a_new_copy_begins(copy, client, tmp_path):
    """A new copy begins at the latest offset or at a time, as requested; an existing copy just continues."""
    client.create_topic("begun")
    client.produce("begun", [Outgoing(b"a", timestamp=1_000), Outgoing(b"b", timestamp=2_000)], batch=1)
    copy.once("begun", begin=LATEST)
    client.produce("begun", lines("c"))
    copy.once("begun", begin=LATEST)
    assert [b"c"] == values(copy.directory, "begun")
    timed = type(copy)(tmp_path / "timed", copy.address)
    timed.once("begun", begin=1_500)
    assert [b"b", b"c"] == values(timed.directory, "begun")
    late = type(copy)(tmp_path / "late", copy.address)
    late.once("begun", begin=int(time.time() * 1000) + 3_600_000)
    assert (3, 3) == bounds(late.directory, "begun")


def test_an_empty_partition_from_the_latest_is_not_moved_again(copy, client):
    """A copy of an empty partition keeps its first run's latest offset, so the second run copies all later records."""
    client.create_topic("between")
    copy.once("between", begin=LATEST)
    client.produce("between", lines("a"))
    copy.once("between", begin=LATEST)
    assert [b"a"] == values(copy.directory, "between")


def test_a_compacted_source(copy, client, broker):
    """Records that survive compaction, and later records, have the same offsets and gaps in the copy."""
    settings = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    client.create_topic("compacted", settings=settings)
    client.produce(
        "compacted", [Outgoing(b"v%d" % number, b"k%d" % (number % 2)) for number in range(8)], batch=1
    )

    def is_compacted():
        # The broker closes a segment when a record is appended after the segment's time.
        client.produce("compacted", [Outgoing(b"x", b"other")])
        return client.records("compacted")[0].offset > 0

    wait_until(is_compacted, "the broker has compacted")
    copy.once("compacted")
    client.produce("compacted", [Outgoing(b"last", b"k0")])
    copy.once("compacted")
    with opened(copy.directory) as engine:
        ours = {record.offset: record.value for record in read_records(engine.partition("compacted", 0))}
    theirs = {record.offset: record.value for record in client.records("compacted")}
    assert 0 not in theirs
    assert theirs.items() <= ours.items()
    assert b"last" in ours.values()


def test_a_copy_that_was_compacted_here_continues(copy, client):
    """`topicfs maintain` may compact the copy between two runs, if it does not move the copy's end.

    The source's batches then differ from the copy's batches. The mirror does not take the difference for a foreign
    write, even after a kill.
    """
    client.create_topic("maintained", settings={"cleanup.policy": "compact", "segment.ms": "200"})
    client.produce("maintained", [Outgoing(b"v%d" % number, b"k") for number in range(5)], batch=1)
    copy.once("maintained")
    maintained = CliRunner().invoke(cli, ["maintain", str(copy.directory), "--now", "2100-01-01"])
    assert 0 == maintained.exit_code, maintained.output
    copy.forget_the_end()
    client.produce("maintained", [Outgoing(b"last", b"other")])
    assert () == copy.once("maintained").problems
    assert [b"v4", b"last"] == values(copy.directory, "maintained")


def test_new_records_are_copied_until_the_mirror_is_stopped(copy, client, address):
    """Until a following mirror is stopped, it copies new records and topics, and a concurrent reader sees them."""
    client.create_topic("live-a")
    with running(address, copy.directory, "live-*") as said:
        client.produce("live-a", lines("a"))
        client.create_topic("live-b")
        client.produce("live-b", lines("b"))
        wait_until(
            lambda: all(log_bytes(copy.directory / f"live-{one}-0") for one in "ab"), "both topics are copied"
        )
        assert ([b"a"], [b"b"]) == (values(copy.directory, "live-a"), values(copy.directory, "live-b"))
    assert [] == said


def test_kills_at_random_points(copy, client, broker):
    """After each kill the next run continues the copy, and in the end the copy's files equal the broker's files."""
    client.create_topic("killed", partitions=3, settings={"segment.bytes": SEGMENT_BYTES})
    for number in range(3):
        client.produce(
            "killed",
            [Outgoing(bytes(2_000)) for _ in range(3_000)],
            partition=number,
            batch=3,
            enable_idempotence=True,
        )
    chance, copied, killed = random.Random(56), 0, 0
    words = ["mirror", str(copy.address), str(copy.directory), "--topics", "killed", "--once"]
    for _ in range(5):
        copied += chance.randrange(50_000, 2_500_000)
        process = FORKS.start(COMMAND, *words)
        while process.poll() is None and sum(map(size, copy.directory.glob("*/*.log"))) < copied:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    copy.once("killed")
    for number in range(3):
        ours, theirs = (Path(each) / f"killed-{number}" for each in (copy.directory, broker.log_dir))
        assert [path.name for path in sorted(theirs.glob("*.log"))] == [
            path.name for path in sorted(ours.glob("*.log"))
        ]
        assert log_bytes(theirs) == log_bytes(ours)
    assert [] == findings(copy.directory)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_after_a_power_loss_is_filled(copy, client, broker, policy):
    """A segment that a power loss emptied, or cut after a batch, looks valid; the mirror fills the gap."""
    name = f"holed-{policy}"
    settings = {
        "segment.bytes": SEGMENT_BYTES,
        "cleanup.policy": policy,
        "min.compaction.lag.ms": "1000000000",
    }
    client.create_topic(name, settings=settings)
    client.produce(name, [Outgoing(bytes(2_000), key=b"%d" % n) for n in range(3_000)], batch=3)
    copy.once(name)
    ours, theirs = (Path(each) / f"{name}-0" for each in (copy.directory, broker.log_dir))
    _, second, *others = sorted(ours.glob("*.log"))
    assert others
    os.truncate(second, 0)
    for left_out in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (copy.directory / left_out).unlink()
    copy.forget_the_end()
    copy.once(name)
    assert log_bytes(theirs) == log_bytes(ours)
    assert [] == findings(copy.directory)


class RecordedWaits(threading.Event):
    """An event that never waits, but adds up the seconds that it was asked to wait."""

    def __init__(self):
        super().__init__()
        self.seconds = 0.0

    def wait(self, timeout=None):
        self.seconds += timeout
        return self.is_set()


def test_a_mirror_stays_below_its_limit(copy, client, address):
    """After each answer the mirror waits long enough to stay below its limit in bytes per second."""
    client.create_topic("slowed-down", partitions=2)
    for number in range(2):
        client.produce("slowed-down", [Outgoing(bytes(1_000))] * 200, partition=number, batch=10)
    options = MirrorOptions(names=TopicNames(("slowed-down",)), once=True, throttle=20_000)
    stop, began = RecordedWaits(), time.monotonic()
    with closing(Brokers(address)) as brokers:
        summary = mirror(copy.directory, brokers, options, copy.said.append, stop)
    assert summary.copied_bytes > 400_000
    assert stop.seconds + time.monotonic() - began > summary.copied_bytes / options.throttle


def test_the_command_prints_a_summary(copy, client):
    """The last line that the command prints says what was copied; a name that matches no topic is an error."""
    client.create_topic("commanded", partitions=2)
    client.produce("commanded", lines("a"))
    words = ["mirror", str(copy.address), str(copy.directory), "--once", "--topics"]
    done = CliRunner().invoke(cli, [*words, "nothing,comm?nded"])
    assert (0, "1 topic, 2 partitions: 69 bytes copied\n") == (done.exit_code, done.output)
    missing = CliRunner().invoke(cli, [*words, "unheard-of"])
    assert (1, "Error: no topic in the cluster is named unheard-of\n") == (missing.exit_code, missing.output)
