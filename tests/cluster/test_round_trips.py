"""In a mount of a distant cluster, shell commands wait for few round trips, which the tests count."""

from __future__ import annotations

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount

pytestmark = [pytest.mark.java, pytest.mark.fuse]

BEHIND = {"Fetch in a session", "Metadata", "ApiVersions", "ListOffsets"}
"""Requests that no command waits for: those of the background threads and of their new connections.

ListOffsets is also sent together with an append, in the same round trip.
"""


@pytest.fixture
def mount(tmp_path, address):
    """The mounted cluster, with its requests logged in a file."""
    mount = Mount(tmp_path, cluster=str(address), noted=str(tmp_path / "requests"))
    try:
        yield mount.start()
    finally:
        mount.clean_up()


@pytest.fixture
def asked(mount):
    """Run a script in the mount, and return the requests that the script waited for."""
    requests = mount.base / "requests"

    def run(script):
        before = len(requests.read_text().splitlines())
        done = mount.bash(script)
        assert ("", 0) == (done.stderr, done.returncode)
        return tuple(name for name in requests.read_text().splitlines()[before:] if name not in BEHIND)

    return run


def test_a_listing_of_many_partitions_asks_nothing(mount, asked, client):
    """Listing a hundred partitions sends no request: names are known, and bounds arrive in the background."""
    client.create_topic("wide", partitions=100)
    wait_until((mount.path / "wide/99/log").exists, "the topic shows")
    assert () == asked("ls -la wide > /dev/null")
    assert () == asked("ls -la wide/7 > /dev/null")


def test_an_append_takes_one_round_trip(mount, asked, client):
    """An append takes one round trip; the first append needs two more, for settings and a producer id."""
    client.create_topic("near", partitions=2)
    # A broker that has never assigned a producer id first answers that it is not ready.
    idempotent = client.producer(enable_idempotence=True)
    idempotent.produce("near", b"", partition=1)
    idempotent.flush(30)
    wait_until((mount.path / "near/1/log").exists, "the topic shows")

    def append(partition):
        # The background read for the file's size blocks nobody.
        return [name for name in asked(f"echo line >> near/{partition}/log") if name != "Fetch"]

    assert ["DescribeConfigs", "InitProducerId", "Produce"] == append(0)
    for partition in (0, 1):
        # Settings older than two seconds are fetched again in the background.
        assert ["Produce"] == [name for name in append(partition) if name != "DescribeConfigs"]


def test_one_record_takes_few_round_trips(mount, asked, client):
    """Reading one record by its offset takes at most two round trips, or none if an earlier fetch brought it."""
    client.create_topic("found")
    wait_until((mount.path / "found/0/log").exists, "the topic shows")
    asked("seq 0 99 >> found/0/log")
    wait_until((mount.path / "found/0/42").exists, "the topic's records are known")
    (mount.path / "found/0/42").read_bytes()
    assert len(asked("cat found/0/42")) <= 2
    assert len(asked("cat found/0/43")) <= 2
