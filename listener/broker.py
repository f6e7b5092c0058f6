"""The broker that clients see: an engine over data directories, and the state that all requests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from uuid import UUID

from topicfs.coordination.engine import Engine
from topicfs.listener.address import Endpoint
from topicfs.listener.counts import ListenerCounts
from topicfs.listener.errors import RefusedError
from topicfs.listener.limits import ListenerLimits, Memory, RequestBudget
from topicfs.protocol.error_codes import ErrorCode
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id, new_id
from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.checkpoints.meta_properties import read_meta_properties
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.names import TRANSACTION_STATE
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.engine import Partition, Topic
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

if TYPE_CHECKING:
    from topicfs.coordination.groups.runtime.service import EmbeddedGroups, GroupsOwner
    from topicfs.coordination.transactions.coordinator import TransactionCoordinator


class LocalPartition(Partition, Protocol):
    """A partition of an engine over data directories."""

    @property
    def epochs(self) -> LeaderEpochs:
        """The partition's leader epochs. Raises PartitionOfflineError."""
        ...


class Waiter(Protocol):
    """An event that a request can wait for."""

    def arm(self) -> None:
        """Reset the event, so that the next `wait` waits for a new `wake`."""
        ...

    def wake(self) -> None:
        """Set the event, which ends the wait. Safe from any thread."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for `wake`, at most `seconds`. Return False if the connection is ending."""
        ...

    def is_connected(self) -> bool:
        """Return whether the client still has its connection open."""
        ...


class Client(NamedTuple):
    """The client at the other end of a connection."""

    host: str
    """The client's address, without the port."""
    waiting: Waiter
    sessions: dict[int, Any]
    """The client's fetch sessions by id (`requests.fetch_sessions`)."""


class Request(NamedTuple):
    """One request of a client."""

    api: Api
    version: int
    values: Values
    client_id: str
    client: Client
    held: ExitStack
    """Resources that are released once the answer is sent."""
    forget: Callable[[], None]
    """Drops `values` and releases the memory of the request's bytes. Called before a long wait."""


class Broker:
    """An engine served as a Kafka broker, the only broker of its cluster."""

    def __init__(
        self, engine: Engine, advertised: Endpoint, config: EngineConfig, limits: ListenerLimits
    ) -> None:
        self.engine = engine
        self.node_id, self.cluster_id = _identity(engine, config)
        self.config = config._replace(node_id=self.node_id)
        self.advertised = advertised
        self.limits = limits
        self.memory = Memory(limits)
        self.counts = ListenerCounts()
        self._budget = RequestBudget(limits.max_handled)
        self._by_id: Mapping[UUID, Topic] | None = None
        self._changes = 0
        self._lock = threading.Lock()
        cast("GroupsOwner", engine).serves_clients = True
        self._making = threading.Lock()
        self._transactions: TransactionCoordinator | None = None
        self._closed = False
        self._cancel = engine.listen(self._topics_changed)  # From here on, another thread may call it.
        if TRANSACTION_STATE in engine.topics():
            self.transactions()  # Transactions of an earlier run may have to be ended.

    def close(self) -> None:
        self._cancel()
        with self._making:
            self._closed = True
            if self._transactions is not None:
                self._transactions.close()

    def transactions(self) -> TransactionCoordinator:
        """Return the coordinator of transactional ids. It is imported on first use, to start faster."""
        with self._making:
            if self._transactions is None:
                from topicfs.coordination.transactions.coordinator import TransactionCoordinator

                groups = cast("EmbeddedGroups", self.engine.groups)
                self._transactions = TransactionCoordinator(self.engine, groups, self.config, system_clock)
                if not self._closed:
                    self._transactions.start()
            return self._transactions

    def turn(self) -> AbstractContextManager[None]:
        """Context manager: handle a request. Only a few requests are handled at the same time."""
        return self._budget.taken()

    def rest(self) -> AbstractContextManager[None]:
        """Context manager inside `turn`: let another request be handled while this request waits.

        Used while a request waits for the disk or for other threads.
        """
        return self._budget.given_up()

    def topic_of(self, values: Values) -> Topic:
        """Return the topic that a part of a request identifies by name or by ID. `values` has the fields of that part.

        Raises RefusedError, UnknownTopicError.
        """
        unique = values.get("topicId")
        if unique is None or (not unique.int and values.get("name")):
            return self.engine.topic(values["name"] if "name" in values else values["topic"])
        found = self.topics_by_id().get(unique)
        if found is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
        return found

    def partition(self, topic: Topic, number: int) -> LocalPartition:
        """Return a partition; open it if it is not open yet.

        Raises UnknownTopicError; RefusedError if the topic was deleted, even if a new topic has its name.
        """
        found = cast(LocalPartition, self.engine.partition(topic.name, number))
        if self.engine.topic(topic.name).topic_id != topic.topic_id:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
        return found

    def has(self, partition: TopicPartition) -> bool:
        topic = self.engine.topics().get(partition.topic)
        return topic is not None and partition.partition in topic.partitions()

    def topics_by_id(self) -> Mapping[UUID, Topic]:
        """Return the topics by their ids."""
        found = self._by_id
        if found is None:
            changes = self._changes
            topics = self.engine.topics().values()
            found = {decode_id(topic.topic_id): topic for topic in topics}
            with self._lock:
                if (
                    changes == self._changes
                ):  # A topic may have been deleted or created again since this map was made.
                    self._by_id = found
        return found

    def _topics_changed(self) -> None:
        with self._lock:
            self._changes += 1
            self._by_id = None
        if self._transactions is None and TRANSACTION_STATE in self.engine.topics():
            # A failed directory is in service again. This thread may hold locks of the engine, so another one begins.
            threading.Thread(target=self.transactions, name="start of transactions", daemon=True).start()


def names_in(one: Values) -> Values:
    """Return the fields that identify a topic in a part of a request; the answer repeats them."""
    return {name: one[name] for name in ("name", "topicId") if name in one}


def check_leader_epoch(partition: Partition, asked: int) -> None:
    """Raise RefusedError if `asked`, the client's leader epoch, differs from the current epoch.

    If `asked` is -1, the client knows no epoch.
    """
    epoch = partition.offsets().leader_epoch
    if asked >= 0 and asked != epoch:
        raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH if asked < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)


def _identity(engine: Engine, config: EngineConfig) -> tuple[int, str]:
    """Return the node ID and the cluster ID that the data directories record.

    `node.id` of the settings counts only for new directories: a directory of a broker keeps that broker's ID.
    """
    disk = NativeFileSystem(read_only=True)
    for directory in engine.directories():
        meta = None if directory.offline else read_meta_properties(disk, Path(directory.path))
        if meta is not None and meta.cluster_id is not None:
            return config.node_id if meta.node_id is None else meta.node_id, meta.cluster_id
    return config.node_id, new_id()
