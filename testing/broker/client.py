"""A client that produces and consumes through librdkafka, with all parts of records."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from topicfs.storage.model import Header, Isolation, Offset, Record, Timestamp, TimestampType

Result = TypeVar("Result")

TIMEOUT_SECONDS = 60.0
PASSING_ERRORS = (
    "FENCED_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",
)
"""Temporary errors after a broker has started, until the broker knows the leaders of the partitions.

librdkafka itself reports _NOENT if no partition has a leader.
"""
BROKER_GONE = "_DESTROY_BROKER"
"""librdkafka's error for a request whose broker left the cluster before it answered."""
POLL_SECONDS = 0.02
ADMIN_SECONDS = 1.0
"""Seconds for which an admin client is reused, because a new client's connections cost a broker more than most
requests. This time is shorter than a restart of a broker.
"""
_CURRENT: dict[str, tuple[AdminClient, float]] = {}
"""The admin client in use for each broker, and the time at which it expires."""
_KEPT: deque[AdminClient] = deque(maxlen=16)
"""Recent admin clients of all brokers, kept alive."""
_NEWEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call] # it comes half typed
_OLDEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # as above
_Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"
_TYPES = {
    TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


class Outgoing(NamedTuple):
    """A record to produce; if it has no timestamp, the client's clock sets it."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0


class Consumed(NamedTuple):
    """A record that a consumer returned."""

    record: Record
    timestamp_type: TimestampType


def let_go() -> None:
    """Destroy the kept admin clients before the interpreter shuts down."""
    _CURRENT.clear()
    _KEPT.clear()


class Client:
    def __init__(self, bootstrap_server: str) -> None:
        self.bootstrap_server = bootstrap_server

    @property
    def admin(self) -> AdminClient:
        """Return an admin client at most one second old: an older one may have leader epochs from before a restart.

        The client is kept alive for longer, because its thread may still run after the answer, and destroying the
        client then would crash the process.
        """
        now = time.monotonic()
        admin, until = _CURRENT.get(self.bootstrap_server, (None, now))
        if admin is None or now >= until:
            admin = AdminClient(self._options())
            _CURRENT[self.bootstrap_server] = admin, now + ADMIN_SECONDS
            _KEPT.append(admin)
        return admin

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: Sequence[int] = (),
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic that keeps old records, unless `settings` differ; return its ID once its leaders serve it.

        `replicas`: the brokers with the replicas, the first of which is the leader. By default there is one replica.
        """
        if replicas:
            # Until the controller considers the first broker alive, another broker would become and remain
            # the leader.
            _wait_until(
                lambda: set(replicas) <= self.admin.list_topics(timeout=TIMEOUT_SECONDS).brokers.keys(),
                f"brokers {list(replicas)} are alive",
            )
        config = {"retention.ms": "-1", **(settings or {})}
        topic = (
            NewTopic(name, partitions, replica_assignment=[list(replicas)] * partitions, config=config)
            if replicas
            else NewTopic(name, partitions, 1, config=config)
        )

        def create() -> None:
            try:
                self.admin.create_topics([topic])[name].result(TIMEOUT_SECONDS)
            except KafkaException as error:
                # The client itself repeats the request if the answer is late.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        # A broker that was paused for long is not considered alive at first.
        _patiently(create, ("INVALID_REPLICATION_FACTOR",))
        # The broker learns of the topic, and that it leads the partitions, later than the controller.
        topic_id = _patiently(lambda: self.topic_id(name), ("UNKNOWN_TOPIC_OR_PART",))
        _patiently(lambda: self._ends(name, partitions), (*PASSING_ERRORS, "UNKNOWN_TOPIC_OR_PART"))
        return topic_id

    def topic_id(self, name: str) -> str:
        return _topic_id(self.admin, name)

    def topics(self) -> frozenset[str]:
        return frozenset(self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete the topics in `names` that exist, and wait until the broker lists none of them.

        The controller answers first; the broker lists a deleted topic for a moment longer.

        Raises KafkaException if a topic was not deleted, and TimeoutError if the broker still lists one of the
        topics.
        """
        gone = sorted(names)

        def delete() -> None:
            admin = self.admin
            for future in (admin.delete_topics(gone) if gone else {}).values():
                try:
                    future.result(TIMEOUT_SECONDS)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise

        _patiently(delete, ())
        _wait_until(lambda: not self.topics().intersection(gone), f"{gone} are no longer listed")

    def in_sync(self, topic: str, *, partition: int = 0) -> list[int]:
        found = self.admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
        return list(found.partitions[partition].isrs)

    def set_setting(self, topic: str, name: str, value: str) -> None:
        """Change a setting, and wait until the broker shows the new value, because the controller answers earlier."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)

        def known() -> bool:
            asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
            found = self.admin.describe_configs([asked])[asked].result(TIMEOUT_SECONDS)
            return bool(found[name].value == value)

        _wait_until(known, f"{topic} has {name}={value}")

    def allow(
        self, name: str, user: str, *operations: AclOperation, kind: ResourceType = ResourceType.TOPIC
    ) -> None:
        """Allow `user` operations on a topic or group, and so deny them to other users; wait until this is in force."""
        about = (kind, name, ResourcePatternType.LITERAL)
        bindings = [
            AclBinding(*about, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        admin = self.admin
        for made in admin.create_acls(bindings).values():
            made.result(TIMEOUT_SECONDS)
        whatever = AclBindingFilter(*about, None, None, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[arg-type] # None is any
        _wait_until(
            lambda: set(bindings) <= set(self.admin.describe_acls(whatever).result(TIMEOUT_SECONDS)),
            f"{user} may {operations} {name}",
        )

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        place = TopicPartition(topic, partition, before)
        admin = self.admin
        for future in admin.delete_records([place]).values():
            future.result(TIMEOUT_SECONDS)

    def _ends(self, topic: str, partitions: int) -> list[int]:
        asked = {TopicPartition(topic, number): _NEWEST for number in range(partitions)}
        found = self.admin.list_offsets(asked).values()
        return [int(one.result(TIMEOUT_SECONDS).offset) for one in found]

    def wait_for_end(self, topic: str, offset: int) -> None:
        """Wait until partition 0 ends at `offset`.

        The broker writes a transaction's marker only after it has answered the commit.
        """
        _wait_until(lambda: self.offset_for(topic) == offset, f"{topic} ends at {offset}")

    def offset_for(self, topic: str, spec: OffsetSpec = _NEWEST, *, partition: int = 0) -> int:
        """Return the offset that ListOffsets finds for `spec`; -1 if no record is at or after its timestamp."""
        place = TopicPartition(topic, partition)

        def ask() -> int:
            admin = self.admin
            return int(admin.list_offsets({place: spec})[place].result(TIMEOUT_SECONDS).offset)

        return _patiently(ask, PASSING_ERRORS)

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        """Return the offset of the first record at or after `timestamp`, by ListOffsets; -1 if there is none."""
        return self.offset_for(topic, OffsetSpec.for_timestamp(timestamp), partition=partition)

    def producer(self, **options: Any) -> Producer:
        return Producer(self._options(**options))

    def produce(
        self, topic: str, records: Iterable[Outgoing], *, partition: int = 0, batch: int = 0, **options: Any
    ) -> list[int]:
        """Produce and wait; return the records' offsets. If `batch` is not 0, each batch has `batch` records."""
        producer = self.producer(linger_ms=1000, **options)
        return send(producer, topic, records, partition=partition, batch=batch)

    @contextmanager
    def transaction(self, producer: Producer, *, commit: bool = True) -> Iterator[None]:
        """Run a block in a transaction of an initialized producer, and commit or abort it."""
        producer.begin_transaction()
        yield
        producer.flush(TIMEOUT_SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_SECONDS)

    def consume(
        self,
        topic: str,
        *,
        partition: int = 0,
        start: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> list[Consumed]:
        """Read from `start` (None: the log start) to the current end, and verify checksums."""
        if start is None:
            # librdkafka takes half a second to find the log start by itself.
            start = self.offset_for(topic, _OLDEST, partition=partition)
        consumer = Consumer(
            self._options(
                group_id="nobody",
                enable_auto_commit=False,
                enable_partition_eof=True,
                check_crcs=True,
                auto_offset_reset="error",
                isolation_level=isolation.value,
                fetch_wait_max_ms=10,
            )
        )
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            return list(_until_the_end(consumer))
        finally:
            consumer.close()

    def records(self, topic: str, **how: Any) -> list[Record]:
        """Return the records that `consume` returns, without their metadata."""
        return [consumed.record for consumed in self.consume(topic, **how)]

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        """Read the next `count` records as the only member of a group, and commit.

        A new group begins at the log start.
        """
        consumer = Consumer(
            self._options(
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=Isolation.READ_COMMITTED.value,
                fetch_wait_max_ms=10,
            )
        )
        try:
            consumer.subscribe([topic])
            messages = consumer.consume(count, TIMEOUT_SECONDS)
            if len(messages) != count:
                raise TimeoutError(f"only {len(messages)} of {count} records came within {TIMEOUT_SECONDS} s")
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        for error in (message.error() for message in messages):
            if error is not None:
                raise KafkaException(error)
        return [_consumed(message).record for message in messages]

    def _options(self, **options: Any) -> dict[str, Any]:
        given = {name.replace("_", "."): value for name, value in options.items()}
        return {"bootstrap.servers": self.bootstrap_server, "log_level": 0, **given}


def send(
    producer: Producer, topic: str, records: Iterable[Outgoing], *, partition: int = 0, batch: int = 0
) -> list[int]:
    """Produce with an existing producer, and return every record's offset. Raises KafkaException."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(int(message.offset() or 0))

    for count, record in enumerate(records, start=1):
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition,
            timestamp=record.timestamp,
            on_delivery=delivered,
        )
        if batch and count % batch == 0:
            producer.flush(TIMEOUT_SECONDS)
    producer.flush(TIMEOUT_SECONDS)
    if errors:
        raise KafkaException(errors[0])
    return offsets


def _topic_id(admin: AdminClient, name: str) -> str:
    described = admin.describe_topics(TopicCollection([name]))[name].result(TIMEOUT_SECONDS)
    return str(described.topic_id).translate(str.maketrans("+/", "-_"))  # It formats ids as plain base64.


def _patiently(ask: Callable[[], Result], passing: Sequence[str]) -> Result:
    """Call `ask`, and repeat the call while it raises BROKER_GONE or one of the temporary errors in `passing`."""
    temporary = {getattr(KafkaError, name) for name in (*passing, BROKER_GONE)}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in temporary or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {TIMEOUT_SECONDS} s until {what}")
        time.sleep(POLL_SECONDS)


def _until_the_end(consumer: Consumer) -> Iterator[Consumed]:
    while True:
        message = consumer.poll(TIMEOUT_SECONDS)
        if message is None:
            raise TimeoutError(f"neither a record nor the end came within {TIMEOUT_SECONDS} s")
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (the client's only name for it)
                return
            raise KafkaException(error)
        yield _consumed(message)


def _consumed(message: Message) -> Consumed:
    kind, timestamp = message.timestamp()
    headers = tuple(Header(key.encode(), value) for key, value in cast("_Headers", message.headers() or ()))
    record = Record(
        Offset(int(message.offset() or 0)), Timestamp(timestamp), message.key(), message.value(), headers
    )
    return Consumed(record, _TYPES[kind])
