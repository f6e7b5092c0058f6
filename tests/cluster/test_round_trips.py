"""What a shell does over a cluster that is far away takes few round trips: the requests that somebody waits for are counted."""

from __future__ import annotations

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount

pytestmark = [pytest.mark.java, pytest.mark.fuse]

BEHIND = {"Fetch in a session", "Metadata", "ApiVersions", "ListOffsets"}
"""Requests of the threads that keep what is known up to date, which nobody waits for, and new connections of theirs.

ListOffsets also comes with an append, in the same round trip.
"""


@pytest.fixture
def mount(tmp_path, address):
    """The cluster at a mountpoint, and its requests in a file."""
    mount = Mount(tmp_path, cluster=str(address), noted=str(tmp_path / "requests"))
    try:
        yield mount.start()
    finally:
        mount.clean_up()


@pytest.fixture
def asked(mount):
    """Run a script in the mount, and return the round trips that it took."""
    requests = mount.base / "requests"

    def run(script):
        before = len(requests.read_text().splitlines())
        done = mount.bash(script)
        assert ("", 0) == (done.stderr, done.returncode)
        return tuple(name for name in requests.read_text().splitlines()[before:] if name not in BEHIND)

    return run


def test_a_listing_of_many_partitions_asks_nothing(mount, asked, client):
    """What is listed is known, also of a hundred partitions; the bounds come without being asked for."""
    client.create_topic("wide", partitions=100)
    wait_until((mount.path / "wide/99/log").exists, "all is known")
    assert () == asked("ls -la wide > /dev/null")
    assert () == asked("ls -la wide/7 > /dev/null")


def test_an_append_takes_one_round_trip(mount, asked, client):
    """The first one two more, for the topic's settings and a producer's id."""
    client.create_topic("near", partitions=2)
    # A broker that has given out no id yet says at first that it is not ready.
    idempotent = client.producer(enable_idempotence=True)
    idempotent.produce("near", b"", partition=1)
    idempotent.flush(30)
    wait_until((mount.path / "near/1/log").exists, "all is known")

    def append(partition):
        # What is read behind, for the size of the file, nobody waits for.
        return [name for name in asked(f"echo line >> near/{partition}/log") if name != "Fetch"]

    assert ["DescribeConfigs", "InitProducerId", "Produce"] == append(0)
    for partition in (0, 1):
        # Settings that are two seconds old are asked for behind.
        assert ["Produce"] == [name for name in append(partition) if name != "DescribeConfigs"]


def test_one_record_takes_few_round_trips(mount, asked, client):
    """Two at most, by its offset; mostly what stands beside it is there already."""
    client.create_topic("found")
    wait_until((mount.path / "found/0/log").exists, "all is known")
    asked("seq 0 99 >> found/0/log")
    wait_until((mount.path / "found/0/42").exists, "its records are known")
    (mount.path / "found/0/42").read_bytes()
    assert len(asked("cat found/0/42")) <= 2
    assert len(asked("cat found/0/43")) <= 2
