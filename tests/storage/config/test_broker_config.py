"""Tests of a broker's server.properties as settings of the engine."""

from __future__ import annotations

import pytest

from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.properties import parse_properties
from topicfs.storage.errors import InvalidConfigError

SERVER_PROPERTIES = rb"""
# A node as in Kafka's own examples.
process.roles=broker,controller
node.id = 7
listeners=PLAINTEXT://127.0.0.1:19092
log.dirs=/var/kafka
num.partitions=3
log.retention.hours=1
log.segment.bytes=1048576
log.retention.check.interval.ms=1000
log.flush.offset.checkpoint.interval.ms=1000
log.flush.start.offset.checkpoint.interval.ms=2000
log.initial.task.delay.ms=500
message.max.bytes=2000000
"""


def test_defaults_are_kafkas() -> None:
    """The defaults equal a broker's defaults, with four exceptions.

    topicfs looks for logs to flush each second, and a broker never does. In topicfs an empty group does not wait for
    further members, and in a broker it waits for three seconds. topicfs limits the number of connections and the
    memory of requests, and a broker limits neither.
    """
    expected = {
        "node.id": 1,
        "num.partitions": 1,
        "default.replication.factor": 1,
        "follower.replication.throttled.rate": 9223372036854775807,
        "replica.alter.log.dirs.io.max.bytes.per.second": 9223372036854775807,
        "auto.create.topics.enable": True,
        "socket.request.max.bytes": 104_857_600,
        "queued.max.request.bytes": 268_435_456,
        "max.connections": 1_000,
        "max.connections.per.ip": 2**31 - 1,
        "connections.max.idle.ms": 600_000,
        "connection.failed.authentication.delay.ms": 100,
        "num.recovery.threads.per.data.dir": 2,
        "log.initial.task.delay.ms": 30_000,
        "log.flush.scheduler.interval.ms": 1_000,
        "log.flush.offset.checkpoint.interval.ms": 60_000,
        "log.flush.start.offset.checkpoint.interval.ms": 60_000,
        "replica.high.watermark.checkpoint.interval.ms": 5_000,
        "log.retention.check.interval.ms": 300_000,
        "log.cleaner.enable": True,
        "log.cleaner.backoff.ms": 15_000,
        "log.cleaner.dedupe.buffer.size": 134_217_728,
        "log.scrub.interval.hours": 168,
        "producer.id.expiration.ms": 86_400_000,
        "producer.id.expiration.check.interval.ms": 600_000,
        "transactional.id.expiration.ms": 604_800_000,
        "transaction.max.timeout.ms": 900_000,
        "transaction.state.log.num.partitions": 50,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
        "offsets.topic.num.partitions": 50,
        "offsets.retention.minutes": 10_080,
        "offsets.retention.check.interval.ms": 600_000,
        "offset.metadata.max.bytes": 4_096,
        "group.max.size": 2**31 - 1,
        "group.min.session.timeout.ms": 6_000,
        "group.max.session.timeout.ms": 1_800_000,
        "group.initial.rebalance.delay.ms": 0,
    }
    assert expected == {name: own.default for name, own in broker_settings().items()}


def test_server_properties_are_read_unchanged() -> None:
    """Known names take effect, some as topic defaults. Unknown names are listed in the order of the file."""
    config, ignored, directories, given = EngineConfig.from_properties(parse_properties(SERVER_PROPERTIES))
    assert (7, 3, 1_000, 500) == (
        config.node_id,
        config.num_partitions,
        config.retention_check_interval_ms,
        config.initial_task_delay_ms,
    )
    defaults = config.topic_defaults
    assert (3_600_000, 1_048_576, 2_000_000) == (
        defaults.retention_ms,
        defaults.segment_bytes,
        defaults.max_message_bytes,
    )
    assert ["process.roles", "listeners"] == ignored
    assert 1 == len(directories)
    assert given["retention.ms"].startswith("log.retention.")


def test_first_synonym_present_wins() -> None:
    """log.retention.ms overrides .minutes, and .minutes overrides .hours, in whatever order the file has them."""
    properties = {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}
    values = []
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        values.append(EngineConfig.from_properties(properties).config.topic_defaults.retention_ms)
        del properties[name]
    assert [3, 120_000, 3_600_000] == values


def test_topics_made_here_keep_records_unless_the_file_says_otherwise() -> None:
    """New topics get retention.ms=-1 unless the file sets a retention."""
    assert {"retention.ms": "-1"} == EngineConfig().creation_overrides
    assert {"retention.ms": "-1"} == EngineConfig.from_properties({}).config.creation_overrides
    assert {} == EngineConfig.from_properties({"log.retention.minutes": "9"}).config.creation_overrides


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "0"),
        ("log.segment.bytes", "14"),
        ("log.retention.hours", "a week"),
        ("log.roll.hours", "0"),
        ("log.cleanup.policy", "keep"),
    ],
)
def test_bad_values_are_refused_under_the_brokers_name(name: str, value: str) -> None:
    """The error for an invalid value names the setting as the file spells it."""
    with pytest.raises(InvalidConfigError, match=rf"^{name}={value}: must be "):
        EngineConfig.from_properties({name: value})


def test_settings_that_do_not_fit_together_are_refused() -> None:
    """Topic defaults that contradict each other are refused."""
    with pytest.raises(InvalidConfigError, match="must not be larger"):
        EngineConfig.from_properties(
            {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
        )
