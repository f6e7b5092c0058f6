"""Reads of records in a Python program: the API of topicfs compared with confluent-kafka and kafka-python.

Each of the three returns an object with value, key and offset for each record; small records show the cost of this
object. The API reads the files of a directory. In a further case the API reads from the same broker as the two
consumers. The broker reads its log from memory. The figure is the processor time of all threads of the program.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

import topicfs
from benchmarks.frame import units
from benchmarks.frame.question import OURS, Benchmark, Case, Cases, Conditions, Goal, Side, WrongResultError
from benchmarks.peers.broker import broker_tools

OF_A_BROKER = "topicfs from a broker"
LIBRDKAFKA, KAFKA_PYTHON = "confluent-kafka", "kafka-python"
TOPIC = "small"
BATCH_RECORDS = 500
"""Number of records of about 30 bytes per batch, which gives the default size of a producer's batches."""
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Setup:
    """A directory and a broker with the same records."""

    directory: Path
    bootstrap_server: str
    count: int


def cases(conditions: Conditions) -> Cases:
    with _setup(conditions) as setup:
        yield Case(
            name="small records",
            unit=units.MILLION_RECORDS_A_SECOND_OF_PROCESSOR,
            sides=(
                Side(OURS, partial(_ours, str(setup.directory), setup.count)),
                Side(OF_A_BROKER, partial(_ours, f"kafka://{setup.bootstrap_server}", setup.count)),
                Side(LIBRDKAFKA, partial(_librdkafka, setup)),
                Side(KAFKA_PYTHON, partial(_kafka_python, setup)),
            ),
            goals=(
                Goal(target=1.0),
                Goal(of=LIBRDKAFKA, target=1.5, floor=1.3),
                Goal(of=KAFKA_PYTHON, target=10.0, floor=7.0),
                Goal(side=OF_A_BROKER, of=LIBRDKAFKA),
            ),
            max_rounds=5,
        )


@contextmanager
def _setup(conditions: Conditions) -> Iterator[_Setup]:
    count = conditions.choose(full=200_000, short=40_000)
    with ExitStack() as stack:
        broker = stack.enter_context(broker_tools(conditions.directory / "broker"))
        directory = conditions.directory / "data"
        for place in (str(directory), f"kafka://{broker.bootstrap_server}"):
            with topicfs.open(place) as topics:
                partition = topics.create(TOPIC, partitions=1)[0]
                for first in range(0, count, BATCH_RECORDS):
                    partition.append_many(
                        topicfs.Record(b"value %d" % number, b"key %d" % (number % 1000))
                        for number in range(first, first + BATCH_RECORDS)
                    )
        yield _Setup(directory, broker.bootstrap_server, count)


def _ours(place: str, count: int) -> float:
    with topicfs.open(place, read_only=True) as topics:
        begun = time.process_time()
        last = _last(record.value for record in topics[TOPIC][0].records())
        return _speed(count, last, begun)


def _librdkafka(setup: _Setup) -> float:
    """Read with the fastest call of confluent-kafka, which returns many messages at a time."""
    consumer = Consumer({"bootstrap.servers": setup.bootstrap_server, "group.id": "none"})
    try:
        begun = time.process_time()
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        last, left = None, setup.count
        while left:
            messages = consumer.consume(10_000, timeout=SECONDS)
            left -= len(messages)
            for message in messages:
                last = message.value()
        return _speed(setup.count, last, begun)
    finally:
        consumer.close()


def _kafka_python(setup: _Setup) -> float:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=setup.bootstrap_server)
    try:
        begun = time.process_time()
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        last = _last(message.value for message in islice(consumer, setup.count))
        return _speed(setup.count, last, begun)
    finally:
        consumer.close()


def _last(values: Iterable[bytes | None]) -> bytes | None:
    last = None
    for value in values:
        last = value
    return last


def _speed(count: int, last: bytes | None, begun: float) -> float:
    """Return millions of records per second of processor time. Raises WrongResultError if the last record is wrong."""
    seconds = time.process_time() - begun
    if last != b"value %d" % (count - 1):
        raise WrongResultError(f"the last of {count} records has the wrong value {last!r}")
    return count / seconds / 1e6


BENCHMARK = Benchmark(name="consumers", question="How fast does a Python program read records?", cases=cases)
