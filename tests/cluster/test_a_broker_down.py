"""Tests of a mount that starts while the broker with the only replica of a partition is down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.cluster_mount import Ran, bash, mounted_cluster
from tests.doubles.producing import values
from tests.doubles.waiting import wait_until
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import Isolation
from topicfs.storage.partitioning import partition_of_key

pytestmark = [pytest.mark.java, pytest.mark.fuse]

TOPIC = "one-down"
KEYS = [f"key{number}" for number in range(40)]
WHILE_DOWN = f"""
    cat {TOPIC}/log > /dev/null 2> ../cat & reading=$!
    rmdir {TOPIC} 2> ../rmdir & removing=$!
    echo anywhere >> {TOPIC}/log || exit 3
    wait $reading && exit 4
    wait $removing && exit 5
    cat ../cat ../rmdir >&2
    cat {TOPIC}/status
"""


@pytest.fixture
def client(three_brokers: Mapping[int, Broker]) -> Iterator[Client]:
    """A client of a topic whose three partitions have one replica and one record each, on different brokers."""
    client = Client(three_brokers[1].bootstrap_server)
    topic = NewTopic(TOPIC, 3, replica_assignment=[[1], [2], [3]], config={"retention.ms": "-1"})
    client.admin.create_topics([topic])[TOPIC].result(60)
    for number in range(3):
        client.produce(TOPIC, [Outgoing(b"first")], partition=number)
    yield client
    client.delete_topics([TOPIC])


def test_the_partition_is_offline_and_not_absent(
    client: Client, three_brokers: Mapping[int, Broker], tmp_path: Path
) -> None:
    """While a partition has no leader, reads of the whole topic and rmdir fail, and keys keep their partitions.

    After the leader is back, no record is missing.
    """
    keyed = {
        number: [key for key in KEYS if number == partition_of_key(key.encode(), 3)] for number in range(3)
    }
    served = "".join(f"{key}\t{key}\n" for number in (0, 1) for key in keyed[number])
    with back_again(three_brokers[3]):
        three_brokers[3].kill()
        wait_until(
            lambda: 3 not in client.admin.list_topics(timeout=60).brokers,
            "the cluster notices the missing broker",
        )
        with mounted_cluster(f"kafka://{client.bootstrap_server}", tmp_path) as mountpoint:
            wait_until((mountpoint / TOPIC).is_dir, "the topic is listed")
            assert ["0", "1", "2", "config", "status"] == sorted(
                one.name for one in (mountpoint / TOPIC).iterdir()
            )
            with (mountpoint / TOPIC / "log.kv").open("a") as log:
                log.write(served)
            ran: Ran = bash(mountpoint, WHILE_DOWN)
            errors = ["Input/output error" in line for line in ran.errors.splitlines()]
            assert (0, [True, True]) == (ran.status, errors), ran
            assert "partitions 3\noffline_partitions 1\n" in ran.output
            assert (
                "partition 2 log_start_offset 0 high_watermark 0 state offline: no broker leads it"
                in ran.output
            )
            assert f"{TOPIC}-2: no answer within" in (mountpoint / "@status").read_text()
            three_brokers[3].start()
            wait_until(
                lambda: "state online" in (mountpoint / TOPIC / "2/status").read_text(),
                "the partition is online again",
            )
            assert 3 + len(keyed[0] + keyed[1]) + 1 == len(
                (mountpoint / TOPIC / "log").read_text().splitlines()
            )
    for number in (0, 1):
        assert [key.encode() for key in keyed[number]] == [
            one for one in values(client, TOPIC, number) if one.startswith(b"key")
        ]


def test_a_job_does_not_take_an_offline_partition_for_a_deleted_one(
    client: Client, three_brokers: Mapping[int, Broker]
) -> None:
    """An archive or report job fails with the offline partition's name, and does not report lost records."""
    pytest.importorskip("pyspark")
    from topicfs.pipeline.archiving.plan import plan, source_options
    from topicfs.pipeline.places.place import place_of

    place = place_of(f"kafka://{client.bootstrap_server}")
    topics = {named: source_options(place, named, Isolation.READ_COMMITTED) for named in (TOPIC, "one-*")}
    known = plan(place, topics[TOPIC], None, None).end
    assert [1, 1, 1] == list(known.offsets.values())
    with back_again(three_brokers[3]):
        three_brokers[3].kill()
        wait_until(
            lambda: 3 not in client.admin.list_topics(timeout=60).brokers,
            "the cluster notices the missing broker",
        )
        for options, state in ((topics[TOPIC], known), (topics["one-*"], None)):
            with pytest.raises(PartitionOfflineError, match=f"{TOPIC}-2"):
                plan(place, options, state, None)
