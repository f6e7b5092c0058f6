"""The account of what a reader was given and what of it is done, in bytes of its stream and offsets of partitions.

    stream    ──────────┬───────────────────────────────┬──────────
                        │ chunk of orders-0             │ the next one
                        └───────────────────────────────┘
                        ▲          ▲        ▲
                      answered    asked    given
                    (a record's  (where the (what the last
                       end)     next read    read had)
                                 begins)

A read begins where the program stands: what lies before is done with, what it was given beyond (`head`, bash's `read`
seek back) it has not looked at. So of each chunk the records that end before `asked` are answered for. A record that was
given in part stays with this reader until its end: nobody else is given the rest of it.

Programs that write to the file move its position on by what they write; `writes` and `wrote` move the account along.
"""

from __future__ import annotations

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.groups.assigned_partitions import AssignedPartition
from topicfs.fusefs.groups.chunks import Chunk
from topicfs.fusefs.views.rendering import Text
from topicfs.storage.model import Offset, TopicPartition


class Delivery:
    """The account of one open file. One caller at a time."""

    def __init__(self) -> None:
        self._share: AssignedPartition | None = None
        self._chunk: Chunk | None = None
        """The one that is being given, or was given and is not answered for."""
        self._base = 0
        """Position in the stream of its first byte; without a chunk, of the next one's."""
        self._given = 0
        """Bytes of it that were given."""
        self._answered = 0
        """Bytes of it that are answered for: whole records."""
        self._cuts: tuple[Offset, ...] = ()
        """The cuts of its partition that its reader knew when it was given: what was lost since is never done."""
        self._next: tuple[AssignedPartition, Chunk] | None = None
        """The chunk that comes next, of which nothing was given."""
        self.records = 0
        """Number of records that were offered and not withdrawn, where chunks say it."""
        self.read_last: TopicPartition | None = None
        """The partition of which something was given last."""
        self._read_topics: dict[TopicPartition, str] = {}
        """The id of the topic of which something was given last, by partition."""

    # What comes

    @property
    def has_text(self) -> bool:
        """True if there is something to be given: text, or an error."""
        return self._next is not None or (self._chunk is not None and self._given < len(self._chunk.text))

    def offer(self, share: AssignedPartition, chunk: Chunk) -> None:
        """Put a chunk next. What was to come before and was not given is given later."""
        self.withdraw()
        self._next = share, chunk
        self.records += chunk.records

    def withdraw(self) -> None:
        """Take back what comes next."""
        if self._next is not None:
            share, chunk = self._next
            self._next = None
            self.records -= chunk.records
            share.go_to(chunk.start_offset)

    # What the program does

    def ask(self, position: int) -> None:
        """The program reads on at a position of the stream: what lies before is done. Raises FileError (ESPIPE)."""
        chunk, share = self._chunk, self._share
        self._base = max(self._base, position - self._given)  # Who leaps ahead leaves nothing out.
        asked = position - self._base
        if asked < self._answered:
            raise FileError(Refusal.READ_ONCE, "what was read before is done with, and gone")
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
        """Return an offset of the chunk, or that of the first record that was lost since if it lies further in front."""
        return min((offset, *share.cuts[len(self._cuts) :]))

    def give(self, size: int) -> Text:
        """Give the program at most `size` bytes: whole records where one fits, else a part of one. Raises the chunk's error."""
        if self._chunk is None:
            assert self._next is not None
            (self._share, self._chunk), self._next = self._next, None
            self._given = self._answered = 0
            self._cuts = self._share.cuts
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
        """The program writes at a position of the stream: that is where it stands."""
        if self._chunk is not None:
            self._given = max(min(position - self._base, self._given), self._answered)

    def wrote(self, size: int) -> None:
        """Note that the program wrote so many bytes, behind which the stream goes on; what fails moves no position."""
        self._base += size

    # What others want

    def owed(self) -> TopicPartition | None:
        """Return the partition of which something was given that is not answered for."""
        if self._share is None or self._chunk is None:
            return None
        is_open = self._given > self._answered or self._chunk.error is not None
        return self._share.partition if is_open else None

    def finish(self, partition: TopicPartition) -> bool:
        """Give no more of a partition than the rest of a record that was begun; whether nothing of it is owed now.

        Called when it is wanted back or the time is over, and again after each `ask`.
        """
        if self._next is not None and self._next[0].partition == partition:
            self.withdraw()
        chunk, share = self._chunk, self._share
        if chunk is None or share is None or share.partition != partition:
            return True
        if self.owed() is None:
            share.go_to(self._kept(share, chunk.at_or_before(self._answered).offset))
            self._drop()
            return True
        self._chunk = _cut(chunk, self._given)
        return False

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that is no longer this reader's: what was begun of it ends here."""
        if self._next is not None and self._next[0].partition == partition:
            self.withdraw()
        if self._share is not None and self._share.partition == partition:
            self._drop()

    def answer(self) -> None:
        """All records that were given whole are done."""
        if self._chunk is not None and self._share is not None:
            self._answer(self._chunk, self._share, self._given)

    def has_read_other(self, share: AssignedPartition) -> bool:
        """Return whether what was given last of a partition was of a former topic with the same name."""
        return self._read_topics.get(share.partition, share.topic_id) != share.topic_id

    def _drop(self) -> None:
        self._base += self._given
        self._share = self._chunk = None
        self._given = self._answered = 0


def _cut(chunk: Chunk, given: int) -> Chunk:
    """Take away what comes behind the record in which a position of the text lies."""
    end = chunk.at_or_after(given)
    if end >= len(chunk.text):
        return chunk
    return chunk._replace(text=bytes(chunk.text[:end]), end_offset=chunk.at_or_before(end).offset)
