"""Tests of the options of a read: their rules and errors."""

from __future__ import annotations

import pytest

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.source.query.offsets import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    StreamState,
    decode_stream_offset,
    encode_stream_offset,
)
from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.storage.model import Isolation, TopicPartition

BASE = {"path": "/", "subscribe": "orders"}
ORDERS = TopicPartition("orders", 0)


def parse(*, streaming=False, **given):
    return parse_source_options(BASE | given, streaming=streaming)


def test_defaults_are_the_connectors():
    """By default a batch reads from earliest to latest, and a stream begins at latest."""
    options = parse()
    assert (Everywhere(-2), Everywhere(-1)) == (options.starting, options.ending)
    assert Everywhere(-1) == parse(streaming=True).starting
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert Isolation.READ_UNCOMMITTED is options.isolation
    assert 900_000 == options.max_trigger_delay_ms


def test_names_in_any_case_and_options_of_the_network_are_passed_over():
    """Options are accepted in any case. The connector's network options are ignored, so that a job can move."""
    given = {"MINPARTITIONS": "7", "kafka.bootstrap.servers": "here:9092", "kafkaConsumer.pollTimeoutMs": "5"}
    assert 7 == parse_source_options(BASE | given, streaming=False).min_partitions


def test_isolation_under_the_connectors_name_too():
    """The isolation level is accepted under the connector's name and under topicfs's own name."""
    given = BASE | {"kafka.isolation.level": "read_committed"}
    assert Isolation.READ_COMMITTED is parse_source_options(given, streaming=False).isolation


def test_the_most_exact_option_of_an_end_counts():
    """A single time overrides times by partition, which override offsets."""
    offsets, times = '{"orders":{"0":3}}', '{"orders":{"0":1000}}'
    assert AtOffsets({ORDERS: 3}) == parse(startingOffsets=offsets).starting
    both = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert AtTimestamps({ORDERS: 1000}) == both.starting
    all_three = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="5")
    assert AtTimestamp(5) == all_three.starting
    assert AtTimestamp(6) == parse(endingOffsets=offsets, endingTimestamp="6").ending
    assert isinstance(parse(startingTimestamp="-1").starting, AtTimestamp)
    assert isinstance(parse(endingTimestamp="-2").ending, AtTimestamp)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribPattern": "x"}, "did you mean subscribePattern"),
        ({"color": "red"}, "color: not an option of topicfs"),
        ({"assign": '{"orders":[0]}'}, "exactly one of"),
        ({"startingOffsets": "latest"}, "leaves a batch query nothing"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "begins at latest"),
        ({"endingOffsets": "earliest"}, "leaves nothing"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "ends at earliest"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "the invalid offset -3"),
        ({"startingOffsets": "tomorrow"}, "expected e.g."),
        ({"startingOffsets": '{"orders":[0]}'}, "expected e.g."),
        ({"startingOffsetsByTimestamp": "7"}, "expected e.g."),
        ({"startingOffsets": ""}, "expected e.g."),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-3}}'}, "the invalid time -3"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"endingTimestamp": "-3"}, "milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"minPartitions": "0"}, "positive"),
        ({"maxRecordsPerPartition": "-1"}, "positive"),
        ({"maxRecordsPerPartition": " 5"}, "positive"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "expected e.g. 15m"),
        ({"includeHeaders": "1"}, "true or false"),
        ({"maxTriggerDelay": "5 min"}, "expected e.g. 15m"),
        ({"isolation.level": "none"}, "read_committed"),
        ({"kafka.isolation.level": "READ_COMMITTED"}, "read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets says where"),
        ({"kafka.enable.auto.commit": "true"}, "the checkpoint stores"),
        ({"corruptBatches": "ignore"}, "fail or skip"),
        ({"path": " "}, "name a data directory"),
    ],
)
def test_what_is_refused(given, message):
    """The error for a refused option has its name and what was expected."""
    with pytest.raises(InvalidOptionError, match=message):
        parse_source_options(BASE | given, streaming=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "given: none"),
        ({"assign": '{"orders":{"0":1}}'}, "expected e.g."),
        ({"assign": '{"orders":["0"]}'}, "expected e.g."),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "is not a valid pattern"),
    ],
)
def test_what_selects_nothing_is_refused(given, message):
    """A read needs exactly one well-formed selection of partitions."""
    with pytest.raises(InvalidOptionError, match=message):
        parse_source_options({"path": "/"} | given, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    """A stream refuses the ending options; it does not ignore them."""
    with pytest.raises(InvalidOptionError, match=f"{name}: a stream has no end"):
        parse(streaming=True, **{name: "latest"})


def test_durations():
    """A duration is a number and a unit; the default unit is milliseconds."""
    spellings = {"15m": 900_000, " 30S ": 30_000, "500ms": 500, "2h": 7_200_000, "250": 250}
    assert spellings == {text: parse(maxTriggerDelay=text).max_trigger_delay_ms for text in spellings}


def test_a_streams_state_survives_the_checkpoint():
    """A stream's state is encoded with its partitions in order, and can be decoded again.

    Each topic's id is in the name of an additional topic without partitions, which Spark's Kafka connector ignores.
    """
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 2): 1, TopicPartition("a", 0): 6}
    state = StreamState(offsets, {"b": "dDf_-A", "a": "1EvPSKI"})
    encoded = encode_stream_offset(state)
    assert '{"a": {"0": 6}, "b": {"2": 1, "10": 3}, "a@1EvPSKI": {}, "b@dDf_-A": {}}' == str(encoded).replace(
        "'", '"'
    )
    assert state == decode_stream_offset(encoded)


def test_a_checkpoint_of_the_connector_is_read():
    """A checkpoint without topic ids can be read: an older version or the connector may have written it."""
    assert StreamState({TopicPartition("a", 0): 6}, {}) == decode_stream_offset({"a": {"0": 6}})
