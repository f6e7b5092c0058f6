"""A cluster's brokers: their addresses, the partitions they lead, and a pool of connections to each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from cluster.errors import NONE, NotKafkaError, UnreachableError, error_of
from cluster.place import ClusterAddress, Server
from cluster.protocol.connection import ANSWER_SECONDS, MAX_ANSWER_BYTES, Connection, Read
from cluster.protocol.messages import METADATA
from cluster.protocol.notation import Api
from storage.checkpoints.identifiers import encode_id
from storage.coordinators.wire import Values
from storage.disk.names import is_topic_name
from storage.model import TopicPartition

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
MOST_IDLE = 8
"""Idle connections that are kept to each broker."""


class Backoff:
    """Pauses between attempts, each twice as long as the one before, up to LONGEST_PAUSE_SECONDS."""

    def __init__(self) -> None:
        self.failures = 0

    def next(self) -> float:
        """Return how long to wait now, after one more failure."""
        self.failures += 1
        return min(FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 10)), LONGEST_PAUSE_SECONDS)


class Leader(NamedTuple):
    """The broker that leads a partition, or -1, and the epoch of its leadership."""

    node: int
    epoch: int


class TopicMetadata(NamedTuple):
    """A topic as a broker describes it."""

    name: str
    topic_id: str
    """The id in base64url, 22 characters."""
    internal: bool
    leaders: Mapping[int, Leader]
    """The leaders by partition."""
    error: int = NONE
    """Kafka's error code, if nothing else is known."""


class Metadata(NamedTuple):
    """The cluster at one moment."""

    cluster_id: str
    brokers: Mapping[int, Server]
    topics: Mapping[str, TopicMetadata]
    controller: int = -1
    """The broker that changes of topics are asked of: it makes them, or passes them on."""
    illegal_names: Sequence[str] = ()
    """Names of topics that Kafka allows no topic: those are left out."""

    @property
    def warning(self) -> str | None:
        """A sentence about what was left out; None if nothing was."""
        if not self.illegal_names:
            return None
        return (
            f"topics with names that Kafka does not allow are left out: {len(self.illegal_names)}, "
            f"the first is {self.illegal_names[0][:80]!r}"
        )

    def leader(self, partition: TopicPartition) -> Leader:
        topic = self.topics.get(partition.topic)
        return (topic.leaders if topic else {}).get(partition.partition, Leader(-1, -1))


class _ReadTopics(NamedTuple):
    """The topics of an answer to Metadata, and a digest of its bytes: it takes long to read thousands of partitions."""

    digest: bytes
    topics: Mapping[str, TopicMetadata]
    illegal_names: Sequence[str]


class _AnswerReader:
    """A reader of the next answer to Metadata. Mostly the topics in it are those of the last one, byte for byte.

    (What is before them differs: a broker names any other one as the controller.)
    """

    def __init__(self, last: _ReadTopics | None) -> None:
        self._last = last
        self._digest = b""

    def read(self, body: memoryview, version: int) -> Values:
        """Return the fields; those before the topics alone if the rest is the last one again."""
        before, start = METADATA.response.read_before("topics", body, version)
        self._digest = blake2b(body[start:], person=b"%d" % version).digest()
        if self._last is not None and self._digest == self._last.digest:
            return before
        return METADATA.response.read(body, version, items={"topics": _topic, "partitions": _leader})

    def topics(self, answer: Values) -> _ReadTopics:
        """Return the topics of the answer that was read."""
        if "topics" not in answer:
            assert self._last is not None
            return self._last
        named = {one.name: one for one in answer["topics"] if one.name is not None}
        topics = {name: one for name, one in named.items() if is_topic_name(name)}
        return _ReadTopics(self._digest, topics, sorted(named.keys() - topics.keys()))


class Brokers:
    """The brokers of one cluster. Safe from any thread, and in a process that was forked off."""

    def __init__(self, address: ClusterAddress, connect: Callable[..., Connection] = Connection) -> None:
        self.address = address
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: dict[Server, list[Connection]] = {}
        self._known: Mapping[int, Server] = {}
        self._silent: set[Server] = set()
        """Brokers that did not answer when they were last asked."""
        self._lent_out: set[Connection] = set()
        self._closed = False
        self._pid = os.getpid()
        self._topics: _ReadTopics | None = None
        """The topics as a broker named them last."""

    def metadata(self, *, seconds: float = ANSWER_SECONDS) -> Metadata:
        """Ask any broker for all its metadata (blocking). Raises UnreachableError, NotKafkaError, ClusterError.

        They are a new value each time; where no topic has changed, of the same topics as the last.
        """
        reader = _AnswerReader(self._topics)
        asked = {"topics": None, "allowAutoTopicCreation": False}
        answer = self.ask_any(METADATA, asked, seconds=seconds, read=reader.read)
        if answer.get("errorCode", NONE):
            raise error_of(answer["errorCode"], str(self.address))
        self._topics = read = reader.topics(answer)
        found = Metadata(
            cluster_id=answer["clusterId"] or "",
            brokers={one["nodeId"]: Server(one["host"], one["port"]) for one in answer["brokers"]},
            topics=read.topics,
            controller=answer["controllerId"],
            illegal_names=read.illegal_names,
        )
        self._known = found.brokers
        return found

    def ask(
        self,
        node: int,
        api: Api,
        request: Values,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
        seconds: float = ANSWER_SECONDS,
    ) -> Values:
        """Ask one broker, by its id (blocking). Raises what `Connection.call` does."""
        with self.connection(node) as connection:
            return connection.call(api, request, max_bytes=max_bytes, seconds=seconds)

    def topic_ids(self, node: int, topics: Iterable[str], *, seconds: float) -> dict[str, str]:
        """Return the ids by which one broker knows topics, but for those that it does not know (blocking).

        Raises what `ask` does.
        """
        asked = {"topics": [{"name": name} for name in topics], "allowAutoTopicCreation": False}
        answer = self.ask(node, METADATA, asked, seconds=seconds)
        return {one["name"]: encode_id(one["topicId"]) for one in answer["topics"] if not one["errorCode"]}

    @contextmanager
    def connection(self, node: int) -> Iterator[Connection]:
        """Lend a connection to a broker for the block: an idle one, or a new one."""
        server = self._known.get(node)
        if server is None:
            raise UnreachableError(f"{self.address}: broker {node} is not known")
        with self._lent(server) as connection:
            yield connection

    def ask_any(
        self, api: Api, request: Values, *, seconds: float = ANSWER_SECONDS, read: Read | None = None
    ) -> Values:
        """Ask one broker after the other until one answers, each for `seconds` at most; those that were silent last come last (blocking).

        Raises UnreachableError with the reasons of all.
        """
        reasons: list[str] = []
        servers = dict.fromkeys((*self._known.values(), *self.address.servers))
        for server in sorted(servers, key=self._silent.__contains__):
            try:
                with self._lent(server) as connection:
                    answer = connection.call(api, request, seconds=seconds, read=read)
            except (UnreachableError, NotKafkaError) as error:
                reasons.append(str(error))
                self._silent.add(server)
            else:
                self._silent.discard(server)
                return answer
        raise UnreachableError(f"{self.address}: no broker answers ({'; '.join(reasons)})")

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in (one for pool in idle.values() for one in pool):
            connection.close()

    def break_off(self) -> None:
        """Close the idle connections, and break the others: callers that wait on them get UnreachableError."""
        with self._lock:
            self._closed = True
            for connection in self._lent_out:
                connection.break_off()
        self.close()

    @contextmanager
    def _lent(self, server: Server) -> Iterator[Connection]:
        connection = self._idle_to(server)
        fresh = connection is None
        if connection is None:
            connection = self._new_to(server)
        else:
            self._note(connection)
        try:
            yield connection
        finally:
            self._give_back(connection, fresh=fresh)

    def _new_to(self, server: Server) -> Connection:
        opened: list[Connection] = []

        def note(connection: Connection) -> None:
            opened.append(connection)
            self._note(connection)

        try:
            return self._connect(server, opened=note)
        except BaseException:
            with self._lock:
                self._lent_out.difference_update(opened)
            raise

    def _note(self, connection: Connection) -> None:
        """Remember a connection that is in use."""
        with self._lock:
            self._lent_out.add(connection)
            if self._closed:
                connection.break_off()

    def _idle_to(self, server: Server) -> Connection | None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._idle, self._lent_out = os.getpid(), {}, set()
            pool = self._idle.get(server, [])
            pool[:] = [one for one in pool if one.usable]
            for connection in reversed(pool):
                if not connection.muted:
                    pool.remove(connection)
                    return connection
        return None

    def _give_back(self, connection: Connection, *, fresh: bool) -> None:
        with self._lock:
            self._lent_out.discard(connection)
            pool = self._idle.setdefault(connection.server, [])
            if connection.usable and len(pool) < MOST_IDLE and not self._closed:
                pool.append(connection)
                return
            # Of a broker that was restarted all the old connections are broken.
            broken = [] if fresh else pool[:]
            del pool[: len(broken)]
        for one in (connection, *broken):
            one.close()


def _topic(answer: Values) -> TopicMetadata:
    return TopicMetadata(
        name=answer["name"],
        topic_id=encode_id(answer["topicId"]),
        internal=answer["isInternal"],
        leaders={number: leader for number, leader in sorted(answer["partitions"]) if number >= 0},
        error=answer["errorCode"],
    )


def _leader(answer: Values) -> tuple[int, Leader]:
    """Return a partition's number and its leader."""
    return answer["partitionIndex"], _shared(answer["leaderId"], answer["leaderEpoch"])


@lru_cache(maxsize=1 << 12)
def _shared(node: int, epoch: int) -> Leader:
    """Return a leader, one value for all partitions that have it."""
    return Leader(node, epoch)
