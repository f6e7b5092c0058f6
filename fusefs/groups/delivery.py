"""Which records a reader was given and which are done, in bytes of its stream and offsets of partitions.

    stream    ──────────┬───────────────────────────────┬──────────
                        │ chunk of orders-0             │ the next one
                        └───────────────────────────────┘
                        ▲          ▲        ▲
                      answered    asked    given
                    (a record's  (where the (what the last
                       end)     next read    read had)
                                 begins)

A read starts at the program's file position. The program has processed all bytes before this position. If earlier
reads returned bytes after this position, the program has ignored them (`head` and bash's `read` seek back). So the
records that end at or before `asked` are done. A record that was given only in part stays with this reader until the
whole record is given: no other member gets the remainder.

Writing to the file also moves the file position; `writes` and `wrote` adjust the bookkeeping.
"""

from __future__ import annotations

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.groups.assigned_partitions import AssignedPartition
from topicfs.fusefs.groups.chunks import Chunk
from topicfs.fusefs.views.rendering import Text
from topicfs.storage.model import Offset, TopicPartition


class Delivery:
    """The bookkeeping of one open file. Not thread-safe."""

    def __init__(self) -> None:
        self._share: AssignedPartition | None = None
        self._chunk: Chunk | None = None
        """The chunk that is being given, or that was given and is not done. None: no such chunk."""
        self._base = 0
        """Stream position of the first byte of the current chunk or, if there is none, of the next chunk."""
        self._given = 0
        """Bytes of the chunk that were given."""
        self._answered = 0
        """Bytes of the chunk that are done: whole records."""
        self._cuts: tuple[Offset, ...] = ()
        """The partition's cuts (see `AssignedPartition.source`) that were known when the chunk was given. Records lost
        in later cuts are never done.
        """
        self._next: tuple[AssignedPartition, Chunk] | None = None
        """The next chunk, of which no byte was given yet."""
        self.records = 0
        """Number of records offered and not withdrawn. Counted only if the reader has a record limit."""
        self.read_last: TopicPartition | None = None
        """The partition of the last chunk that was given."""
        self._read_topics: dict[TopicPartition, str] = {}
        """The topic ID of the last chunk given from each partition."""

    # Chunks

    @property
    def has_text(self) -> bool:
        """True if there is something to give: text or an error."""
        return self._next is not None or (self._chunk is not None and self._given < len(self._chunk.text))

    def offer(self, share: AssignedPartition, chunk: Chunk) -> None:
        """Make `chunk` the next chunk.

        If it replaces a chunk that was not given, the records of the replaced chunk are read again later.
        """
        self.withdraw()
        self._next = share, chunk
        self.records += chunk.records

    def withdraw(self) -> None:
        if self._next is not None:
            share, chunk = self._next
            self._next = None
            self.records -= chunk.records
            share.go_to(chunk.start_offset)

    # Reads and writes of the program

    def ask(self, position: int) -> None:
        """Record that the program reads at `position`: all records before it are done. Raises FileError (ESPIPE)."""
        chunk, share = self._chunk, self._share
        self._base = max(self._base, position - self._given)  # Seeking forward skips no records.
        asked = position - self._base
        if asked < self._answered:
            raise FileError(Refusal.READ_ONCE, "earlier records are done and cannot be read again")
        if chunk is None or share is None:
            return
        self._given = asked
        self._answer(chunk, share, asked)
        if asked == len(chunk.text):
            self._drop()

    def _answer(self, chunk: Chunk, share: AssignedPartition, asked: int) -> None:
        place = chunk.at_or_before(asked)
        self._answered = place.position
        if place.position or chunk.error is not None or not chunk.text:
            share.done = self._kept(share, place.offset)

    def _kept(self, share: AssignedPartition, offset: Offset) -> Offset:
        """Return `offset` or, if smaller, the offset of the first record lost since the chunk was given."""
        return min((offset, *share.source.cuts[len(self._cuts) :]))

    def read(self, size: int) -> Text:
        """Return at most `size` bytes: whole records, or a part of a record if no whole record fits.

        Raises the chunk's error.
        """
        if self._chunk is None:
            assert self._next is not None
            (self._share, self._chunk), self._next = self._next, None
            self._given = self._answered = 0
            self._cuts = self._share.source.cuts
            self.read_last = self._share.partition
            self._read_topics[self._share.partition] = self._share.topic_id
            self._share.given = True
        chunk = self._chunk
        if chunk.error is not None:
            raise chunk.error.with_traceback(None)
        start = self._given
        end = min(start + size, len(chunk.text))
        if end < len(chunk.text):
            whole = chunk.at_or_before(end).position
            end = whole if whole > start else end
        self._given = end
        return chunk.text if start == 0 and end == len(chunk.text) else memoryview(chunk.text)[start:end]

    def writes(self, position: int) -> None:
        """Record that the program writes at `position`, so it has read everything before `position`."""
        if self._chunk is not None:
            self._given = max(min(position - self._base, self._given), self._answered)

    def wrote(self, size: int) -> None:
        """Record a successful write of `size` bytes, which moved the program's file position."""
        self._base += size

    # Other members

    def unanswered_partition(self) -> TopicPartition | None:
        """Return the partition with records that were given and are not done; None if all are done."""
        if self._share is None or self._chunk is None:
            return None
        is_open = self._given > self._answered or self._chunk.error is not None
        return self._share.partition if is_open else None

    def finish(self, partition: TopicPartition) -> bool:
        """Stop giving records of a revoked partition, except the rest of a record that was given in part.

        Return whether all given records are done.
        """
        if self._next is not None and self._next[0].partition == partition:
            self.withdraw()
        chunk, share = self._chunk, self._share
        if chunk is None or share is None or share.partition != partition:
            return True
        if self.unanswered_partition() is None:
            share.go_to(self._kept(share, chunk.at_or_before(self._answered).offset))
            self._drop()
            return True
        self._chunk = _cut(chunk, self._given)
        return False

    def forget(self, partition: TopicPartition) -> None:
        """Drop a partition that this reader lost, even if a record is only partly delivered."""
        if self._next is not None and self._next[0].partition == partition:
            self.withdraw()
        if self._share is not None and self._share.partition == partition:
            self._drop()

    def answer(self) -> None:
        """Mark all records that were given in full as done."""
        if self._chunk is not None and self._share is not None:
            self._answer(self._chunk, self._share, self._given)

    def has_read_other(self, share: AssignedPartition) -> bool:
        """Return whether the last chunk from the partition belongs to a deleted topic with the same name."""
        return self._read_topics.get(share.partition, share.topic_id) != share.topic_id

    def _drop(self) -> None:
        self._base += self._given
        self._share = self._chunk = None
        self._given = self._answered = 0


def _cut(chunk: Chunk, given: int) -> Chunk:
    """Cut the chunk after the record that contains position `given`."""
    end = chunk.at_or_after(given)
    if end >= len(chunk.text):
        return chunk
    return chunk._replace(text=bytes(chunk.text[:end]), end_offset=chunk.at_or_before(end).offset)
