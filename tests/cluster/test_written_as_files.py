"""Shell tools write lines and batches to a cluster's topics, with and without a mount."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testing.broker.client import Outgoing
from tests.doubles.cluster_mount import bash, mounted_cluster, topicfs
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.kafka_tools import console_consume, consume_by_kcat
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.engine import open_engine
from topicfs.cluster.place import ClusterAddress
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.model import Header, Offset
from topicfs.storage.partitioning import partition_of_key

pytestmark = pytest.mark.java


@pytest.fixture
def mounted(address: ClusterAddress, tmp_path: Path) -> Iterator[Path]:
    """The cluster, mounted for writing."""
    with mounted_cluster(address, tmp_path) as mountpoint:
        yield mountpoint


def known(mountpoint, client, name, **how):
    """Create a topic and return its directory when the mount shows all of its partitions."""
    partitions = how.get("partitions", 1)
    client.create_topic(name, **how)
    wait_until((mountpoint / name / str(partitions - 1) / "log").exists, "the topic shows")
    return mountpoint / name


def values(client, name, **how):
    return [record.value for record in client.records(name, **how)]


@pytest.mark.fuse
def test_what_is_written_is_read_by_consumers_and_shows_at_once(mounted, client, broker, java):
    """Values, keys, headers and nulls written in all forms reach kcat, Java's consumer, `cat`, `tail -f` and `stat`."""
    topic = known(mounted, client, "written")
    with subprocess.Popen(
        ("tail", "-c", "+1", "-f", "-s", "0.05", "0/log"), cwd=topic, stdout=subprocess.PIPE
    ) as tail:
        try:
            assert tail.stdout is not None
            ran = bash(
                topic,
                """
                echo one >> 0/log; cat 0/log; stat -c %s 0/log
                printf 'k\\ttwo\\n' >> 0/log.kv; cat 0/1; readlink 0/latest
                printf '{"key":"j","payload":"three","ts":1700000000000,"headers":["h","v"]}\\n' >> 0/log.json
                printf '{"key":"gone","payload":null}\\n' >> 0/log.json; cat 0/log; wc -c < 0/log
                """,
            )
            assert ("", ["one", "4", "two1", "one", "two", "three", "15"]) == (ran.errors, ran.output.split())
            shown = [tail.stdout.readline() for _ in range(4)]
        finally:
            tail.terminate()
    assert [b"one\n", b"two\n", b"three\n", b"\n"] == shown
    found = client.records("written")
    assert [(None, b"one"), (b"k", b"two"), (b"j", b"three"), (b"gone", None)] == [
        (one.key, one.value) for one in found
    ]
    assert (1_700_000_000_000, (Header(b"h", b"v"),)) == (found[2].timestamp, found[2].headers)
    assert ["one", "two", "three", None] == [
        one["payload"] for one in consume_by_kcat(broker.bootstrap_server, "written")
    ]
    assert ["one", "two", "three", "null"] == console_consume(
        java, broker.bootstrap_server, "written", count=4
    )
    status = (mounted / "@status").read_text()
    assert "acks all" in status
    assert "mode read-write" in status


@pytest.mark.fuse
def test_batches_are_copied_as_they_are(mounted, client):
    """`cat log.batch >> log.batch` copies every codec, keys, headers, times and nulls, even if it runs again."""
    source = known(mounted, client, "batches")
    known(mounted, client, "batches-copied")
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = [
            Outgoing(b"%d" % each, b"k", [("h", b"v"), ("n", None)], 1_700_000_000_000 + each)
            for each in range(100 * number, 100 * number + 50)
        ]
        client.produce("batches", [*records, Outgoing(None, b"gone")], compression_type=codec)
    wait_until(lambda: "log_end_offset 255\n" in (source / "0/status").read_text(), "the topic shows")
    for _ in range(2):
        ran = bash(
            mounted,
            "cat batches/0/log.batch >> batches-copied/0/log.batch; cat batches-copied/0/log.batch | wc -c",
        )
        assert ("", 0) == (ran.errors, ran.status)
    assert (source / "0/log.batch").read_bytes() != b""
    assert client.records("batches") * 2 == [
        one._replace(offset=one.offset % 255) for one in client.records("batches-copied")
    ]


@pytest.mark.fuse
def test_a_topics_log_partitions_keys_like_kafka(mounted, client):
    """A keyed line goes to the partition that Java's client chooses; a line without a key goes to any partition."""
    topic = known(mounted, client, "partitioned", partitions=3)
    lines = "".join(f"key-{number}\tvalue {number}\n" for number in range(60))
    with (topic / "log.kv").open("a") as log:
        log.write(lines)
    assert "" == bash(topic, "echo anywhere >> log").errors
    for partition in range(3):
        expected = [
            b"value %d" % number
            for number in range(60)
            if partition == partition_of_key(b"key-%d" % number, 3)
        ]
        assert expected == [
            value for value in values(client, "partitioned", partition=partition) if value != b"anywhere"
        ]
    assert 61 == sum(len(values(client, "partitioned", partition=partition)) for partition in range(3))


@pytest.mark.fuse
def test_a_large_write_is_whole_and_in_order(mounted, client):
    """`cat file >> log` of 20 MB stores each line once and in order, including a last line without a newline."""
    topic = known(mounted, client, "large")
    lines = [b"%07d %s" % (number, b"x" * 92) for number in range(200_000)]
    source = mounted.parent / "source"
    source.write_bytes(b"\n".join(lines))
    assert "" == bash(topic, f"cat {source} >> 0/log").errors
    assert lines == (topic / "0/log").read_bytes().splitlines()
    assert lines[-1000:] == values(client, "large", start=199_000)


@pytest.mark.fuse
def test_a_refused_write_fails_with_a_reason(mounted, client):
    """A refused write or echo fails, with the reason in `@status`; the next write starts with its own line."""
    topic = known(
        mounted, client, "refusing-files", settings={"max.message.bytes": "2000", "cleanup.policy": "compact"}
    )
    ran = bash(
        topic,
        """
        head -c 5000 /dev/zero | tr '\\0' x >> 0/log.kv; echo no key >> 0/log
        printf 'k\\tv\\n' >> 0/log.kv; cat 0/log.kv
        """,
    )
    assert "k\tv\n" == ran.output
    assert "Message too long" in ran.errors
    assert "Invalid argument" in ran.errors
    assert [b"v"] == values(client, "refusing-files")
    assert "INVALID_RECORD" in (mounted / "@status").read_text()


@pytest.mark.fuse
@pytest.mark.parametrize("acks", ["1", "all"])
def test_acks_are_those_of_the_mount(address, tmp_path, client, acks):
    """After `echo` ends, its line can be read, whatever the mount's acks."""
    with mounted_cluster(address, tmp_path, "--acks", acks) as mountpoint:
        name = f"acks-{acks}"
        topic = known(mountpoint, client, name)
        assert "" == bash(topic, "for each in 1 2 3; do echo $each >> 0/log; done").errors
        assert b"1\n2\n3\n" == (topic / "0/log").read_bytes()
        assert f"acks {acks}\n" in (mountpoint / "@status").read_text()
    assert [b"1", b"2", b"3"] == values(client, name)


@pytest.mark.fuse
def test_lines_gather_for_the_cluster(address, tmp_path, client):
    """With acks=0 many small writes become few batches in order; fsync and unmounting wait for the batches."""
    with mounted_cluster(address, tmp_path, "--acks", "0", "--linger-ms", "3000") as mountpoint:
        topic = known(mountpoint, client, "gathered")
        script = "for each in {1..40}; do echo $each >> 0/log; done; sync 0/log; cat 0/log; readlink 0/latest"
        ran = bash(topic, script)
        lines = [b"%d" % number for number in range(1, 41)]
        assert ("", [*lines, b"39"]) == (ran.errors, ran.output.encode().split())
        bash(topic, "for each in {41..50}; do echo $each >> 0/log; done")
    assert [b"%d" % number for number in range(1, 51)] == values(client, "gathered")
    with closing(open_engine(address, read_only=True)) as engine:
        data = engine.partition("gathered", 0).read(Offset(0), max_bytes=1 << 20).data
    assert len(list(scan(data))) < 40


def test_the_command_appends_without_a_mount(address, client):
    """`append` accepts standard input, keys, JSON and batches; if one line is bad, it appends nothing."""
    client.create_topic("appended-to", partitions=2)
    assert (0, "", "") == topicfs(address, "append", "appended-to/0", given=b"one\ntwo")
    assert (0, "", "") == topicfs(address, "append", "appended-to/0/log.kv", given=b"k\tthree\n")
    assert [b"one", b"two", b"three"] == values(client, "appended-to")
    batches = FORKS.run(COMMAND, "cat", "--data", str(address), "appended-to/0/log.batch").output
    ran = topicfs(address, "append", "appended-to/1/log.batch", given=batches)
    assert (0, "", "") == ran, ran.errors
    assert client.records("appended-to") == client.records("appended-to", partition=1)
    refused = topicfs(address, "append", "appended-to/0/log.json", given=b'{"payload":"a"}\nnonsense\n')
    assert 1 == refused.status
    assert "line 2" in refused.errors
    assert 3 == len(values(client, "appended-to"))


@pytest.mark.parametrize(("words", "codec"), [(("--compression", "zstd"), 4), (("--acks", "1"), 0)])
def test_options_of_append_choose_codec_and_acks(address, client, words, codec):
    """`append --compression` overrides the topic's codec; `append --acks 1` waits only for the leader."""
    name = f"appended-{words[1]}"
    client.create_topic(name)
    assert (0, "", "") == topicfs(address, "append", *words, f"{name}/0", given=b"one\n" * 100)
    assert [b"one"] * 100 == values(client, name)
    with closing(open_engine(address, read_only=True)) as engine:
        [header] = scan(engine.partition(name, 0).read(Offset(0), max_bytes=1 << 20).data)
    assert codec == header.attributes & CODEC_MASK


def test_a_named_producer_needs_a_directory(address, client, tmp_path):
    """A named producer for a cluster is a usage error, and nothing is appended."""
    client.create_topic("unnamed")
    (tmp_path / "file").write_text("a\n")
    refused = topicfs(address, "append", "--producer", "nightly", "unnamed/0", str(tmp_path / "file"))
    assert 2 == refused.status
    assert "--producer needs a data directory for its progress" in refused.errors
    assert [] == values(client, "unnamed")


@pytest.mark.fuse
def test_a_child_that_ends_meanwhile_interrupts_no_write(mounted, client, broker):
    """If a shell's child ends during a write, the write still succeeds and its line is stored once."""
    topic = known(mounted, client, "not_interrupted")
    with broker.paused():
        script = "sleep 0.2 & printf 'kept\\n' >> 0/log; echo $?"
        writing = subprocess.Popen(("bash", "-c", script), cwd=topic, stdout=-1, stderr=-1, text=True)
        time.sleep(1.5)  # The daemon checks twice a second which processes wait for it.
    assert ("0\n", "") == writing.communicate(timeout=TIMEOUT_SECONDS)
    assert [b"kept"] == values(client, "not_interrupted")


@pytest.mark.fuse
def test_a_recreated_topic_under_open_files_is_another_one(mounted, client):
    """Writers and followers of the old topic get ESTALE and write nothing to the new topic, which is soon visible."""
    client.create_topic("anew")
    log, follow = mounted / "anew/0/log", mounted / "anew/0/follow"
    wait_until(log.exists, "the topic shows")
    with subprocess.Popen(("cat", follow), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as cat:
        with log.open("ab", buffering=0) as old:
            wait_until(lambda: "waiting_reads 0 " not in (mounted / "@status").read_text(), "cat waits")
            old.write(b"old\n")
            assert cat.stdout is not None
            assert "old\n" == cat.stdout.readline()
            client.delete_topics({"anew"})
            client.create_topic("anew")
            with pytest.raises(OSError, match="Stale file handle"):
                old.write(b"to the old one\n")
        _, said = cat.communicate(timeout=60)
    assert (1, True) == (cat.returncode, "Stale file handle" in said)

    def write() -> bool:
        return bash(mounted, "echo new >> anew/0/log").status == 0

    wait_until(write, "the new topic shows")
    assert [b"new"] == values(client, "anew")


@pytest.mark.fuse
@pytest.mark.parametrize("stamped", [False, True])
def test_retention_ignores_old_record_times_with_log_append_time(mounted, client, stamped):
    """With LogAppendTime retention ignores old record times; with CreateTime `@status` warns of early deletion."""
    name = f"stamped-{stamped}"
    settings = {"retention.ms": "86400000"} | ({"message.timestamp.type": "LogAppendTime"} if stamped else {})
    topic = known(mounted, client, name, settings=settings)
    assert ("", "") == bash(topic, """cat config > /dev/null; echo '{"payload":"x","ts":5}' >> 0/log.json""")[
        1:
    ]
    assert stamped == ("retention will soon delete them" not in (mounted / "@status").read_text())
