"""Tests that foreign directories, and sources that cannot be copied, give a one-line error and are not changed."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka.admin import AclOperation

from testing.broker.client import Outgoing
from tests.doubles.engines import append_lines
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.kafka_tools import run_tool
from tests.doubles.producing import found
from tests.doubles.records import batch
from tests.doubles.small_disk import small_disk
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.fetch import FetchPartition, fetch
from topicfs.cluster.engine import open_engine as open_cluster
from topicfs.cluster.errors import MirrorError, UnreachableError, WrittenByOthersError
from topicfs.cluster.place import ClusterAddress, Server
from topicfs.cluster.protocol.sasl import Credentials, plain
from topicfs.cluster.protocol.security import Security
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError, DirectoryLockedError
from topicfs.storage.model import Offset
from topicfs.storage.segment.segment import Segment

pytestmark = pytest.mark.java


@pytest.fixture
def filled(copy, client, request):
    """A mirror of the test's own topic, which has two records."""
    topic = re.sub("[^a-z]+", "-", request.node.name.removeprefix("test_"))[:60]
    client.create_topic(topic)
    client.produce(topic, [Outgoing(b"a"), Outgoing(b"b")], batch=1)
    copy.once(topic)
    return topic


def written_to(directory, topic):
    with closing(open_engine(directory)) as engine:
        append_lines(engine.partition(topic, 0), "theirs\n")


def bytes_below(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_that_others_wrote_to(copy, filled):
    """The mirror refuses a directory in which a log ends at another offset than the mirror has recorded."""
    written_to(copy.directory, filled)
    with pytest.raises(WrittenByOthersError, match=f"{filled}-0 ends at 3, and the mirror left it at 2"):
        copy.once(filled)


def test_a_foreign_record_beyond_the_sources_end_is_detected(copy, filled):
    """After a kill, a foreign record beyond the source's end is found: its leader epoch ends earlier in the source."""
    copy.forget_the_end()
    written_to(copy.directory, filled)
    with pytest.raises(
        WrittenByOthersError,
        match="ends at 3, above 2: its leader's epoch 0 ends there, and the leader has not changed",
    ):
        copy.once(filled)


def test_a_foreign_record_in_place_of_the_sources_is_detected(copy, filled, client):
    """After a kill, a foreign record in the copy is detected: the source has another batch at its offset."""
    copy.forget_the_end()
    written_to(copy.directory, filled)
    client.produce(filled, [Outgoing(b"ours")])
    with pytest.raises(WrittenByOthersError, match="has another batch at offset 2 than its source"):
        copy.once(filled)


def test_a_foreign_record_in_a_compacted_copy_is_detected(copy, client):
    """After a kill, a foreign record in a compacted copy is detected: compaction cannot turn one batch into another."""
    client.create_topic("kept-keys", settings={"cleanup.policy": "compact"})
    client.produce("kept-keys", [Outgoing(b"a", b"k")])
    copy.once("kept-keys")
    copy.forget_the_end()
    with closing(open_engine(copy.directory)) as engine:
        engine.partition("kept-keys", 0).append(batch(b"theirs", key=b"k"))
    client.produce("kept-keys", [Outgoing(b"b", b"k")])
    with pytest.raises(WrittenByOthersError, match="has another batch at offset 1 than its source"):
        copy.once("kept-keys")


def test_an_unchanged_copy_continues_after_a_kill(copy, filled, client):
    """After a kill, the mirror continues if the copy's last batch is also in the source."""
    copy.forget_the_end()
    client.produce(filled, [Outgoing(b"c")])
    assert () == copy.once(filled).problems


def as_alice(copy, broker):
    copy.address = ClusterAddress((Server("localhost", broker.ports["SASL_PLAINTEXT"]),))
    copy.security = Security(
        credentials=Credentials("PLAIN", "alice", partial(plain, "alice", "alice-secret"))
    )


def test_topics_that_the_user_may_not_read(copy, client, broker):
    """Only readable topics are copied; for topics that can only be described, the missing ACL is reported."""
    topics = ("acl-described", "acl-free", "acl-hidden")
    for topic in topics:
        client.create_topic(topic)
        client.produce(topic, [Outgoing(b"a")])
    client.allow("acl-described", "alice", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    client.allow("acl-hidden", "bob", AclOperation.READ)
    as_alice(copy, broker)
    problem = (
        "acl-described-0: the cluster answers TOPIC_AUTHORIZATION_FAILED; "
        "ask for an ACL on it: Describe and Read to read, Write to append, DescribeConfigs to see its settings, "
        "Create, Alter, AlterConfigs or Delete to change it"
    )
    summary = copy.once(*topics)
    assert (2, (problem,)) == (summary.topics, summary.problems)
    assert [problem] == copy.said
    with closing(open_engine(copy.directory, read_only=True)) as engine:
        ends = {
            name: topic.partitions()[0].offsets().log_end_offset for name, topic in engine.topics().items()
        }
    assert {"acl-described": 0, "acl-free": 1} == ends


def test_a_topic_that_the_user_may_no_longer_describe(copy, client, broker):
    """If the right to describe a topic is revoked, the copy stays, and the mirror reports the right, not a deletion."""
    client.create_topic("acl-revoked")
    as_alice(copy, broker)
    copy.once("acl-revoked")
    client.allow("acl-revoked", "bob", AclOperation.READ)
    copy.once("acl-revoked")
    assert ["acl-revoked: the user may no longer describe it; its copy stays"] == copy.said


@pytest.fixture
def quota(java, broker, client, address):
    """A used-up quota of a thousand bytes per second for clients with this test's client id."""
    client.create_topic("quota")
    client.produce("quota", [Outgoing(bytes(10_000))] * 50)

    def alter(*words):
        where = ("--bootstrap-server", broker.bootstrap_server, "--entity-type", "clients")
        run_tool(java, "kafka.admin.ConfigCommand", *where, "--entity-name", "topicfs", "--alter", *words)

    try:
        alter("--add-config", "consumer_byte_rate=1000")
        with closing(open_cluster(address)) as engine:
            partition = found(engine, "quota")
            wanted = FetchPartition(partition.name, partition.topic_id, Offset(0))
            # The controller answers first; the broker applies the quota slightly later.
            wait_until(
                lambda: fetch(engine.leaders.brokers, 1, [wanted], max_bytes=1 << 20).throttle_ms,
                "the broker applies the quota",
            )
        yield
    finally:
        alter("--delete-config", "consumer_byte_rate")


@pytest.mark.usefixtures("quota")
def test_a_quota_that_lets_nothing_through(copy, client):
    """A broker may delay its answers for minutes if a client is over its quota.

    The mirror then reports the quota as the cause, with a remedy.
    """
    client.create_topic("too-quick")
    client.produce("too-quick", [Outgoing(bytes(10_000))] * 50)
    problem = "broker 1: the quota of this client is used up; ask for a larger consumer_byte_rate"
    assert (f"too-quick-0: {problem}",) == copy.once("too-quick", patience=1).problems
    assert [problem] == copy.said


def test_two_mirrors_of_one_directory(copy, filled):
    """A second mirror is refused while the first has the directory open."""
    with closing(open_engine(copy.directory)), pytest.raises(DirectoryLockedError, match="in use by process"):
        copy.once(filled)


def test_topics_that_no_mirror_made(copy, filled):
    """A topic that was not made by a mirror is detected before anything is written to the directory."""
    with closing(open_engine(copy.directory)) as engine:
        engine.create_topic("extra")
    (copy.directory / "topicfs.topics").unlink()  # A broker's directory has no such file.
    before = bytes_below(copy.directory)
    with pytest.raises(
        MirrorError, match="has topic extra, which the mirror did not create; mirror into another directory"
    ):
        copy.once(filled)
    assert before == bytes_below(copy.directory)


def test_a_mirror_of_another_cluster(copy, filled):
    """A mirror of another cluster is refused with the names of both clusters."""
    journal = copy.directory / "topicfs.mirror"
    journal.write_text(journal.read_text().replace('"cluster": "', '"cluster": "other-'))
    with pytest.raises(MirrorError, match="a mirror of the cluster other-.*, not of "):
        copy.once(filled)


def test_a_damaged_journal(copy, filled):
    """Any damage of the mirror's journal is reported with the journal's name."""
    for content in ("{", "{}", '{"version": 2}', '{"version": 1, "cluster": "c", "topics": 5}'):
        (copy.directory / "topicfs.mirror").write_text(content)
        with pytest.raises(CorruptionError, match=r"topicfs\.mirror"):
            copy.once(filled)


def test_no_broker(copy, served):
    """If no broker answers, no directory is created."""
    server = served(lambda connection: connection.close())
    copy.address = copy.address._replace(servers=(server, Server("127.0.0.1", 1)))
    with pytest.raises(UnreachableError, match="no broker answers"):
        copy.once("any")
    assert not copy.directory.exists()


def test_a_disk_that_is_full_ends_the_mirror(copy, filled, client, monkeypatch):
    """A full disk ends the mirror with the disk's error; the copy stays, and the next run continues it."""

    def full(*_):
        raise OSError(28, "No space left on device")

    client.produce(filled, [Outgoing(b"c")])
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "append", full)
        with pytest.raises(OSError, match="No space left"):
            copy.once(filled)
    assert () == copy.once(filled).problems


@pytest.mark.root
def test_a_disk_that_is_really_full(copy, client, tmp_path):
    """The command's last line reports the full disk; once there is space, the next run completes the copy."""
    client.create_topic("too-much-to-copy", partitions=2)
    for number in range(2):
        client.produce("too-much-to-copy", [Outgoing(bytes(100_000))] * 60, partition=number, batch=5)
    with small_disk(tmp_path, kind="tmpfs", size_mb=8) as disk:
        words = ["mirror", str(copy.address), str(disk / "copy"), "--topics", "too-much-to-copy", "--once"]
        failed = FORKS.run(COMMAND, *words)
        assert failed.status
        assert b"No space left on device" in failed.errors.splitlines()[-1]
        subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
        done = FORKS.run(COMMAND, *words)
        assert (0, b"") == (done.status, done.errors)
        assert [] == list(DirectoryCheck(disk / "copy", NativeFileSystem(read_only=True)).findings())
        with closing(open_engine(disk / "copy", read_only=True)) as engine:
            ends = [
                engine.partition("too-much-to-copy", number).offsets().log_end_offset for number in range(2)
            ]
    assert [60, 60] == ends


def test_two_mirrors_at_once(copy, client, tmp_path):
    """A second mirror of a directory ends with a line that names the first mirror."""
    client.create_topic("twice")
    words = ["mirror", str(copy.address), str(copy.directory), "--topics", "twice"]
    with FORKS.start(COMMAND, *words) as first:
        try:
            wait_until((copy.directory / "twice-0").exists, "the first mirror has begun")
            second = FORKS.run(COMMAND, *words)
        finally:
            first.terminate()
    assert (0, 1) == (first.returncode, len(second.errors.splitlines()))
    assert f"in use by process {first.pid}" in second.errors.decode()
