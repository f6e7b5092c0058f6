"""What a shell does over a cluster that is far away takes few round trips: the requests that somebody waits for are counted."""

from __future__ import annotations

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount

pytestmark = [pytest.mark.java, pytest.mark.fuse]

BEHIND = {"Fetch in a session", "Metadata", "ApiVersions"}
"""Requests of the threads that keep what is known up to date, which nobody waits for, and new connections of theirs."""
TOGETHER = {("Produce", "ListOffsets"): ("Produce",), ("ListOffsets",) * 3: ("ListOffsets",)}
"""Requests that are sent one behind the other, in one round trip."""


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
        names = tuple(name for name in requests.read_text().splitlines()[before:] if name not in BEHIND)
        for several, one in TOGETHER.items():
            while (at := _place(names, several)) >= 0:
                names = names[:at] + one + names[at + len(several) :]
        return names

    return run


def _place(names, several):
    starts = range(len(names) - len(several) + 1)
    return next((at for at in starts if names[at : at + len(several)] == several), -1)


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
    first = asked("echo one >> near/0/log")
    assert ("DescribeConfigs", "InitProducerId", "Produce") == first
    assert ("Produce",) == asked("echo two >> near/0/log")
    assert ("Produce",) == asked("echo three >> near/1/log")


def test_one_record_takes_one_round_trip(mount, asked, client):
    """By its offset; what stands beside it is there already."""
    client.create_topic("found")
    wait_until((mount.path / "found/0/log").exists, "all is known")
    asked("seq 0 99 >> found/0/log")
    wait_until((mount.path / "found/0/42").exists, "its records are known")
    (mount.path / "found/0/42").read_bytes()
    assert len(asked("cat found/0/42")) <= 1
    assert len(asked("cat found/0/43")) <= 1
