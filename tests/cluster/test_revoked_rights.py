"""Rights revoked while a cluster is mounted give EACCES with a reason; once granted again, everything works again."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from testing.broker.client import Outgoing
from tests.doubles.cluster_mount import bash, mounted_cluster
from tests.doubles.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.fuse]

ALICE = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";
"""


@pytest.fixture(scope="module")
def mount(broker, tmp_path_factory):
    """The cluster, mounted by alice."""
    directory = tmp_path_factory.mktemp("alice")
    config = directory / "client.properties"
    config.write_text(ALICE)
    address = f"kafka://localhost:{broker.ports['SASL_PLAINTEXT']}"
    with mounted_cluster(address, directory, "--client-config", str(config), "--allow-delete") as mountpoint:
        yield mountpoint


@pytest.fixture
def topic(client, mount, request):
    """A topic with one record, already visible in the mount."""
    name = request.node.originalname.replace("_", "-")
    client.create_topic(name)
    client.produce(name, [Outgoing(b"one")])
    wait_until((mount / name / "0" / "0").is_file, "the record shows")
    return name


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def is_denied(mount, script):
    done = bash(mount, script)
    assert done.status == 0 or "Permission denied" in done.errors, done
    return done.status != 0


def wait_until_denied(mount, *scripts):
    """Wait until each script fails, as the mount answers from memory until its next request is denied."""
    for script in scripts:
        wait_until(lambda script=script: is_denied(mount, script), f"the right is revoked: {script}")


def wait_for_status(mount, text):
    wait_until(lambda: text in (mount / "@status").read_text(), f"@status has {text}")


def test_a_topic_that_may_no_longer_be_described(mount, client, topic, threads):
    """Open files and paths fail with EACCES, with the missing right in @status, until the right is granted again."""
    partition = mount / topic / "0"
    with (partition / "log").open("rb", buffering=0) as log, (partition / "follow").open("rb") as follow:
        waiting = threads.submit(follow.read1)
        client.allow(topic, "bob", AclOperation.READ)
        with pytest.raises(PermissionError):
            waiting.result()
        reads = ("cat 0/log", "cat log", "cat 0/0-", "cat config", "cat 0/follow")
        wait_until_denied(mount / topic, "echo two >> 0/log", *reads)
        with suppress(PermissionError):  # The mount may have read the record before.
            assert b"one\n" == log.read()
        wait_for_status(mount, f"{topic}-0: the cluster answers TOPIC_AUTHORIZATION_FAILED; ask for an ACL")
        assert topic in os.listdir(mount)
        client.allow(topic, "alice", AclOperation.READ, AclOperation.WRITE)
        wait_until(lambda: not is_denied(mount / topic, "echo two >> 0/log"), "the right is granted again")
        log.seek(0)
        assert b"one\ntwo\n" == log.read()
        assert b"two\n" == follow.read1()


def test_a_topic_that_is_deleted_while_it_may_not_be_described(mount, client, topic):
    """A deletion is noticed even if the topic may not be described, because the cluster answers requests by id."""
    with (mount / topic / "0" / "log").open("rb", buffering=0) as log:
        client.allow(topic, "bob", AclOperation.READ)
        wait_until_denied(mount, f"cat {topic}/0/log")
        client.delete_topics([topic])
        wait_until(lambda: not (mount / topic).exists(), "the topic is gone")
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            wait_until(
                lambda: log.read() is None, "the open file is stale"
            )  # Bytes that the mount has read may come first.


def test_a_topic_that_may_no_longer_be_read_or_written(mount, client, topic, threads):
    """A waiting reader gets EACCES at the next record, and a writer at the next write; the topic is still listed."""
    partition = mount / topic / "0"
    with (partition / "follow").open("rb") as follow, (partition / "log").open("ab", buffering=0) as log:
        log.write(b"two\n")
        assert b"two\n" == follow.read1()
        waiting = threads.submit(lambda: list(iter(follow.read1, b"")))
        client.allow(topic, "alice", AclOperation.DESCRIBE)
        with pytest.raises(PermissionError):
            log.write(b"three\n")
        while not waiting.done():  # A fetch accepted before the revocation may still return a record.
            client.produce(topic, [Outgoing(b"four")])
        with pytest.raises(PermissionError):
            waiting.result()
        assert (partition / "log").stat()
        client.produce(topic, [Outgoing(b"five")])  # The mount has not read this record.
        wait_until_denied(mount, f"cat {topic}/0/0-")


def denied_member(mount, topic, threads, revoke):
    """Check that a waiting member gets EACCES after `revoke(group)`; return the group's directory."""
    group = mount / "@groups" / f"group-{topic}"
    group.mkdir()
    with (group / topic / "log").open("rb") as log:
        assert b"one\n" == log.read1()
        waiting = threads.submit(log.read1)
        revoke(group.name)
        with pytest.raises(PermissionError):
            waiting.result()
    return group


def test_a_group_that_may_no_longer_be_read(mount, client, topic, threads):
    """A waiting member gets EACCES, as does a program that opens a file of the group."""

    def revoke(group):
        client.allow(group, "bob", AclOperation.READ, kind=ResourceType.GROUP)

    group = denied_member(mount, topic, threads, revoke)
    position = f"{topic}/0/position"
    wait_until_denied(group, f"cat {topic}/log", "cat status", f"cat {position}", f"echo 0 > {position}")
    wait_for_status(mount, "GROUP_AUTHORIZATION_FAILED; ask for an ACL on the group")


def test_a_groups_topic_that_may_no_longer_be_described(mount, client, topic, threads):
    """A member that waits for records of the topic gets EACCES."""
    group = denied_member(mount, topic, threads, lambda _: client.allow(topic, "bob", AclOperation.READ))
    wait_until_denied(group, f"cat {topic}/log")
