"""Tests of a directory that has only some partitions of a topic, as each broker of several has.

The topic's number of partitions is then unknown, and so is the partition to which a key belongs.
"""

from __future__ import annotations

import shutil
from itertools import islice

import pytest

import topicfs as api
from tests.listener.serving import serve
from tests.topicfs.conftest import assert_refused
from topicfs.storage.errors import PartitionOfflineError

REASON = "orders: partition 1 is not here, so the partition of a record is unknown; name the partition"


@pytest.fixture
def lacking(topicfs, directory):
    """The data directory; its topic `orders` has lost partition 1 of 3."""
    topicfs("topics", "create", "orders", "--partitions", "3")
    shutil.rmtree(directory / "orders-1")
    return directory


def test_a_record_with_a_key_is_refused(topicfs, lacking):
    """A record with a key is not put into a wrong partition: the append fails and names the remedy."""
    assert_refused(topicfs("append", "orders/log.kv", stdin=b"k\tv\n"), REASON)
    assert 0 == topicfs("append", "orders/2/log.kv", stdin=b"k\tv\n").status
    assert b"k\tv\n" == topicfs("cat", "orders/log.kv").output


def test_records_without_a_key_go_to_a_partition_that_is_here(topicfs, lacking):
    """Records without a key never go to the missing partition."""
    for _ in range(8):
        assert 0 == topicfs("append", "orders", stdin=b"v\n").status
    assert 8 * b"v\n" == topicfs("cat", "orders/log").output


def test_a_file_is_not_appended_once(topicfs, lacking, tmp_path):
    """A named producer is refused, because it would choose other partitions after the missing partition is back."""
    source = tmp_path / "events.txt"
    source.write_bytes(b"a\nb\n")
    assert_refused(topicfs("append", "--producer", "p", "orders", str(source)), REASON)
    assert b"" == topicfs("cat", "orders/log").output


def test_the_api_refuses_a_key(lacking):
    """The Python API refuses a record with a key, and appends a record without a key to an existing partition."""
    with api.open(lacking) as data:
        with pytest.raises(PartitionOfflineError, match="partition 1 is not here"):
            data["orders"].append(b"v", key=b"k")
        for _ in range(8):
            data["orders"].append(b"v")


def test_kafka_clients_see_the_partition_without_a_leader(lacking):
    """Metadata lists the missing partition without a leader, so that clients count it and do not write to it."""
    served = serve([lacking])
    try:
        partitions = served.client().topic("orders")["partitions"]
    finally:
        served.close()
    assert [(0, 0), (5, -1), (0, 0)] == [(one["errorCode"], min(one["leaderId"], 0)) for one in partitions]


def test_a_group_reads_all_partitions_that_are_here(topicfs, lacking):
    """A group's assignment covers each partition that the directory has."""
    topicfs("append", "orders/0", stdin=b"a\n")
    topicfs("append", "orders/2", stdin=b"b\n")
    with api.open(lacking) as data, data.group("g").join("orders") as member:
        assert [b"a", b"b"] == sorted(record.value for record in islice(member, 2))
