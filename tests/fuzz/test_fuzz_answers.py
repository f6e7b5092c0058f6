"""Whatever brokers answer, a cluster's engine returns valid batches or raises an error, and its threads continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from tests.doubles.servers import servers
from tests.fuzz.answers import TOPIC, Nonsense
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.place import ClusterAddress
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import encode
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

SEEDS = range(10)
ASKED = 8
"""Number of calls of each kind for a seed."""


@pytest.fixture
def nonsense(seed: int) -> Iterator[Nonsense]:
    with servers() as start:
        found = Nonsense(seed)
        found.server = start(found.serve)
        yield found


@pytest.mark.parametrize("seed", SEEDS)
def test_nonsense_is_an_answer_or_an_error(nonsense: Nonsense) -> None:
    """Nonsense from a broker causes only the project's own errors, stops no thread, and hangs no call."""
    random = nonsense.random
    # The attempt to connect to the cluster may fail.
    with closing(Brokers(ClusterAddress((nonsense.server,)))) as brokers, suppress(StorageError):
        leaders = Leaders(brokers, timeout_seconds=0.02)
        with closing(ClusterEngine(leaders, read_only=False)) as engine:
            for _ in range(ASKED):
                for topic in list(engine.topics().values()):
                    for partition in list(topic.partitions().values()):
                        for ask in questions(partition):
                            with suppress(StorageError):
                                ask(Offset(random.choice((0, 1, 5, 2**62))))
                    with suppress(StorageError):
                        assert isinstance(topic.config, TopicConfig)
                    with suppress(StorageError):
                        topic.settings()
                for change in (
                    lambda: engine.create_topic(TOPIC + str(random.randrange(9)), partitions=1),
                    lambda: engine.alter_config(TOPIC, {"retention.ms": "1"}),
                    engine.look,
                ):
                    with suppress(StorageError):
                        change()
    assert nonsense.answers > 0


def questions(partition: Partition) -> list[Callable[[Offset], object]]:
    def read(offset: Offset, isolation: Isolation) -> None:
        found = partition.read(offset, max_bytes=1 << 16, isolation=isolation)
        decode(found.data)

    line = bytearray(encode([Record(Offset(0), Timestamp(0), None, b"line")]))
    return [
        lambda offset: read(offset, Isolation.READ_COMMITTED),
        lambda offset: read(offset, Isolation.READ_UNCOMMITTED),
        lambda offset: partition.append(bytearray(line), durable=bool(offset)),
        lambda offset: partition.offset_for_timestamp(Timestamp(offset)),
        lambda _: partition.status(),
        partition.delete_records,
    ]
