"""A cluster's brokers: their addresses, the partitions they lead, and a connection pool for each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from hashlib import blake2b
from typing import NamedTuple

from topicfs.cluster import errors
from topicfs.cluster.place import ClusterAddress, Server
from topicfs.cluster.protocol.connection import (
    ANSWER_TIMEOUT_SECONDS,
    MAX_ANSWER_BYTES,
    Connection,
    Read,
    Throttle,
)
from topicfs.protocol.messages import METADATA, METADATA_BY_ID
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id
from topicfs.storage.disk.names import is_topic_name
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
NEXT_SECONDS = 1.0
"""How long to wait for a connection to one server before trying the next server in parallel."""
MAX_IDLE_CONNECTIONS = 8
"""Maximum number of idle connections per broker."""


class Backoff:
    """Pauses between attempts; each pause is twice as long as the previous one, up to LONGEST_PAUSE_SECONDS."""

    def __init__(self) -> None:
        self.failures = 0

    def next(self) -> float:
        """Count a failure, and return how long to wait."""
        self.failures += 1
        return min(FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 10)), LONGEST_PAUSE_SECONDS)


class Leader(NamedTuple):
    """The broker that leads a partition (-1 if the partition has no leader), and its leader epoch."""

    node: int
    epoch: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: str
    """The topic's id: 22 characters of base64url."""
    internal: bool
    leaders: Mapping[int, Leader]
    error: int = errors.NONE
    """Kafka's error code for the topic. If it is not NONE, the answer has no partitions of the topic."""


class Metadata(NamedTuple):
    cluster_id: str
    brokers: Mapping[int, Server]
    topics: Mapping[str, TopicMetadata]
    controller: int = -1
    """The broker to send changes of topics to. It makes the changes itself or forwards them."""
    illegal_names: Sequence[str] = ()
    """Topic names that Kafka does not allow. These topics are left out of `topics`."""

    @property
    def warning(self) -> str | None:
        """A warning about topics that were left out; None if there are none."""
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
    """The topics of a Metadata answer, and a digest of the bytes that contain them.

    If the next answer has the same digest, its topics are not parsed, because parsing thousands of partitions is
    slow.
    """

    digest: bytes
    topics: Mapping[str, TopicMetadata]
    illegal_names: Sequence[str]


class _AnswerReader:
    """Reads Metadata answers. Topics with the same bytes as in the last answer are not parsed again.

    Only the bytes of the topics are compared. Other bytes differ in each answer, because a broker names a random
    broker as the controller.
    """

    def __init__(self, last: _ReadTopics | None) -> None:
        self._last = last
        self._digest = b""

    def read(self, body: memoryview, version: int) -> Values:
        """Return the fields of an answer; `topics` is missing if its bytes are the same as in the last answer."""
        before, start = METADATA.response.read_before("topics", body, version)
        self._digest = blake2b(body[start:], person=b"%d" % version).digest()
        if self._last is not None and self._digest == self._last.digest:
            return before
        return METADATA.response.read(body, version, items={"topics": _topic, "partitions": _leader})

    def topics(self, answer: Values) -> _ReadTopics:
        """Return the topics of the answer that was just read."""
        if "topics" not in answer:
            assert self._last is not None
            return self._last
        named = {one.name: one for one in answer["topics"] if one.name is not None}
        topics = {name: one for name, one in named.items() if is_topic_name(name)}
        return _ReadTopics(self._digest, topics, sorted(named.keys() - topics.keys()))


class _Pool:
    """The idle connections to a broker, and the time until which the broker throttles this client."""

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.throttle = Throttle()


class _Standing(NamedTuple):
    """A connection that is ready for a request."""

    connection: Connection
    pool: _Pool
    fresh: bool
    """True if the connection was made for this request; False if it was idle."""


class Brokers:
    """The brokers of one cluster. Safe from any thread, and in a forked process.

    No request is sent to a broker while it throttles this client. Requests to a broker in its role as a group
    coordinator have connections and throttle times of their own, as in Kafka's consumer. Otherwise an exhausted byte
    quota would stop heartbeats and end memberships.
    """

    def __init__(self, address: ClusterAddress, connect: Callable[..., Connection] = Connection) -> None:
        self.address = address
        self._connect = connect
        self._lock = threading.Lock()
        self._pools: dict[tuple[Server, bool], _Pool] = {}
        """One pool for each server and role (coordinator or not)."""
        self._known: Mapping[int, Server] = {}
        self._silent: set[Server] = set()
        """Servers that did not answer the last request to them."""
        self._lent_out: set[Connection] = set()
        self._closed = threading.Event()
        self._pid = os.getpid()
        self._topics: _ReadTopics | None = None
        """The topics of the last Metadata answer."""

    def metadata(self, *, seconds: float = ANSWER_TIMEOUT_SECONDS) -> Metadata:
        """Return the metadata that any broker reports (blocking). Raises UnreachableError, NotKafkaError, ClusterError.

        Each call returns a new value. It shares its `topics` with the previous value if no topic changed.
        """
        reader = _AnswerReader(self._topics)
        asked = {"topics": None, "allowAutoTopicCreation": False}
        answer = self.ask_any(METADATA, asked, seconds=seconds, read=reader.read)
        if answer.get("errorCode", errors.NONE):
            raise errors.error_of(answer["errorCode"], str(self.address))
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
        seconds: float = ANSWER_TIMEOUT_SECONDS,
        coordinator: bool = False,
    ) -> Values:
        """Send a request to the broker `node` (blocking). Raises the errors of `connection` and `Connection.call`."""
        with self.connection(node, seconds=seconds, coordinator=coordinator) as connection:
            return connection.call(api, request, max_bytes=max_bytes, seconds=seconds)

    def topic_ids(
        self, node: int, topics: Iterable[str], *, seconds: float, coordinator: bool = False
    ) -> dict[str, str]:
        """Return topic ids by name, as one broker reports them (blocking).

        Unknown topics are left out. Raises like `ask`.
        """
        asked = {"topics": [{"name": name} for name in topics], "allowAutoTopicCreation": False}
        answer = self.ask(node, METADATA, asked, seconds=seconds, coordinator=coordinator)
        return {one["name"]: encode_id(one["topicId"]) for one in answer["topics"] if not one["errorCode"]}

    def answers_by_id(self, topics: Mapping[str, str], *, seconds: float) -> dict[str, int]:
        """Ask about topics by id, and return Kafka's error code for each name (blocking). `topics` maps names to ids.

        A broker's list of all topics leaves out a topic that the user may not describe, just like a deleted topic. A
        request by id shows the difference: the broker answers TOPIC_AUTHORIZATION_FAILED if the user may not describe
        the topic, and UNKNOWN_TOPIC_ID if it was deleted. Brokers before Kafka 3.1 do not support requests by id. If
        all brokers are older, each topic counts as deleted. Raises the errors of `ask_any`, except
        UnsupportedVersionError.
        """
        ids = [{"topicId": decode_id(one), "name": None} for one in topics.values()]
        asked = {"topics": ids, "allowAutoTopicCreation": False}
        try:
            answer = self.ask_any(METADATA_BY_ID, asked, seconds=seconds)
        except errors.UnsupportedVersionError:
            return dict.fromkeys(topics, errors.UNKNOWN_TOPIC_ID)
        codes = {encode_id(one["topicId"]): one["errorCode"] for one in answer["topics"]}
        return {name: codes[one] for name, one in topics.items() if one in codes}

    @contextmanager
    def connection(
        self, node: int, *, seconds: float = ANSWER_TIMEOUT_SECONDS, coordinator: bool = False
    ) -> Iterator[Connection]:
        """Context manager: lend an idle or a new connection to a broker (blocking).

        First waits until the broker's throttle time is over. Raises UnreachableError, and ThrottledError if the
        throttle time is longer than `seconds`.
        """
        server = self._known.get(node)
        if server is None:
            raise errors.UnreachableError(f"{self.address}: broker {node} is not known")
        with self._lent(server, seconds, coordinator=coordinator) as connection:
            yield connection

    def throttled_since(self, node: int, begin: float) -> bool:
        """Return whether a broker throttled this client at some time after `begin`, by `time.monotonic`."""
        server = self._known.get(node)
        return server is not None and self._pool(server).throttle.until > begin

    def ask_any(
        self, api: Api, request: Values, *, seconds: float = ANSWER_TIMEOUT_SECONDS, read: Read | None = None
    ) -> Values:
        """Send a request to one broker after another until one answers; each has at most `seconds` (blocking).

        The first broker with a working connection is asked first. Servers that did not answer last time are tried
        last. Servers that throttle this client are tried after servers that do not. Raises ThrottledError if a broker
        throttles this client. Raises UnsupportedVersionError if a broker is too old for the request, and no known
        broker was unreachable. Otherwise raises UnreachableError with all reasons.
        """
        reasons: list[str] = []
        throttled: errors.ThrottledError | None = None
        too_old: errors.UnsupportedVersionError | None = None
        lost = False
        known = self._known.values()
        servers = sorted(
            dict.fromkeys((*known, *self.address.servers)),
            key=lambda one: (one in self._silent, one not in known, self._pool(one).throttle.left()),
        )
        for server, standing in self._connections(servers, seconds):
            try:
                with self._returned(standing.result()) as connection:
                    answer = connection.call(api, request, seconds=seconds, read=read)
            except errors.ThrottledError as error:
                throttled = throttled or error
            except errors.UnsupportedVersionError as error:
                too_old = too_old or error
            except (errors.UnreachableError, errors.NotKafkaError) as error:
                reasons.append(str(error))
                self._silent.add(server)
                lost = lost or server in known
            else:
                self._silent.discard(server)
                return answer
        unreachable = errors.UnreachableError(f"{self.address}: no broker answers ({'; '.join(reasons)})")
        raise throttled or (None if lost else too_old) or unreachable

    def _connections(
        self, servers: Sequence[Server], seconds: float
    ) -> Iterator[tuple[Server, Future[_Standing]]]:
        """Connect to the servers, and yield each server as soon as its connection is made or has failed.

        The next server is tried as well if a server has failed, or has not connected within NEXT_SECONDS.
        """
        pending: dict[Future[_Standing], Server] = {}
        left, more = iter(servers), True
        try:
            while pending or more:
                server = next(left, None)
                more = server is not None
                if server is not None:
                    pending[self._begin_to(server, seconds, alone=len(servers) == 1)] = server
                done, _ = wait(pending, NEXT_SECONDS if more else None, FIRST_COMPLETED)
                for one in done:
                    yield pending.pop(one), one
        finally:
            for one, server in pending.items():
                # `cancel` succeeds only while the thread waits for the throttle time, not while it connects.
                if not one.cancel():
                    self._silent.update(() if one.done() else (server,))
                    one.add_done_callback(self._put_away)

    def _begin_to(self, server: Server, seconds: float, *, alone: bool) -> Future[_Standing]:
        """Return a future for a connection to a server: an idle connection, or else a new connection.

        A new connection is made in a new thread. If `alone` is True, or no thread can be started, it is made in this
        thread.
        """
        future: Future[_Standing] = Future()
        pool = self._pool(server)

        def connect() -> None:
            try:
                self._wait_for(pool, server, seconds)
                if future.set_running_or_notify_cancel():
                    future.set_result(self._standing(pool, server))
            except Exception as error:  # noqa: BLE001 - the caller's to raise
                if future.running() or future.set_running_or_notify_cancel():
                    future.set_exception(error)

        idle = None if pool.throttle.left() else self._idle_in(pool)
        if idle is not None:
            future.set_result(idle)
            return future
        try:
            if not alone:
                threading.Thread(target=connect, name=f"connects to {server}", daemon=True).start()
                return future
        except RuntimeError:  # The system cannot start another thread.
            pass
        connect()
        return future

    def _put_away(self, future: Future[_Standing]) -> None:
        """Put an unused connection back into its pool."""
        if future.exception() is None:
            self._give_back(future.result())

    def close(self) -> None:
        with self._lock:
            idle = [one for pool in self._pools.values() for one in pool.idle]
            for pool in self._pools.values():
                pool.idle.clear()
        for connection in idle:
            connection.close()

    def break_off(self) -> None:
        """Close all connections; callers that wait for an answer get UnreachableError."""
        with self._lock:
            self._closed.set()
            for connection in self._lent_out:
                connection.break_off()
        self.close()

    @contextmanager
    def _lent(self, server: Server, seconds: float, *, coordinator: bool = False) -> Iterator[Connection]:
        pool = self._pool(server, coordinator=coordinator)
        self._wait_for(pool, server, seconds)
        with self._returned(self._idle_in(pool) or self._standing(pool, server)) as connection:
            yield connection

    def _wait_for(self, pool: _Pool, server: Server, seconds: float) -> None:
        """Wait until a broker's throttle time is over. Raises ThrottledError if its end is more than `seconds` away."""
        deadline = time.monotonic() + seconds
        while left := pool.throttle.left():
            if time.monotonic() + left > deadline or self._closed.wait(left):
                raise errors.ThrottledError(
                    f"{server}: the quota of this client is used up; ask for a larger quota"
                )

    def _standing(self, pool: _Pool, server: Server) -> _Standing:
        """Make a connection (blocking)."""
        return _Standing(self._connect(server, opened=partial(self._note, pool)), pool, fresh=True)

    @contextmanager
    def _returned(self, standing: _Standing) -> Iterator[Connection]:
        try:
            yield standing.connection
        finally:
            self._give_back(standing)

    def _note(self, pool: _Pool, connection: Connection) -> None:
        """Track a connection for as long as it is being made or in use."""
        connection.throttle = pool.throttle
        with self._lock:
            self._lent_out = {one for one in self._lent_out if one.usable} | {connection}
            if self._closed.is_set():
                connection.break_off()

    def _pool(self, server: Server, *, coordinator: bool = False) -> _Pool:
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._pools, self._lent_out = os.getpid(), {}, set()
            return self._pools.setdefault((server, coordinator), _Pool())

    def _idle_in(self, pool: _Pool) -> _Standing | None:
        with self._lock:
            pool.idle[:] = [one for one in pool.idle if one.usable]
            connection = pool.idle.pop() if pool.idle else None
        if connection is None:
            return None
        self._note(pool, connection)
        return _Standing(connection, pool, fresh=False)

    def _give_back(self, standing: _Standing) -> None:
        connection, pool, fresh = standing
        with self._lock:
            self._lent_out.discard(connection)
            if connection.usable and len(pool.idle) < MAX_IDLE_CONNECTIONS and not self._closed.is_set():
                pool.idle.append(connection)
                return
            # If the broker was restarted, all old connections to it are broken.
            broken = [] if fresh else pool.idle[:]
            del pool.idle[: len(broken)]
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
    return answer["partitionIndex"], _shared(answer["leaderId"], answer["leaderEpoch"])


_shared = lru_cache(maxsize=1 << 12)(Leader)
"""Returns a Leader value that all partitions with the same leader and epoch share."""
