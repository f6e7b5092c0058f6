"""Targets of written lines: a partition, or a topic whose partitioner chooses the partition of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from topicfs.fusefs.appending.partitioners import KeyedValue, Partitioner
from topicfs.fusefs.forms import BATCH, LineParser
from topicfs.fusefs.reports import Reports
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import compress_batches
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition, Topic
from topicfs.storage.errors import InvalidConfigError, NotEnoughReplicasAfterAppendError
from topicfs.storage.model import Timestamp, TimestampType
from topicfs.storage.partitioning import keyed_count, least_count, partition_of_key
from topicfs.storage.remote import BeginsAppends, PendingAppend

Clock = Callable[[], Timestamp]
Encoded = tuple[Partition, list[bytearray]]
"""A partition, and the batches that it gets from a write, grouped into as few appends as possible."""


Begin: TypeAlias = Callable[..., Iterator[PendingAppend]]
"""Begins the appends that `LineTarget.append` would do. Its parameters: (lines, unless, *, durable).

Each step of the iterator begins one append (blocking). A step does nothing if `unless` returns True at that moment.
An error that `LineTarget.check` would raise is raised before the first step. All other errors are raised when an
append ends.
"""


class LineTarget(Protocol):
    """A file that accepts lines."""

    @property
    def name(self) -> str:
        """The file's path in the mount, such as `orders/0/log`."""

    @property
    def max_record_bytes(self) -> int:
        """Largest size in bytes of the record that a line makes."""

    @property
    def begin(self) -> Begin | None:
        """Function that begins appends, several of which may run at a time; None if only `append` is supported."""

    def check(self, lines: bytes) -> None:
        """Raise the errors of `append` that the lines themselves cause; store nothing."""

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Append all lines or none (blocking). If `durable`, the lines are on disk when this returns.

        Raises FormError, and the errors of `Partition.append`.
        """

    def sync(self) -> None:
        """Flush all appended lines to disk (blocking)."""


class CommandTarget:
    """A target of lines that are commands. Commands are durable when `append` returns, so `sync` does nothing."""

    begin = None

    def __init__(
        self,
        name: str,
        check: Callable[[bytes], object],
        act: Callable[[bytes], object],
        *,
        max_record_bytes: int = 256,
    ) -> None:
        """`check` raises InvalidConfigError for invalid commands, and `act` executes valid commands (blocking)."""
        self.name, self.max_record_bytes = name, max_record_bytes
        self._check, self._act = check, act

    def check(self, lines: bytes) -> None:
        self._check(lines)

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Execute the commands in `lines` (blocking). Raises the engine's errors."""
        self._check(lines)
        self._act(lines)

    def sync(self) -> None:
        """Do nothing: commands are durable when `append` returns."""


def last_line(lines: bytes) -> str:
    return lines.decode("utf-8", "replace").split("\n")[-2].strip()


def word_target(name: str, word: str, purpose: str, act: Callable[[], object]) -> CommandTarget:
    """Return a target that accepts one word and then calls `act` (blocking); `purpose` explains the word to users."""

    def check(lines: bytes) -> None:
        if (text := last_line(lines)) != word:
            raise InvalidConfigError(f"{text}: `{word}` is the only word that can be written, {purpose}")

    return CommandTarget(name, check, lambda _: act())


class Encoder:
    """Encodes lines of one form into batches for a partition, with the current time as timestamp."""

    def __init__(
        self, parser: LineParser, clock: Clock, reports: Reports, codec: Codec | None = None
    ) -> None:
        """Set up the encoder. `codec` compresses the batches; None: the partition compresses them by its settings."""
        self.parser = parser
        self._codec = codec
        self._clock = clock
        self._reports = reports
        self._limits: tuple[TopicConfig | None, int, int] = (None, 0, 0)
        """The settings last seen, and the largest batch and segment sizes derived from them."""

    def appends(self, lines: bytes, partition: Partition) -> list[bytearray]:
        """Encode lines as v2 batches, as few as max.message.bytes allows, grouped into appends by segment.bytes.

        Only a write larger than a whole segment needs several appends, each of which stores either all its records or
        none. Raises FormError, RecordTooLargeError.
        """
        config, limit, segment_bytes = self._limits
        if config is not partition.config:
            config = partition.config
            segment_bytes = config.effective_segment_bytes
            limit = min(config.max_message_bytes, segment_bytes)
            self._limits = config, limit, segment_bytes
        batches = self.parser.parse(lines, timestamp=self._clock(), max_batch_bytes=limit)
        if self._codec:
            batches = [
                compress_batches(one, self._codec, level=None, max_batch_bytes=limit) or one
                for one in batches
            ]
        if len(batches) == 1:
            return batches
        appends: list[bytearray] = []
        for batch in batches:
            if appends and len(appends[-1]) + len(batch) <= segment_bytes:
                appends[-1] += batch
            else:
                appends.append(batch)
        return appends

    def append(self, encoded: Sequence[Encoded], name: str, *, durable: bool) -> None:
        """Append the results of `appends` for each partition; `name` is the file that was written.

        If too few replicas store one partition's records, the other partitions' records are still appended, so that
        the log has the whole write.
        """
        encoded_here = self.parser is not BATCH and self._codec is None
        too_few: NotEnoughReplicasAfterAppendError | None = None
        if durable:
            for partition, _appends in encoded:
                partition.check_in_sync()
        for partition, appends in encoded:
            for batches in appends:
                try:
                    partition.append(batches, durable=durable, encoded_here=encoded_here)
                except NotEnoughReplicasAfterAppendError as error:
                    too_few = error
                if self.parser.tells_times:
                    self._warn_of_retention(batches, partition, name)
        if too_few is not None:
            raise too_few

    def begin(
        self,
        appends: list[bytearray],
        partition: Partition,
        name: str,
        unless: Callable[[], bool],
        *,
        durable: bool,
    ) -> Iterator[PendingAppend]:
        """Begin one of `appends` (encoded batches) at each step. A step does nothing if `unless` returns True then."""
        # isinstance() would check every method of the protocol, which takes microseconds per write.
        remote = cast("BeginsAppends", partition)
        encoded_here = self.parser is not BATCH and self._codec is None
        for batches in appends:
            yield remote.begin_append(batches, durable=durable, encoded_here=encoded_here, unless=unless)
            if self.parser.tells_times:
                self._warn_of_retention(batches, partition, name)

    def _warn_of_retention(self, batches: bytearray, partition: Partition, name: str) -> None:
        """Warn if the appended records are so old that retention may soon delete them."""
        config = partition.config
        retention_ms = config.retention_ms
        stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if retention_ms < 0 or stamped or not config.deletes:
            return
        newest = read_header(batches).max_timestamp
        age_ms = self._clock() - newest
        if newest >= 0 and age_ms > retention_ms:
            self._reports.warning(
                name,
                f"appended records {age_ms} ms old, but retention.ms={retention_ms}: retention will soon "
                "delete them with their segment; write retention.ms=-1 to the topic's config to keep them",
            )


class PartitionTarget:
    """The log of one partition."""

    def __init__(self, name: str, partition: Partition, encoder: Encoder) -> None:
        self.name = name
        self._partition = partition
        self._encoder = encoder

    @property
    def max_record_bytes(self) -> int:
        return self._partition.config.max_message_bytes

    def check(self, lines: bytes) -> None:
        self._encoder.appends(lines, self._partition)

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        appends = self._encoder.appends(lines, self._partition)
        self._encoder.append(((self._partition, appends),), self.name, durable=durable)

    def begin(self, lines: bytes, unless: Callable[[], bool], *, durable: bool) -> Iterator[PendingAppend]:
        appends = self._encoder.appends(lines, self._partition)
        return self._encoder.begin(appends, self._partition, self.name, unless, durable=durable)

    def sync(self) -> None:
        self._partition.sync()


class TopicTarget:
    """A topic: the partitioner chooses the partition of each record.

    A write is encoded completely before any of its records is appended. If the disk fails after the append to the
    first partition, the records in the first partition stay.
    """

    def __init__(self, name: str, topic: Topic, encoder: Encoder, partitioner: Partitioner) -> None:
        self.name = name
        self._topic = topic
        self._encoder = encoder
        self._partitioner = partitioner

    @property
    def max_record_bytes(self) -> int:
        return self._topic.config.max_message_bytes

    def check(self, lines: bytes) -> None:
        self._encoder.appends(lines, any_of(self._topic.partitions()))

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        self._encoder.append(self._encoded(lines), self.name, durable=durable)

    def begin(self, lines: bytes, unless: Callable[[], bool], *, durable: bool) -> Iterator[PendingAppend]:
        for partition, appends in self._encoded(lines):
            yield from self._encoder.begin(appends, partition, self.name, unless, durable=durable)

    def _encoded(self, lines: bytes) -> list[Encoded]:
        """Return the batches of each partition that gets records."""
        partitions = self._topic.partitions()
        return [
            (partitions[number], self._encoder.appends(share, partitions[number]))
            for number, share in self._shares(lines, partitions).items()
        ]

    def _shares(self, lines: bytes, partitions: Mapping[int, Partition]) -> dict[int, bytes]:
        """Return the lines of each partition that gets records, in order."""
        count = least_count(partitions)

        def serves(number: int) -> bool:
            return number in partitions and not partitions[number].summary().offline

        if not self._encoder.parser.suffix:  # This form has values only, no keys.
            whole = self._partitioner.for_unkeyed(len(lines), count, serves)
            if whole is not None:
                return {whole: lines}
        records = key_values(self._encoder.appends(lines, any_of(partitions)))
        chosen = self._partitioner.for_records(records, keyed_count(self._topic.name, partitions), serves)
        shares: dict[int, list[bytes]] = {}
        for number, line in zip(chosen, lines_of(lines), strict=True):
            shares.setdefault(number, []).append(line)
        return {number: b"".join(share) for number, share in shares.items()}

    def sync(self) -> None:
        for partition in self._topic.partitions().values():
            partition.sync()


def any_of(partitions: Mapping[int, Partition]) -> Partition:
    return partitions[next(iter(partitions))]


def key_values(appends: list[bytearray]) -> Sequence[KeyedValue]:
    """Return the keys and values of encoded records, in order."""
    return [
        KeyedValue(record.key, record.value)
        for batches in appends
        for columns in decode(batches, check_crc=False)
        for record in columns
    ]


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of `text`, each with its LF (bytes.splitlines would also split at CR)."""
    return [line + b"\n" for line in text[:-1].split(b"\n")]


class ExactlyOnceEncoder:
    """Encodes lines of a form that are appended exactly once despite crashes; used by `storage.idempotence`.

    A line with a key goes to the partition of the key's hash. Lines without a key are distributed round-robin by line
    number, because each run must choose the same partitions, and a random choice would differ in the next run.
    """

    def __init__(self, encoder: Encoder, any_partition: Partition) -> None:
        self._encoder = encoder
        self._any_partition = any_partition

    def encode(self, lines: bytes, partition: Partition) -> list[bytearray]:
        return self._encoder.appends(lines, partition)

    def choose(self, lines: Sequence[bytes], first_record: int, partitions: int) -> list[int]:
        if partitions == 1:
            return [0] * len(lines)
        if not self._encoder.parser.suffix:  # This form has values only, no keys.
            return [(first_record + number) % partitions for number in range(len(lines))]
        records = key_values(self._encoder.appends(b"".join(lines), self._any_partition))
        return [
            (first_record + number) % partitions
            if record.key is None
            else partition_of_key(record.key, partitions)
            for number, record in enumerate(records)
        ]
