"""Tests of a cluster's topics as files of a real mount: shell tools read the records that a consumer gets."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles import cluster_mount
from tests.doubles.cluster_mount import Ran, bash, mounted_cluster
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.place import ClusterAddress

pytestmark = pytest.mark.java

TIME = 1_700_000_000_000


@pytest.fixture
def topicfs(address: ClusterAddress) -> Callable[..., Ran]:
    """Returns a function that runs a `topicfs` command on the cluster."""
    return partial(cluster_mount.topicfs, address)


@pytest.fixture(scope="module")
def shown(client: Client) -> Iterator[str]:
    """A topic of two partitions with a key, a header, a null value and a setting."""
    client.create_topic("shown", partitions=2, settings={"max.message.bytes": "500000"})
    client.produce(
        "shown",
        [
            Outgoing(b"one", key=b"k", timestamp=TIME),
            Outgoing(b"two", headers=[("h", b"v")], timestamp=TIME + 1),
            Outgoing(None, key=b"gone", timestamp=TIME + 2),
        ],
    )
    client.produce("shown", [Outgoing(b"other", timestamp=TIME + 3)], partition=1)
    yield "shown"
    client.delete_topics(["shown"])


@pytest.mark.parametrize("template", [r"%o %k %s\n", r"%t/%p@%T %S %K|", r"%h;", r"%s\x41%%\t\r\\\n", "%o,"])
def test_a_text_of_tokens_is_what_kcat_prints(topicfs, shown, broker, template):
    """`--format` prints the same text as kcat, including nulls, headers and escapes."""
    of_topic = ("-t", shown, "-p", "0", "-o", "beginning", "-e", "-q")
    command = ["kcat", "-C", "-b", broker.bootstrap_server, *of_topic, "-f", template]
    expected = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert expected.stdout.decode() == topicfs("cat", f"{shown}/0", "--format", template).output


def test_columns_of_a_cluster_are_written(topicfs, shown, tmp_path):
    """Columns of a cluster's topic are written like those of a directory's topic."""
    rows = topicfs("cat", f"{shown}/log", "--format", "csv").output.splitlines()
    assert [
        f"{shown},0,0,2023-11-14T22:13:20.000Z,k,one,",
        f'{shown},0,1,2023-11-14T22:13:20.001Z,,two,"[""h"",""v""]"',
    ] == rows[1:3]


def test_commands_read_a_cluster_as_a_directory(topicfs, shown):
    """Commands print a cluster's topics, records, ranges, whole topics and settings like those of a directory."""
    assert "shown" in topicfs("topics", "list").output.splitlines()
    described = topicfs("topics", "describe", shown).output
    assert "max.message.bytes=500000" in described
    assert ["0 0 3", "1 0 1"] == [" ".join(line.split()[:3]) for line in described.splitlines()[-2:]]
    printed = {
        "shown/0": "one\ntwo\n\n",
        "shown/0/0.kv": "k\tone\n",
        "shown/0/-2": "two\n\n",
        f"shown/0/@{TIME + 1}": "two",
        "shown/0/start": "0\n",
        "shown/log": "one\ntwo\n\nother\n",
    }
    assert printed == {path: topicfs("cat", path).output for path in printed}
    record = json.loads(topicfs("cat", "shown/0/1.json").output)
    assert (1, TIME + 1, "two") == (record["offset"], record["ts"], record["payload"])
    setting = topicfs("config", shown, "--match", "max.message.bytes").output
    assert "max.message.bytes=500000\ttopic\t" in setting


def test_a_missing_thing_gives_a_one_line_error(topicfs, shown):
    """A missing topic or partition gives a one-line error and a failing exit status."""
    for path, told in {
        "nowhere/0/1": "no such topic",
        "shown/7/1": "shown/7: no such partition; shown has 2 partitions",
        "shown/0/99": "no offset 99; offsets 0 to 2 exist",
    }.items():
        ran = topicfs("cat", path)
        assert 1 == ran.status
        assert "" == ran.output
        assert told in ran.errors, ran.errors
        assert 1 == len(ran.errors.splitlines())


def test_topics_are_made_changed_and_deleted(topicfs, client):
    """The same commands create, change and delete topics of a cluster and of a data directory."""
    ran = topicfs("topics", "create", "by-command", "--partitions", "2", "--config", "retention.ms=99")
    assert (0, "by-command: created with 2 partitions\n") == (ran.status, ran.output), ran.errors
    assert "exists already" in topicfs("topics", "create", "by-command").errors
    ran = topicfs("config", "by-command", "cleanup.policy=compact", "retention.ms=")
    assert (
        "by-command: cleanup.policy=compact\nby-command: retention.ms=604800000 (the default)\n" == ran.output
    )
    listed = topicfs("config", "by-command", "--set", "--match", "cleanup.*").output
    assert "cleanup.policy=compact\ttopic\tdelete" in listed
    assert "no.such" in topicfs("config", "by-command", "no.such=1").errors
    client.produce("by-command", [Outgoing(b"a", b"k")])
    ran = topicfs("topics", "delete", "by-command")
    assert (1, 1) == (ran.status, len(ran.errors.splitlines()))
    assert "by-command: holds 1 records; add --with-records" in ran.errors
    assert "by-command: deleted\n" == topicfs("topics", "delete", "by-command", "--with-records").output
    assert "no such topic" in topicfs("topics", "describe", "by-command").errors


def test_a_partition_is_followed(address, client):
    """New records are printed until Ctrl-C, or until the topic is deleted."""
    client.create_topic("followed")
    client.produce("followed", [Outgoing(b"a")])
    reading, writing = os.pipe()
    words = ("cat", "--follow", "followed/0", "--data", str(address))
    with (
        FORKS.start(COMMAND, *words, files=(None, writing, None)) as following,
        os.fdopen(reading, "rb") as output,
    ):
        os.close(writing)
        assert b"a\n" == output.readline()
        client.produce("followed", [Outgoing(b"b"), Outgoing(b"c")])
        assert [b"b\n", b"c\n"] == [output.readline() for _ in range(2)]
        client.delete_topics(["followed"])
        assert 0 == following.wait(TIMEOUT_SECONDS)


@pytest.fixture
def mounted(address: ClusterAddress, tmp_path: Path, shown: str) -> Iterator[Path]:
    """The cluster at a mountpoint."""
    with mounted_cluster(address, tmp_path, "--read-only") as mountpoint:
        yield mountpoint


@pytest.mark.fuse
def test_a_mount_shows_what_a_directory_would(mounted, shown):
    """A mount lists, prints, searches and measures a cluster's topics, but does not show segments or brokers' disks."""
    ran = bash(
        mounted / shown,
        """
        ls; ls 0; cat 0/log; cat 0/earliest; echo; readlink 0/latest; cat 0/0-1; grep -c . 0/log
        cat 0/log | wc -c; wc -c < 0/log; tail -n 1 1/log; cat log | sort | head -c 4; cat 0/start
        jq -r .offset 0/log.json; grep ^max config; getfattr --only-values -n user.kafka.key 0/0
        """,
    )
    names = "0 1 config status earliest latest log log.batch log.json log.kv start state status"
    shown_there = "one two one 2 one two 2 9 9 other one0 0 1 2 max.message.bytes=500000 k"
    assert ("", f"{names} {shown_there}".split()) == (ran.errors, ran.output.split())
    status = dict(line.split(" ", 1) for line in (mounted / shown / "0" / "status").read_text().splitlines())
    assert ("online", "3") == (status["state"], status["log_end_offset"])
    assert int(status["log_bytes"]) > 0
    assert not {"segments", "directory", "recovery_point", "last_flush"} & set(status)
    assert b"base_offset 0" == os.getxattr(mounted / shown / "0" / "0", "user.kafka.batch")


@pytest.mark.fuse
def test_a_read_only_mount_refuses_writes(mounted, shown):
    """Each write to a read-only mount fails with EROFS."""
    for script in ("mkdir x", f"echo x >> {shown}/0/log", f"rmdir {shown}", f"echo 2 > {shown}/0/start"):
        assert "Read-only file system" in bash(mounted, script).errors
    status = (mounted / "@status").read_text()
    assert "mode read-only" in status
    assert "cluster kafka://" in status


@pytest.mark.fuse
def test_changes_in_the_cluster_become_visible(mounted, client):
    """New records reach `tail -f` and `follow`; new and deleted topics and a raised log start become visible."""
    client.create_topic("coming")
    wait_until((mounted / "coming").exists, "the topic is there")
    with (
        subprocess.Popen(
            ("tail", "-c", "+1", "-f", "-s", "0.05", "coming/0/log"), cwd=mounted, stdout=subprocess.PIPE
        ) as tail,
        subprocess.Popen(("cat", "coming/0/follow"), cwd=mounted, stdout=subprocess.PIPE) as follow,
    ):
        try:
            wait_until(
                lambda: "waiting_reads 1 of" in (mounted / "@status").read_text(), "the partition is followed"
            )
            for values in ([b"a", b"b"], [b"c"]):
                client.produce("coming", [Outgoing(value) for value in values])
                for program in (tail, follow):
                    assert program.stdout is not None
                    assert [value + b"\n" for value in values] == [program.stdout.readline() for _ in values]
        finally:
            tail.terminate()
            follow.terminate()
    client.delete_records("coming", 2)
    wait_until(lambda: "2\n" == (mounted / "coming/0/start").read_text(), "the mount shows the log start")
    assert b"c\n" == (mounted / "coming/0/log").read_bytes()
    client.delete_topics(["coming"])
    wait_until(lambda: not (mounted / "coming").exists(), "the topic is gone")


@pytest.mark.fuse
def test_records_are_those_of_a_consumer(mounted, client):
    """Records of every codec and committed records of transactions equal those that a consumer gets."""
    client.create_topic("codecs")
    expected: list[Any] = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [f"{codec} {number}".encode() * 20 for number in range(50)]
        client.produce("codecs", [Outgoing(value) for value in values], compression_type=codec)
        expected += values
    producer = client.producer(transactional_id="shown")
    producer.init_transactions()
    for commit in (True, False, True):
        with client.transaction(producer, commit=commit):
            producer.produce("codecs", f"in a transaction: {commit}".encode(), partition=0)
        expected += [b"in a transaction: True"] if commit else []
    wait_until((mounted / "codecs").exists, "the topic is there")
    wait_until(
        lambda: "last_stable_offset 256" in (mounted / "codecs/0/status").read_text(),
        "the mount shows the last stable offset",
    )
    assert expected == (mounted / "codecs/0/log").read_bytes().splitlines()
    assert expected == [record.value for record in client.records("codecs")]
