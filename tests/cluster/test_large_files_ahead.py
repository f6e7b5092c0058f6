"""Tests that a large file, appended with --max-in-flight, is whole and in order, or that the writer gets an error."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client
from testing.processes import started
from tests.doubles.broker_away import back_again
from tests.doubles.cluster_mount import bash, mounted_cluster
from tests.doubles.waiting import wait_until
from topicfs.cluster.place import cluster_address

pytestmark = [pytest.mark.java, pytest.mark.fuse]

BLOCK_BYTES = 512 * 1024


def written(directory: Path, count: int) -> tuple[Path, list[bytes]]:
    """Write a file of `count` lines of 100 bytes, the last without a newline; return it and its lines."""
    lines = [b"%09d %s" % (number, b"x" * 89) for number in range(count)]
    path = directory / "source"
    path.write_bytes(b"\n".join(lines))
    return path, lines


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_file_is_whole_and_in_order(address, client, tmp_path, acks):
    """Files appended in parallel to a partition and to a topic's `log` are whole, and readable when `cat` ends."""
    source, lines = written(tmp_path, 200_000)
    client.create_topic(f"ahead-{acks}")
    client.create_topic(f"ahead-spread-{acks}", partitions=3)
    with mounted_cluster(address, tmp_path, "--max-in-flight", "3", "--acks", acks) as mountpoint:
        wait_until((mountpoint / f"ahead-spread-{acks}/2/log").exists, "the topics show")
        ran = bash(mountpoint, f"cat {source} >> ahead-{acks}/0/log && cat ahead-{acks}/0/log")
        assert ("", 0) == (ran.errors, ran.status)
        assert lines == ran.output.encode().splitlines()
        both = bash(
            mountpoint,
            f"cat {source} >> ahead-{acks}/0/log & cat {source} >> ahead-spread-{acks}/log; wait $! && "
            f"cat ahead-{acks}/0/log | cmp - <(cat {source}; echo; cat {source}; echo)",
        )
        assert ("", 0) == (both.errors, both.status)
        spread = [(mountpoint / f"ahead-spread-{acks}/{part}/log").read_bytes() for part in range(3)]
        assert "max_in_flight 3\n" in (mountpoint / "@status").read_text()
    assert sorted(lines) == sorted(b"".join(spread).splitlines())
    assert lines[-1000:] == [one.value for one in client.records(f"ahead-{acks}", start=199_000)][:1000]


@pytest.mark.parametrize("how", ["killed", "standing still"])
def test_no_line_is_lost_or_doubled(three_brokers: Mapping[int, Broker], tmp_path: Path, how: str) -> None:
    """While the leader changes, `cat` waits for the new leader and succeeds, and each line is stored once, in order."""
    client = Client(three_brokers[1].bootstrap_server)
    topic = f"file-{how.split(maxsplit=1)[0]}"
    client.create_topic(topic, replicas=(2, 3, 1), settings={"min.insync.replicas": "2"})
    source, lines = written(tmp_path, 300_000)
    address = cluster_address(f"kafka://{client.bootstrap_server}")
    leader = three_brokers[2]
    with back_again(leader), mounted_cluster(address, tmp_path, "--max-in-flight", "5") as mountpoint:
        wait_until((mountpoint / topic / "0/log").exists, "the topic shows")
        with (
            (mountpoint / topic / "0/log").open("ab") as log,
            started(("cat", str(source)), stdout=log) as cat,
        ):
            wait_until(lambda: client.offset_for(topic) > 0, "the appends have begun")
            if how == "killed":
                leader.kill()
            else:
                with leader.paused():
                    wait_until(lambda: cat.poll() is not None, "cat has ended", timeout_seconds=120)
            assert 0 == cat.wait(120)
    assert lines == [one.value for one in client.records(topic)]


def test_errors_are_reported_at_the_latest_by_close(address, client, tmp_path):
    """If the topic is deleted during a write, the writer gets the error from a write or at the latest from close."""
    client.create_topic("vanishing")
    block = b"x" * 99 + b"\n"
    with mounted_cluster(address, tmp_path, "--max-in-flight", "2") as mountpoint:
        wait_until((mountpoint / "vanishing/0/log").exists, "the topic shows")
        log = os.open(mountpoint / "vanishing/0/log", os.O_WRONLY | os.O_APPEND)
        os.write(log, block * (BLOCK_BYTES // 100))
        client.delete_topics(["vanishing"])
        errors = []
        for call in (lambda: os.write(log, block * (BLOCK_BYTES // 100)), lambda: os.close(log)):
            try:
                call()
            except OSError as error:
                errors.append(error.errno)
        assert errors[0] in {errno.ESTALE, errno.ENOENT, errno.EIO}


def test_max_in_flight_needs_a_cluster(tmp_path):
    """--max-in-flight is refused for a data directory, because a data directory appends each write as a whole."""
    command = ("topicfs", "mount", "--max-in-flight", "2", str(tmp_path / "data"), str(tmp_path))
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 2 == ran.returncode
    assert "--max-in-flight is for a cluster" in ran.stderr
