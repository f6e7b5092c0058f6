"""Tests with random options and filters: batches and micro-batches equal those of Spark's own Kafka connector."""

from __future__ import annotations

import json
import os
import random

import pytest

from testing.broker.client import Client
from tests.pipeline.both_formats import IMPATIENT, Both
from tests.pipeline.topics_of_a_broker import NOON, write_topics

pytestmark = [pytest.mark.spark, pytest.mark.java]

SEED = int(os.environ.get("TOPICFS_EQUAL_SEED", "1"))
CASES = int(os.environ.get("TOPICFS_EQUAL_CASES", "6"))
PARTITIONS = {"orders": 3, "orders.eu": 1, "stamped": 1, "compacted": 1, "empty": 2, "cut": 1, "ledger": 2}
FIRST = {("orders", 0): 2, ("cut", 0): 4}
LAST = {("orders", 0): 40, ("orders", 1): 24, ("orders", 2): 8, ("orders.eu", 0): 1, ("stamped", 0): 5}


@pytest.fixture(scope="module")
def both(spark, broker):
    undecided = write_topics(Client(broker.bootstrap_server), broker.log_dir)
    yield Both(spark, broker.bootstrap_server, broker.log_dir)
    undecided.abort_transaction(30)


def chosen_partitions(chosen, options):
    """Choose topics or partitions by one of the three options; return the partitions that are read."""
    kind = chosen.choice(["subscribe", "subscribePattern", "assign"])
    topics = chosen.sample(sorted(PARTITIONS), chosen.randint(1, 4))
    found = [(topic, number) for topic in sorted(topics) for number in range(PARTITIONS[topic])]
    if kind == "assign":
        found = sorted(chosen.sample(found, chosen.randint(1, len(found))))
        options["assign"] = json.dumps({one: [n for name, n in found if name == one] for one, _ in found})
    elif kind == "subscribe":
        options["subscribe"] = ",".join(topics)
    else:
        options["subscribePattern"] = f"^({'|'.join(topic.replace('.', '[.]') for topic in topics)})$"
    return found


def a_bound(chosen, options, found, end):
    """Choose one form of the options `starting…` or `ending…`."""
    forms = ["none", "word", "offsets", "time", "times"]
    # The connector's search by time also finds transaction markers, whose time the broker sets.
    form = chosen.choice(forms[:3] if any(topic == "ledger" for topic, _ in found) else forms)
    starting = end == "starting"
    if form == "word":
        options[f"{end}Offsets"] = "earliest" if starting else "latest"
    elif form == "offsets":
        numbers = {}
        for topic, number in found:
            first = FIRST.get((topic, number), 0)
            middle = (first + LAST.get((topic, number), first)) // 2
            special = -2 if starting else -1
            within = chosen.randint(first, middle) if starting else LAST.get((topic, number), special)
            numbers.setdefault(topic, {})[str(number)] = chosen.choice([special, within])
        options[f"{end}Offsets"] = json.dumps(numbers)
    elif form == "time":
        options[f"{end}Timestamp"] = str(NOON + chosen.randint(-2000, 30_000))
    elif form == "times":
        times = {}
        for topic, number in found:
            times.setdefault(topic, {})[str(number)] = NOON + chosen.randint(-2000, 30_000)
        options[f"{end}OffsetsByTimestamp"] = json.dumps(times)


def an_option(chosen, options, name, *values):
    if chosen.random() < 0.4:
        options[name] = chosen.choice(values)


def options_of(chosen, *, streaming):
    """Choose the options of a query."""
    options = {}
    found = chosen_partitions(chosen, options)
    a_bound(chosen, options, found, "starting")
    options["startingOffsetsByTimestampStrategy"] = "latest"
    an_option(chosen, options, "minPartitions", "1", "2", "5", "17")
    an_option(chosen, options, "failOnDataLoss", "true", "false")
    an_option(chosen, options, "kafka.isolation.level", "read_committed", "read_uncommitted")
    # The connector keeps a consumer per group, and a consumer has one isolation level.
    options["kafka.group.id"] = f"random-{options.get('kafka.isolation.level', 'readers')}"
    options["includeHeaders"] = chosen.choice(["true", "false"])
    if streaming:
        an_option(chosen, options, "maxOffsetsPerTrigger", "3", "10", "1000")
        if "startingOffsets" not in options and not any(
            "imestamp" in one for one in options if one != "startingOffsetsByTimestampStrategy"
        ):
            options["startingOffsets"] = "earliest"
    else:
        a_bound(chosen, options, found, "ending")
    return options


def a_filter(chosen):
    """Choose a condition in SQL."""
    instant = f"timestamp_millis({NOON + chosen.randint(-1000, 30_000)})"
    return chosen.choice(
        [
            "true",
            f"offset {chosen.choice(['<', '<=', '=', '>=', '>', '<=>'])} {chosen.randint(-1, 41)}",
            f"partition IN ({chosen.randint(0, 2)}, {chosen.randint(0, 3)})",
            f"topic = '{chosen.choice(sorted(PARTITIONS))}'",
            f"timestamp {chosen.choice(['<', '<=', '=', '>=', '>'])} {instant}",
            f"offset > {chosen.randint(0, 9)} OR partition = 1",
            f"NOT offset = {chosen.randint(0, 9)}",
        ]
    )


def rows_or_error(read, kind, options, condition):
    """Return the rows that satisfy the condition, or None if the query fails."""
    try:
        rows = read(kind, options).where(condition).collect()
    except Exception:  # noqa: BLE001 (Spark's errors have no common class)
        return None
    return sorted(repr(row.asDict(recursive=True)) for row in rows)


@pytest.mark.timeout(3600)
def test_random_batches_are_equal(both):
    """Both formats return the same rows, or both fail."""
    chosen = random.Random(SEED)
    for _ in range(CASES):
        options = options_of(chosen, streaming=False)
        condition = " AND ".join(a_filter(chosen) for _ in range(chosen.randint(1, 2)))
        theirs = rows_or_error(both.batch, "kafka", IMPATIENT | options, condition)
        assert theirs == rows_or_error(both.batch, "topicfs", options, condition), f"{options} {condition}"


@pytest.mark.timeout(3600)
def test_random_streams_are_equal(both, tmp_path):
    """Both formats have the same micro-batches when a stream reads to the end with availableNow."""
    chosen = random.Random(SEED)
    cases = [options_of(chosen, streaming=True) for _ in range(CASES)]
    headers = {"includeHeaders": "true"}
    theirs = both.streams("kafka", [IMPATIENT | one | headers for one in cases], tmp_path / "theirs")
    ours = both.streams("topicfs", [one | headers for one in cases], tmp_path / "ours")
    for number, options in enumerate(cases):
        assert theirs.get(number) == ours.get(number), f"{options}"
