"""Samples of all topics, and the rates between two samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    partitions: int
    records: int
    """Sum over all partitions of the number of offsets between log start and log end."""
    end_offsets: int | None = None
    """Sum of the log ends; None if unknown."""
    log_bytes: int | None = None
    """Total size of the batches; None if unknown."""
    appended_records: int
    """Counter of the appended records. `appended_bytes` counts their bytes."""
    appended_bytes: int | None
    lags: Mapping[str, int] = field(default_factory=dict)
    """The total lag of each group."""
    offline: int = 0
    """Number of offline partitions."""
    readers: tuple[str, ...] = ()
    """Programs that have the topic's files open for reading, such as `cat (4711)`."""
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    number: int
    start_offset: int
    end_offset: int
    state: str
    """`online`, or the reason why the partition is not online."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSample:
    path: str
    free_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSample:
    """A Kafka client of the listener."""

    client: str
    """The client id."""
    software: str
    connections: int
    requests: int
    """Counter of the client's requests; `errors` counts answers with an error."""
    errors: int
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSample:
    at: float
    """Time of the sample, in seconds of a monotonic clock."""
    topics: Mapping[str, TopicSample]
    disks: Sequence[DiskSample] = ()
    notes: Sequence[str] = ()
    """Remarks for the user, one line each."""
    clients: Sequence[ClientSample] = ()
    """The Kafka clients of the listener."""
    connections: int | None = None
    """Open connections of Kafka clients; None without a listener."""


class TopSource(Protocol):
    """A place that is sampled repeatedly. Calls block, and raise StorageError or OSError."""

    name: str
    """The place as named by the user."""

    def sample(self) -> TopSample:
        """Sample all topics."""

    def partitions(self, topic: str) -> list[PartitionSample]:
        """Return the partitions of a topic, by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    topic: str
    partitions: int
    records_per_second: float | None
    """Records per second; None until there are two samples."""
    bytes_per_second: float | None
    records: int
    end_offsets: int | None
    log_bytes: int | None
    lag: int | None
    """The largest lag of all groups; None if no group has a position."""
    group: str
    """The group with the largest lag."""
    offline: int
    readers: tuple[str, ...]
    writers: tuple[str, ...]


def rows_of(now: TopSample, before: TopSample | None) -> list[TopRow]:
    """Return a row for each topic, ordered by name; `before` is an earlier sample of the same place."""
    return [
        _row(name, topic, None if before is None else before.topics.get(name), now, before)
        for name, topic in sorted(now.topics.items())
    ]


def _row(
    name: str, topic: TopicSample, earlier: TopicSample | None, now: TopSample, before: TopSample | None
) -> TopRow:
    seconds = 0.0 if before is None else now.at - before.at
    records, size = (None, None) if earlier is None else (earlier.appended_records, earlier.appended_bytes)
    if before is not None and earlier is None:  # The topic is new, so all its records are new.
        records, size = 0, 0
    furthest = max(topic.lags.items(), key=lambda one: (one[1], one[0]), default=None)
    return TopRow(
        topic=name,
        partitions=topic.partitions,
        records_per_second=rate_of(topic.appended_records, records, seconds),
        bytes_per_second=rate_of(topic.appended_bytes, size, seconds),
        records=topic.records,
        end_offsets=topic.end_offsets,
        log_bytes=topic.log_bytes,
        lag=None if furthest is None else furthest[1],
        group="" if furthest is None else furthest[0],
        offline=topic.offline,
        readers=topic.readers,
        writers=topic.writers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRow:
    client: str
    software: str
    connections: int
    requests_per_second: float | None
    """Rates are None until there are two samples."""
    errors_per_second: float | None
    received_per_second: float | None
    sent_per_second: float | None


def client_rows(now: TopSample, before: TopSample | None) -> list[ClientRow]:
    """Return a row for each client with open connections, the busiest first."""
    seconds = 0.0 if before is None else now.at - before.at
    earlier = {} if before is None else {(one.client, one.software): one for one in before.clients}
    rows = []
    for one in now.clients:
        old = earlier.get((one.client, one.software))

        def rate(name: str, one: ClientSample = one, old: ClientSample | None = old) -> float | None:
            return rate_of(getattr(one, name), 0 if old is None else getattr(old, name), seconds)

        if one.connections:
            rows.append(
                ClientRow(
                    client=one.client,
                    software=one.software,
                    connections=one.connections,
                    requests_per_second=rate("requests"),
                    errors_per_second=rate("errors"),
                    received_per_second=rate("received_bytes"),
                    sent_per_second=rate("sent_bytes"),
                )
            )
    return sorted(rows, key=lambda row: (-(row.requests_per_second or 0), -row.connections, row.client))


def rate_of(now: int | None, before: int | None, seconds: float) -> float | None:
    """Return the growth per second; None if a number is unknown."""
    if now is None or before is None or seconds <= 0:
        return None
    # The number decreased: the topic was created again, or retention removed more than was appended.
    return max(now - before, 0) / seconds
