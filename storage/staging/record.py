"""The record of commits: how far each query and application is, in the same file of every serving data directory.

    2 3 5f8e0c11                                             the version, and the entries when the file was last rewritten
    QUERY@TOPIC_ID 41 4611686018427387904 41 50:9f86d081884c7d65 1700000000000 1c2b3a49
    └ series       └ number, producer id, epoch │                └ time        └ CRC-32C of all bytes before it
                                                └ number and digest of its records; "-": unknown

TOPIC_ID is the ID of the topic to which the query writes: for another topic, or one that was created again, the query
has committed nothing. If each row names its topic, the series is only the query. A query's micro-batches are
committed in order, so its last line is enough.

A commit appends a line and flushes it. A line that a crash cut short is not a commit. When the file has doubled, it
is rewritten without the entries of deleted topics and without expired entries, which had no commit for
`RETENTION_MS`. A target with expired entries keeps one entry without a query, `@TOPIC_ID`: an unknown query may have
expired there. A broker ignores the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from topicfs.storage.checkpoints.copies import RecordCopies
from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.disk import names
from topicfs.storage.disk.names import WriteId
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import ProducerId
from topicfs.storage.staging.manifest import Content

RETENTION_MS = 365 * 24 * 3600 * 1000
"""Time for which a query is remembered after its last commit."""

_SPARE_LINES = 100
_CHECKSUM_BYTES = 9
"""Size of the end of each line: the checksum in hexadecimal, and the newline."""


class CommittedQuery(NamedTuple):
    batch: int
    """The last committed batch; all batches before it are committed too."""
    producer_id: ProducerId
    epoch: int
    """Producer epoch of the last batch."""
    content: Content | None = None
    """The records of the last batch; None if they are not known."""
    time_ms: int = 0
    """Time of the last commit; 0 if it is not known."""


class CommitRecord(RecordCopies[str, CommittedQuery]):
    """The file with each query's last commit, and its copies in the data directories."""

    file_name = names.COMMITTED_WRITES
    age = attrgetter("batch")

    @cached_property
    def committing(self) -> Lock:
        """The lock that a thread holds while it appends a write and notes the commit here."""
        return Lock()

    def note(
        self, write: WriteId, committed: CommittedQuery, topic_ids: Callable[[], Collection[str]]
    ) -> None:
        """Note a commit in every copy; drop topics not in `topic_ids()`. Blocks. Raises CorruptionError, OSError."""
        with self._lock:
            if self._problem is not None:
                raise self._problem
            extensible = {one: self._extensible(one) for one in self.directories()}
            entries: Mapping[str, CommittedQuery] = {}
            if not all(extensible.values()):
                entries = self.read() | {write.series: committed}
                entries = remembered(entries, topic_ids(), now_ms=committed.time_ms)

            def note_in(directory: Path) -> None:
                if data := extensible[directory]:
                    self._append(directory, data, _line(write.series, committed))
                else:
                    self.write_copy(directory, entries)

            self._write_each(list(extensible), note_in)

    def forgot(self, write: WriteId) -> bool:
        """Return whether expired entries of the write's target were dropped. Raises CorruptionError, OSError."""
        return f"@{write.target}" in self.read("@")

    def _parse_file(self, data: bytes, path: Path, prefix: str) -> dict[str, CommittedQuery]:
        return dict(map(_entry, _lines(self._whole(data, path), prefix)))

    def _encoded(self, entries: Mapping[str, CommittedQuery]) -> bytes:
        return _sealed([f"2 {len(entries)}", *(_line(*entry) for entry in entries.items())])

    def _whole(self, data: bytes, path: Path) -> bytes:
        """Return the lines, leaving out a last line that a crash cut short. Raises CorruptionError."""
        last = data[data.rfind(b"\n", 0, -1) + 1 :]
        if not last.endswith(b"\n") or b"\0" in last:
            data = data[: -len(last)]
        checksum = b"%08x\n" % crc32c(memoryview(data)[:-_CHECKSUM_BYTES])
        if not data.startswith(b"2 ") or data[-_CHECKSUM_BYTES:] != checksum:
            raise CorruptionError(path, 0, "not a committed-writes file: wrong checksum or version")
        return data

    def _extensible(self, directory: Path) -> bytes:
        """Return the copy's content if a line can be appended to it; empty if the copy must be rewritten."""
        path = directory / self.file_name
        try:
            data = self._files.read_bytes(path)
            is_whole = self._whole(data, path) == data
        except (OSError, CorruptionError):
            return b""
        is_small = data.count(b"\n") <= 2 * int(data.split(maxsplit=2)[1]) + _SPARE_LINES
        return data if is_whole and is_small else b""

    def _append(self, directory: Path, data: bytes, line: str) -> None:
        with closing(self._files.open(directory / self.file_name)) as file:
            try:
                file.append(_sealed([line], crc32c(data)))
                file.sync()
            except OSError:
                # Nobody may read a line that is not on disk.
                with suppress(OSError):
                    file.truncate(len(data))
                raise


def remembered(
    queries: Mapping[str, CommittedQuery], topic_ids: Collection[str], *, now_ms: int
) -> dict[str, CommittedQuery]:
    """Return the entries of existing topics; the expired entries of a target are combined into one."""
    kept = {}
    for series, one in queries.items():
        query, _, target = series.partition("@")
        if target and target not in topic_ids:
            continue
        time_ms = one.time_ms or now_ms
        if query and now_ms - time_ms > RETENTION_MS:
            kept[f"@{target}"] = CommittedQuery(0, ProducerId(0), 0)
        else:
            kept[series] = one._replace(time_ms=time_ms)
    return kept


def _line(series: str, one: CommittedQuery) -> str:
    content = "-" if one.content is None else one.content
    return f"{series} {one.batch} {one.producer_id} {one.epoch} {content} {one.time_ms}"


def _sealed(lines: Iterable[str], checksum: int = 0) -> bytes:
    """Return the lines, each with its checksum; `checksum` is the checksum of all bytes before them."""
    sealed = bytearray()
    for line in lines:
        text = f"{line} ".encode()
        checksum = crc32c(text, checksum)
        end = b"%08x\n" % checksum
        checksum = crc32c(end, checksum)
        sealed += text + end
    return bytes(sealed)


def _lines(data: bytes, prefix: str) -> Iterable[bytes]:
    """Yield the lines that begin with `prefix`, except the first line of the file."""
    start = f"\n{prefix}".encode()
    at = data.find(start, 0, -1)
    while at >= 0:
        end = data.index(b"\n", at + 1)
        yield data[at + 1 : end]
        at = data.find(start, end, -1)


def _entry(line: bytes) -> tuple[str, CommittedQuery]:
    series, batch, producer_id, epoch, content, time_ms, _ = line.decode().split(" ")
    known = None if content == "-" else Content.of(content)
    return series, CommittedQuery(int(batch), ProducerId(int(producer_id)), int(epoch), known, int(time_ms))
