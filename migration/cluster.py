"""The requests to a running Kafka cluster, and the client that sends them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import Offset, TopicPartition

BROKER_ANSWER_SECONDS = 30.0
BROKER_POLL_SECONDS = 0.05
PASSING_ERRORS = (
    "FENCED_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",
)
"""Errors that a broker returns at first after its start, while it does not know the leaders."""
COORDINATOR_ERRORS = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_PATIENCE = {"request_timeout": BROKER_ANSWER_SECONDS}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic_id: str
    partitions: int
    node_ids: frozenset[int]


class GroupPosition(NamedTuple):
    """A group's committed position in a partition: the offset of the next record to read, and its metadata."""

    offset: Offset
    metadata: str = ""


class Cluster(Protocol):
    """A running cluster. Its methods block and raise ClusterError."""

    def cluster_id(self) -> str: ...

    def find_topic(self, name: str) -> TopicDescription | None: ...

    def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, str], node_id: int
    ) -> TopicDescription:
        """Create a topic with one replica per partition, all on the broker `node_id`; return once brokers know it."""

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None: ...

    def offsets(self, name: str, partitions: int) -> dict[int, range]:
        """Return each partition's offsets, from log start to log end."""

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return a group's positions; partitions without a position are left out."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> None:
        """Set a group's positions. A cluster refuses this if the group has members."""


class KafkaCluster:
    """A cluster reached through librdkafka. Its Python package is an optional extra."""

    def __init__(self, bootstrap_server: str, settings: Mapping[str, str] | None = None) -> None:
        """Connect. `settings` are options of librdkafka. Raises ClusterError if the client library is not installed."""
        try:
            self._kafka: Any = import_module("confluent_kafka")
            self._admin_module: Any = import_module("confluent_kafka.admin")
        except ImportError:
            raise ClusterError(
                "a handover needs a Kafka client library: install it with pip install 'topicfs[kafka]'"
            ) from None
        self._bootstrap_server = bootstrap_server
        self._options = {**(settings or {}), "bootstrap.servers": bootstrap_server, "log_level": 0}
        self._admin = self._admin_module.AdminClient(self._options)

    def cluster_id(self) -> str:
        return str(self._answer(self._admin.describe_cluster(**_PATIENCE)).cluster_id)

    def find_topic(self, name: str) -> TopicDescription | None:
        future = self._admin.describe_topics(self._kafka.TopicCollection([name]), **_PATIENCE)[name]
        try:
            found = future.result()
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._failure(error) from None
        nodes = frozenset(node.id for partition in found.partitions for node in partition.replicas)
        return TopicDescription(id_text(found.topic_id), len(found.partitions), nodes)

    def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, str], node_id: int
    ) -> TopicDescription:
        topic = self._admin_module.NewTopic(
            name,
            num_partitions=partitions,
            replica_assignment=[[node_id]] * partitions,
            config=dict(settings),
        )
        self._answer(self._admin.create_topics([topic], **_PATIENCE)[name])
        deadline = time.monotonic() + BROKER_ANSWER_SECONDS
        # The controller has created the topic; brokers learn of it a moment later.
        while (found := self.find_topic(name)) is None or found.partitions < partitions:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{name}: created, but the cluster does not know it after {BROKER_ANSWER_SECONDS:.0f} s"
                )
            time.sleep(BROKER_POLL_SECONDS)
        return found

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings that were set for the topic itself, by Kafka's names."""
        module = self._admin_module
        resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, name)
        entries = self._answer(self._admin.describe_configs([resource], **_PATIENCE)[resource])
        own = module.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in entries.values() if entry.source == own}

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        module = self._admin_module
        entries = [
            module.ConfigEntry(setting, value, incremental_operation=module.AlterConfigOpType.SET)
            for setting, value in settings.items()
        ]
        if not entries:
            return
        resource = module.ConfigResource(module.ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self._answer(self._admin.incremental_alter_configs([resource], **_PATIENCE)[resource])

    def offsets(self, name: str, partitions: int) -> dict[int, range]:
        specification = self._admin_module.OffsetSpec
        starts = self._list_offsets(name, partitions, specification.earliest())
        ends = self._list_offsets(name, partitions, specification.latest())
        return {number: range(starts[number], ends[number]) for number in starts}

    def _list_offsets(self, name: str, partitions: int, specification: Any) -> dict[int, int]:
        places = {self._kafka.TopicPartition(name, number): specification for number in range(partitions)}

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(places, **_PATIENCE)
            return {place.partition: int(future.result().offset) for place, future in futures.items()}

        found: dict[int, int] = self._retry(ask, PASSING_ERRORS)
        return found

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        if not partitions:
            return {}
        # Use a consumer that joins no group. The admin client's call for this crashes: if the broker is not
        # (yet) the group's coordinator, librdkafka looks up the state of a missing member and ends the
        # process (librdkafka issue 5040).
        reader = self._kafka.Consumer(
            {
                **self._options,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",  # Do not wait for open transactions.
            }
        )
        places = [self._kafka.TopicPartition(*partition) for partition in partitions]
        try:
            found = self._retry(
                lambda: _without_errors(self._kafka, reader.committed(places, BROKER_ANSWER_SECONDS)),
                COORDINATOR_ERRORS,
            )
        finally:
            reader.close()
        return {
            TopicPartition(place.topic, place.partition): Offset(place.offset)
            for place in found
            if place.offset >= 0
        }

    def set_positions(self, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> None:
        # Leave out leader epochs: epochs of another cluster have no meaning in this one, and would make
        # consumers wait.
        places = [
            self._kafka.TopicPartition(*partition, position.offset, metadata=position.metadata)
            for partition, position in positions.items()
        ]
        request = self._kafka.ConsumerGroupTopicPartitions(group, places)

        def ask() -> Any:
            return self._admin.alter_consumer_group_offsets([request], **_PATIENCE)[group].result()

        done = self._retry(ask, COORDINATOR_ERRORS)
        for place in done.topic_partitions:
            if place.error is not None:
                raise ClusterError(f"group {group}: {place.topic}-{place.partition}: {place.error.str()}")

    def _retry(self, ask: Callable[[], Any], passing_errors: Sequence[str]) -> Any:
        """Repeat a request while it fails with one of `passing_errors`."""
        passing = {getattr(self._kafka.KafkaError, code) for code in passing_errors}
        deadline = time.monotonic() + BROKER_ANSWER_SECONDS
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in passing or time.monotonic() > deadline:
                    raise self._failure(error) from None
            time.sleep(BROKER_POLL_SECONDS)

    def _answer(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except self._kafka.KafkaException as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> ClusterError:
        return ClusterError(f"{self._bootstrap_server}: {error.args[0].str()}")


def _without_errors(kafka: Any, places: Sequence[Any]) -> Sequence[Any]:
    """Return the partitions `places`. Raises KafkaException if one of them has an error."""
    for place in places:
        if place.error is not None:
            raise kafka.KafkaException(place.error)
    return places


def id_text(unique: Any) -> str:
    """Format librdkafka's Uuid as Kafka does. Its own text uses another alphabet (`+` and `/`)."""
    halves = unique.get_most_significant_bits(), unique.get_least_significant_bits()
    return encode_id(UUID(bytes=struct.pack(">qq", *halves)))
