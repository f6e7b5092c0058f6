"""`topicfs config` shows each setting with its value and source, and changes settings of a topic."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from topicfs.data_directory import read_config
from topicfs.storage.config.broker import broker_settings
from topicfs.storage.config.topic import SETTINGS

BROKERS_OWN = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
advertised.listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:19093
log.dirs=kafka-1
# optional: keep the raft log apart
#metadata.log.dir=meta-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# quicker tests
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=1000
log.flush.offset.checkpoint.interval.ms=1000
log.flush.start.offset.checkpoint.interval.ms=1000
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
auto.create.topics.enable=false
"""
"""The server.properties of the broker that these tests run."""

LISTED = [name for name, one in SETTINGS.items() if not one.row.hidden]


@pytest.fixture
def properties(directory) -> Path:
    """A broker's server.properties in the working directory."""
    path = Path("server.properties")
    path.write_text("log.retention.hours=2\nnum.partitions=3\nlisteners=x\nsegment.ms=7\n")
    return path


def shown(ran) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in json.loads(ran.text)}


def test_a_real_brokers_properties_are_read_unchanged(directory):
    """The known settings of a real broker's file take effect, and its unknown settings are listed in order."""
    path = Path("server.properties")
    path.write_text(BROKERS_OWN)
    read = read_config(path)
    assert ("kafka-1",) == read.log_directories
    config = read.config
    assert (1000, 1000, 1000, 500, 500) == (
        config.retention_check_interval_ms,
        config.recovery_point_interval_ms,
        config.log_start_offset_interval_ms,
        config.initial_task_delay_ms,
        config.cleaner_backoff_ms,
    )
    meant = {
        "auto.create.topics.enable",
        "node.id",
        "log.dirs",
        "log.retention.check.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms",
        "log.cleaner.backoff.ms",
        "offsets.topic.num.partitions",
        "transaction.state.log.num.partitions",
        "group.initial.rebalance.delay.ms",
    }
    names = [line.partition("=")[0] for line in BROKERS_OWN.split() if "=" in line and line[0] != "#"]
    assert [name for name in names if name not in meant] == read.ignored


def test_every_setting_of_a_topic_is_shown(orders):
    """`config` shows each public setting once with all its properties, in the order of the table of settings."""
    settings = shown(orders("config", "orders", "--json"))
    assert LISTED == list(settings)
    assert {
        "name": "retention.ms",
        "value": "-1",
        "source": "topic",
        "file_name": None,
        "default": "604800000",
        "unit": "ms",
        "valid": "a whole number from -1 to 9223372036854775807",
        "meaning": "Age of a segment's newest record at which the segment is deleted; -1: never.",
    } == settings["retention.ms"]
    assert {"topic", "default"} == {one["source"] for one in settings.values()}


def test_values_of_the_file_stand_between_topic_and_default(orders, properties):
    """A topic's own value overrides the value in the file, which overrides Kafka's default; the source is shown."""
    orders("topics", "create", "clicks", "--config", "retention.ms=5")
    orders("config", "clicks", "retention.ms=")
    settings = shown(orders("config", "clicks", "--config", str(properties), "--json"))
    retention = settings["retention.ms"]
    assert ("7200000", "file", "log.retention.hours") == (
        retention["value"],
        retention["source"],
        retention["file_name"],
    )
    own = shown(orders("config", "orders", "--config", str(properties), "--json"))["retention.ms"]
    assert ("-1", "topic", None) == (own["value"], own["source"], own["file_name"])


def test_without_a_topic_the_engines_own_settings_are_shown_too(topicfs, properties):
    """Without a topic, `config` shows the settings of the engine as well, and needs no data directory."""
    settings = shown(topicfs("config", "--config", str(properties), "--json"))
    assert [*LISTED, *broker_settings()] == list(settings)
    assert ("3", "file", "1", "partitions") == tuple(
        settings["num.partitions"][name] for name in ("value", "source", "default", "unit")
    )
    assert not Path("data").exists()


def test_a_pipe_gets_a_line_a_setting(orders):
    """In a pipe each setting is one line of tab-separated fields. --match and --set select the settings."""
    ran = orders("config", "orders", "--match", "retention.*")
    lines = [line.split("\t") for line in ran.text.splitlines()]
    assert [
        ["retention.bytes=-1", "default", "-1", "bytes"],
        ["retention.ms=-1", "topic", "604800000", "ms"],
    ] == [line[:4] for line in lines]
    assert all(len(line) == 5 for line in lines)
    assert ["retention.ms=-1"] == [
        line.split("\t")[0] for line in orders("config", "orders", "--set").text.splitlines()
    ]


def test_a_terminal_gets_a_table(orders, monkeypatch):
    """On a terminal, settings are shown as a table with a header, and with the meaning of each setting."""
    monkeypatch.setattr("topicfs.commands.config.is_terminal", lambda: True)
    text = orders("config", "orders", "--match", "flush.*").text
    header, *rows = text.splitlines()
    assert ["setting", "value", "source", "default", "unit", "meaning"] == header.split()
    assert 2 == len(rows)
    assert "Flush to disk" in rows[0]


def test_settings_are_shown_by_their_names(orders):
    """`config` with names of settings shows only these settings."""
    ran = orders("config", "orders", "retention.ms", "segment.bytes")
    assert ["retention.ms=-1", "segment.bytes=1073741824"] == sorted(
        line.split("\t")[0] for line in ran.text.splitlines()
    )


def test_settings_are_set_and_removed(orders):
    """One call changes all given settings, and prints them with their new values."""
    ran = orders("config", "orders", "cleanup.policy=compact,delete", "retention.ms=")
    assert [
        "orders: cleanup.policy=compact,delete",
        "orders: retention.ms=604800000 (the default)",
    ] == ran.text.splitlines()
    assert ["cleanup.policy"] == list(shown(orders("config", "orders", "--set", "--json")))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("no.such=1", "no.such: no such topic setting"),
        ("no.such=", "no.such: no such topic setting"),
        ("segment.bytes=1", "segment.bytes=1: must be"),
        ("retention.ms", "retention.ms: write a setting as name=value"),
    ],
)
def test_an_invalid_setting_is_one_line_and_changes_nothing(orders, setting, message):
    """If one setting of a call is invalid, no setting is changed, and the error is reported in one line."""
    ran = orders("config", "orders", "retention.ms=5", setting)
    assert (1, b"") == (ran.status, ran.output)
    assert [line for line in ran.errors.decode().splitlines() if message in line] != []
    assert 1 == len(ran.errors.splitlines())
    assert "-1" == shown(orders("config", "orders", "--json"))["retention.ms"]["value"]


@pytest.mark.usefixtures("orders", "owned")
def test_beside_a_daemon_it_says_where_to_write(topicfs):
    """While a process owns the directory, `config` shows settings but refuses to change them.

    The error has a command line that makes the change through the mount.
    """
    ran = topicfs("config", "orders", "retention.ms=5", "segment.ms=")
    assert (1, b"") == ran[:2]
    assert (
        f"topicfs: data: in use by process {os.getpid()}; go through its mount: "
        "printf 'retention.ms=5\\nsegment.ms=\\n' >> MOUNTPOINT/orders/config, "
        "or through its listener: --data kafka://HOST:PORT\n"
    ) == ran.errors.decode()
    assert topicfs("config", "orders", "--set").text.startswith("retention.ms=-1\t")
