"""Tests of the options of a write, and of its columns."""

from __future__ import annotations

import pytest

from topicfs.pipeline.errors import InvalidOptionError, PipelineError
from topicfs.pipeline.sink.layout import TopicLayout, read_layout
from topicfs.pipeline.sink.options import check_columns, parse_sink_options
from topicfs.replication import open_engine
from topicfs.storage.errors import PolicyViolationError, UnknownTopicError


def test_options_in_any_case(tmp_path):
    """Option names are accepted in upper and lower case, as Spark passes them. The connector's options are ignored."""
    options = parse_sink_options(
        {
            "PATH": str(tmp_path),
            "Topic": "t",
            "committimeout": "2m",
            "kafka.acks": "1",
            "includeHeaders": "true",
        }
    )
    assert ((tmp_path,), "t", 120.0) == (options.directories, options.topic, options.commit_timeout_seconds)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "path: name a data directory"),
        ({"path": "/nowhere/at/all"}, "no such directory"),
        ({"topci": "t"}, "topci: not an option for writes to topicfs; did you mean topic?"),
        ({"topic": "a/b"}, "topic: .*a/b"),
        ({"commitTimeout": "soon"}, "commitTimeout: expected e.g. 60s"),
        ({"txnAppId": "a"}, "txnAppId and txnVersion: give both, or neither"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion: give both, or neither"),
        ({"txnAppId": "a b", "txnVersion": "1"}, "txnAppId: expected 1 to 64 letters, .* got 'a b'"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId: expected"),
        ({"txnAppId": "a/../b", "txnVersion": "1"}, "txnAppId: expected"),
        ({"txnAppId": "x" * 65, "txnVersion": "1"}, "txnAppId: expected"),
        (
            {"txnAppId": "a", "txnVersion": "-1"},
            "txnVersion: expected a number from 0 to 9223372036854775807",
        ),
        ({"txnAppId": "a", "txnVersion": "1.0"}, "txnVersion: expected"),
        ({"txnAppId": "a", "txnVersion": "٣"}, "txnVersion: expected"),
        ({"txnAppId": "a", "txnVersion": "9223372036854775808"}, "txnVersion: expected"),
        ({"failOnOtherRows": "maybe"}, "failOnOtherRows: expected true or false, got maybe"),
        ({"kafka.Key.serializer": "x"}, "kafka.key.serializer: cannot be set: keys are written"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer: cannot be set: values are written"),
    ],
)
def test_bad_options_are_reported(tmp_path, given, said):
    """An invalid option gives a one-line error before anything is written."""
    if "path" not in given and given:
        given = {**given, "path": str(tmp_path)}
    with pytest.raises(PipelineError, match=said) as caught:
        parse_sink_options(given)
    assert "\n" not in str(caught.value)


def test_a_name_of_a_write(tmp_path):
    """A write's name is an application and a version of 63 bits. A write without these options has no name."""
    given = {"path": str(tmp_path), "txnAppId": "com.acme.Orders_2-x", "txnVersion": "9223372036854775807"}
    assert ("com.acme.Orders_2-x", 2**63 - 1) == parse_sink_options(given).name
    assert parse_sink_options({"path": str(tmp_path)}).name is None


@pytest.mark.parametrize(("text", "seconds"), [("500", 0.5), ("500ms", 0.5), ("7s", 7.0), ("1m", 60.0)])
def test_time_outs(tmp_path, text, seconds):
    """A timeout without a unit is in milliseconds, as in Spark."""
    assert (
        parse_sink_options({"path": str(tmp_path), "commitTimeout": text}).commit_timeout_seconds == seconds
    )


def test_layout_is_read_without_opening(tmp_path):
    """The layout (partitions and settings of topics) can be read while another process owns the directory."""
    engine = open_engine(tmp_path / "data")
    small = engine.create_topic("small", partitions=3, overrides={"max.message.bytes": "777"})
    engine.create_topic("__consumer_offsets")
    try:
        layout = read_layout([tmp_path / "data"])
    finally:
        engine.close()
    assert TopicLayout((0, 1, 2), 777, small.topic_id) == layout.topic("small")
    with pytest.raises(
        UnknownTopicError, match="none: no such topic; make it first: topicfs topics create none"
    ):
        layout.topic("none")
    with pytest.raises(PolicyViolationError, match="Kafka's own"):
        layout.topic("__consumer_offsets")


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"key": "string"}, "t", "'value' is needed"),
        ({"value": "int"}, "t", "column 'value' is int; it must be binary or string"),
        ({"value": "string"}, None, "option topic, or a column 'topic'"),
        (
            {"value": "string", "partition": "bigint"},
            "t",
            "column 'partition' is bigint; it must be int",
        ),
        ({"value": "string", "headers": "map<string,string>"}, "t", "column 'headers'"),
    ],
)
def test_columns_that_cannot_be_written_are_reported(tmp_path, columns, topic, said):
    """The sink refuses columns by the rules of Spark's Kafka connector."""
    options = parse_sink_options({"path": str(tmp_path), **({"topic": topic} if topic else {})})
    with pytest.raises(InvalidOptionError, match=said):
        check_columns(columns, options)


def test_columns_nobody_knows_are_passed_over(tmp_path):
    """Unknown columns are ignored, as Spark's Kafka connector ignores them."""
    options = parse_sink_options({"path": str(tmp_path)})
    check_columns({"value": "binary", "topic": "string", "mood": "map<int,int>"}, options)


def test_a_topic_column_that_is_overridden_may_be_anything(tmp_path):
    """The column `topic` is ignored if the option overrides it; otherwise it must be a string."""
    columns = {"value": "binary", "topic": "map<int,int>"}
    check_columns(columns, parse_sink_options({"path": str(tmp_path), "topic": "t"}))
    with pytest.raises(InvalidOptionError, match="column 'topic' is map<int,int>; it must be string"):
        check_columns(columns, parse_sink_options({"path": str(tmp_path)}))
