"""A remote engine that can answer late, never or with errors, and caches no answer.

A call that may wait fails the test if the event loop's thread makes it, because no call may wait in this thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.doubles.memory_engine import KnownTopics, PartitionWithoutDirectory
from tests.doubles.records import records
from topicfs.coordination.shares.groups import NoShareGroups
from topicfs.storage.codec.records import encode
from topicfs.storage.config.listing import ShownSetting, topic_settings
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel, Listeners
from topicfs.storage.model import (
    NO_TIMESTAMP,
    Appended,
    Fetched,
    Isolation,
    Offset,
    PartitionStatus,
    Timestamp,
    TimestampOffset,
)

LONGEST_SECONDS = 30.0
"""The time in seconds after which a waiting call gives up, so that a wrong test ends."""


class Line:
    """The connection to the cluster. All calls that may wait use this object.

    A call in the thread that made this object fails the test.
    """

    def __init__(self, control: Path | None = None) -> None:
        self._control = control
        """A file that controls a daemon in another process: while the file exists, no call is answered."""
        self.error: Exception | None = None
        """The error that every call raises, if any."""
        self.calls: Counter[str] = Counter()
        self.waiting = 0
        self.max_waiting = 0
        """The largest number of calls that have waited at the same time."""
        self.before_waiting: Callable[[], None] = lambda: None
        self._loop = threading.get_ident()
        self._stalled: tuple[str, ...] = ()
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()

    def stall(self, *calls: str) -> None:
        """Stop answering calls until `go_on`: only the calls named in `calls`, or every call if none is named."""
        self._stalled = calls
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def asks(self, call: str) -> None:
        """Call the hook `before_waiting`, and then wait for an answer.

        In code that must not wait, the hook raises an error.
        """
        self.before_waiting()
        self.passes(call)

    def passes(self, call: str) -> None:
        """Wait for an answer to `call`, and raise `error` if it is set."""
        assert threading.get_ident() != self._loop, f"{call} waits in the event loop's thread"
        with self._lock:
            self.calls[call] += 1
            self.waiting += 1
            self.max_waiting = max(self.max_waiting, self.waiting)
        while self._control is not None and self._control.exists():
            time.sleep(0.01)
        if not self._stalled or call in self._stalled:
            self._open.wait(LONGEST_SECONDS)
        with self._lock:
            self.waiting -= 1
        if self.error is not None:
            raise self.error


class StallingAppend:
    """An append that has begun. Its records are stored when `end` returns."""

    error: Exception | None = None
    """The error that `end` of every append raises, if any."""

    def __init__(self, line: Line, append: Callable[[], Appended], *, dropped: bool) -> None:
        self._line, self._append = line, append
        self.failed = dropped

    def end(self) -> Appended:
        assert not self.failed, "an earlier append failed, and its error was raised"
        self._line.passes("append")
        if self.error is not None:
            self.failed = True
            raise self.error
        return self._append()


class StallingPartition(PartitionWithoutDirectory):
    """A partition whose offsets are known locally. All other facts are requested from the cluster."""

    def __init__(self, topic: str, number: int, line: Line) -> None:
        super().__init__(topic, number)
        self._line = line
        self._newest = NO_TIMESTAMP

    @property
    def newest_timestamp(self) -> Timestamp:
        return self._newest

    @property
    def config(self) -> TopicConfig:
        self._line.asks("config")
        return super().config

    def status(self) -> PartitionStatus:
        self._line.asks("status")
        return super().status()

    def available_end(self, offset: Offset) -> Offset:
        return offset

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        self._line.asks("read")
        return super().read(offset, max_bytes=max_bytes, isolation=isolation)

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        self._line.asks("offset_for_timestamp")
        return super().offset_for_timestamp(timestamp, isolation=isolation)

    def check_in_sync(self) -> None:
        pass

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        self._line.passes("append")
        return super().append(batches, durable=durable, encoded_here=encoded_here)

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> StallingAppend:
        append = partial(
            PartitionWithoutDirectory.append, self, batches, durable=durable, encoded_here=encoded_here
        )
        return StallingAppend(self._line, append, dropped=unless())

    def delete_records(self, before: Offset) -> Offset:
        self._line.passes("delete_records")
        return super().delete_records(before)

    def sync(self) -> None:
        self._line.passes("sync")

    def arrive(self, *values: bytes, time: int = 1000) -> None:
        """Add records that another client has appended, and notify the engine."""
        batch = encode(records(values, timestamp=range(time, time + len(values))))
        self._newest = Timestamp(time + len(values) - 1)
        PartitionWithoutDirectory.append(self, batch)


class StallingTopic:
    """A `storage.engine.Topic` that requests facts from the cluster."""

    internal = False

    def __init__(self, name: str, line: Line) -> None:
        self.name = name
        self.topic_id = f"{name:A<22}"
        self.all: dict[int, StallingPartition] = {}
        self._line = line

    @property
    def config(self) -> TopicConfig:
        self._line.asks("config")
        return TopicConfig()

    @property
    def overrides(self) -> Mapping[str, str]:
        self._line.asks("overrides")
        return {}

    def settings(self) -> Sequence[ShownSetting]:
        self._line.asks("settings")
        return list(topic_settings(TopicConfig(), overrides={}, given={}))

    def opened(self):
        return list(self.all.values())

    def partitions(self) -> Mapping[int, StallingPartition]:
        return dict(self.all)

    def extend(self, total: int) -> None:
        for number in range(len(self.all), total):
            self.all[number] = StallingPartition(self.name, number, self._line)


class StallingEngine(KnownTopics):
    """A `coordination.engine.Engine` that requests facts from the cluster."""

    read_only = False
    remote = True
    share_groups = NoShareGroups("an engine that stalls has none")
    warnings: Sequence[str] = ()

    def __init__(self, control: Path | None = None) -> None:
        super().__init__()
        self.line = Line(control)
        self._listeners = Listeners()

    def make(self, name: str, *, partitions: int = 1) -> StallingTopic:
        """Make a topic as another client does, and notify the engine."""
        topic = self.all[name] = StallingTopic(name, self.line)
        topic.extend(partitions)
        self._listeners.notify()
        return topic

    def call_before_waiting(self, hook: Callable[[], None]) -> None:
        self.line.before_waiting = hook

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> StallingTopic:
        assert overrides is None
        assert topic_id is None
        self.line.passes("create_topic")
        return self.make(name, partitions=partitions or 1)

    def add_partitions(self, topic: str, *, total: int) -> None:
        self.line.passes("add_partitions")
        self.topic(topic).extend(total)
        self._listeners.notify()

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        self.line.passes("delete_topic")
        del self.all[self.topic(name).name]
        self._listeners.notify()

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self.line.passes("alter_config")

    def reopen_partition(self, topic: str, number: int) -> StallingPartition:
        self.line.passes("reopen_partition")
        return self.partition(topic, number)

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._listeners.add(listener)

    def maintenance(self, now: Timestamp) -> None:
        self.line.passes("maintenance")

    def keep_log_starts(self) -> None:
        self.line.passes("keep_log_starts")

    def close(self) -> None:
        """Let all waiting calls continue, and return before they have ended."""
        self.line.go_on()
