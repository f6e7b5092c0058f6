"""The scrub of one segment: compares its copies in several logs, batch by batch.

    copy 1   ████████████████████████████
    copy 2   ████████████▒▒██████████████     ▒ differs from copy 1: which of the two is valid?

Until compaction makes the copies different, each batch is at the same position in all of them. A batch overwrites
another batch only if it is valid, has the expected offset and epoch, and both copies continue with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from topicfs.replication.scrub.findings import ScrubFinding, healed
from topicfs.replication.scrub.indexes import IndexCheck, mend_indexes
from topicfs.replication.scrub.repair import Copy, CopyMovedError, Guard, end_of, mend
from topicfs.replication.scrub.verdict import Bounds, judge, judge_first
from topicfs.storage.checkpoints.leader_epochs import Entries
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import HEADER_SIZE, ROW_SIZE
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.errors import Finding, StorageError
from topicfs.storage.messages import reason_of
from topicfs.storage.model import Position

_BATCHES_AHEAD = 1000
"""How many batches are searched, after a damaged batch, for a batch on which two copies agree."""


class Report(Protocol):
    """A function that takes a finding. `batch` is True if the finding is about a batch, and not about another file."""

    def __call__(self, found: ScrubFinding, /, *, batch: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    """How to scrub the segments of a partition."""

    epochs: Entries
    """The leader epochs of the leader's log."""
    guard: Guard
    report: Report
    report_left: Report
    """Takes findings that no other replica can repair."""
    heals: bool
    """True: repair damage. False: only report it."""
    rewritten: bool
    """True if compaction may have made the copies different, because each log is compacted on its own."""


class _Candidate(NamedTuple):
    """A batch that is valid on its own, and the copies that agree on it."""

    data: bytes
    header: BatchHeader
    copies: list[Copy]
    rank: int
    """2: begins at the expected offset; 1: ends before the next batch begins; 0: neither of the two."""


@dataclass(slots=True)
class _CopyGroup:
    """Copies that have been the same up to the present position."""

    copies: list[Copy]
    position: int
    offset: int
    """The lowest base offset that the next batch may have."""
    left: list[Copy] = field(default_factory=list)
    """Copies that the group no longer compares, because they differ from some batch on."""

    @property
    def going(self) -> list[Copy]:
        return [copy for copy in self.copies if copy.end > self.position and copy not in self.left]


class SegmentScrub:
    """Scrubs the copies of one segment, and repairs them if possible."""

    def __init__(self, copies: Sequence[Copy], scrubbing: Scrubbing) -> None:
        self._scrubbing = scrubbing
        self._copies = list(copies)
        self._indexes: dict[str, IndexCheck] = {}
        self._groups: list[_CopyGroup] = []
        self._damaged: set[str] = set()
        """Directories of copies with unrepaired damage."""

    def run(self) -> Iterator[int]:
        """Scrub chunk by chunk, yielding the number of bytes read. Raises OSError, CopyMovedError."""
        try:
            self._begin()
            while self._groups:
                yield from self._follow(self._groups.pop())
            self._heal_indexes()
        except FileNotFoundError as error:
            raise CopyMovedError(f"{error.filename}: removed while it was scrubbed") from error

    def _begin(self) -> None:
        """Look up the ends of the copies, and read the index entries below these ends."""
        for number, copy in enumerate(self._copies):
            self._copies[number], used = _as_now(copy)
            self._indexes[copy.place] = IndexCheck(self._copies[number], used)
        self._groups.append(_CopyGroup(list(self._copies), 0, self._copies[0].segment.base_offset))

    def _follow(self, group: _CopyGroup) -> Iterator[int]:
        while group.going:
            going = group.going
            windows = [copy.window(group.position) for copy in going]
            yield sum(len(window) for window in windows if window is not None)
            if not self._pass_alike(group, going, windows) and not self._pass_one(group, going):
                return

    def _bounds(self, group: _CopyGroup, copies: Sequence[Copy]) -> Bounds:
        return Bounds(group.offset, max(map(end_of, copies)), self._scrubbing.epochs)

    def _pass_alike(self, group: _CopyGroup, going: list[Copy], windows: list[bytes | None]) -> bool:
        """Skip the valid batches that are the same in all copies; return whether there were any."""
        present = [window for window in windows if window is not None]
        if len(present) < len(windows):
            return False
        alike = _alike(present)
        whole = alike == len(present[0]) and any(copy.end == group.position + alike for copy in going)
        verdict = judge(present[0][:alike], self._bounds(group, going), whole=whole)
        if not verdict.sound:
            return False
        passed = Batches(verdict.batches.rows[: ROW_SIZE * verdict.sound], verdict.stop)
        self._pass(group, going, passed, verdict.end_offset)
        return True

    def _pass(self, group: _CopyGroup, going: Sequence[Copy], passed: Batches, end_offset: int) -> None:
        for copy in going:
            self._indexes[copy.place].compare(passed, group.position)
        group.position += passed.stop
        group.offset = end_offset

    def _pass_one(self, group: _CopyGroup, going: list[Copy]) -> bool:
        """Handle the next batch if it is not valid and equal in all copies; return whether to continue."""
        causes: dict[str, str] = {}
        candidates = self._candidates(group, going, causes)
        best = [one for one in candidates if one.rank == candidates[0].rank] if candidates else []
        if not best:
            return self._pass_damage(group, going, causes)
        if len(best) > 1:
            self._part(group, best)
        good = best[0]
        for copy in [one for one in group.going if one not in good.copies]:
            self._heal(group, copy, good, causes)
        passed = scan(good.data, max_batches=1)
        self._pass(group, group.going, passed, good.header.end_offset)
        return True

    def _candidates(self, group: _CopyGroup, going: list[Copy], causes: dict[str, str]) -> list[_Candidate]:
        """Return the valid batches at the position, best first. `causes` gets the faults of the other copies."""
        found: dict[bytes, _Candidate] = {}
        bounds = self._bounds(group, going)
        for copy in going:
            window = copy.window(group.position)
            if window is None:
                causes[copy.place] = "the disk cannot read it"
                continue
            header, causes[copy.place] = judge_first(window, bounds)
            if header is None:
                continue
            data = window[: header.size_bytes]
            rank = self._rank(group, copy, header)
            if not rank:
                causes[copy.place] = (
                    f"its offsets {header.base_offset} to {header.last_offset} overlap the next batch"
                )
                continue
            if data in found:
                found[data].copies.append(copy)
            else:
                found[data] = _Candidate(data, header, [copy], rank)
        return sorted(found.values(), key=lambda one: -one.rank)

    def _rank(self, group: _CopyGroup, copy: Copy, header: BatchHeader) -> int:
        if header.base_offset == group.offset:
            return 2
        following = copy.read(group.position + header.size_bytes, HEADER_SIZE)
        if not following:
            return int(copy.end == group.position + header.size_bytes)
        return int(int.from_bytes(following[:8], "big", signed=True) >= header.end_offset)

    def _part(self, group: _CopyGroup, best: list[_Candidate]) -> None:
        """Continue separately for each of several valid batches, because compaction made the copies different."""
        first, *others = best
        for other in others:
            if not self._scrubbing.rewritten:
                for copy in other.copies:
                    cause = f"differs from the batch in {first.copies[0].place}, and both are valid"
                    self._tell(copy, group.position, cause)
            group.left += other.copies
            self._groups.append(_CopyGroup(other.copies, group.position, group.offset))

    def _heal(self, group: _CopyGroup, copy: Copy, good: _Candidate, causes: dict[str, str]) -> None:
        """Overwrite a copy's batch with the good batch. A copy with another layout becomes a group of its own."""
        source, position = good.copies[0], group.position
        cause = causes[copy.place] or f"differs from the batch in {source.place}"
        if not self._same_layout(copy, source, position + len(good.data)):
            if not causes[copy.place] and not self._scrubbing.rewritten:
                self._tell(copy, position, cause)
            group.left.append(copy)
            self._groups.append(_CopyGroup([copy], position, group.offset))
        elif not self._scrubbing.heals:
            self._tell(copy, position, cause)
        else:
            self._write(group, copy, good, cause)

    def _write(self, group: _CopyGroup, copy: Copy, good: _Candidate, cause: str) -> None:
        """Overwrite a copy's damaged batch at this position with a good batch."""
        position, batch = group.position, good.data
        try:
            mend(copy, position, batch, self._scrubbing.guard)
        except CopyMovedError:
            if copy.read(position, len(batch)) != batch:
                raise
        except (OSError, StorageError) as error:
            self._tell(copy, position, f"{cause}; rewriting it failed: {reason_of(error)}", left=True)
            group.left.append(copy)  # The disk is failing: report this once per segment.
        else:
            found = ScrubFinding(Finding(copy.file, Position(position), cause), good.copies[0].place)
            self._scrubbing.report(found, batch=True)

    def _same_layout(self, copy: Copy, source: Copy, position: int) -> bool:
        """Return whether two copies have the same layout.

        The layout is the same if a batch that begins soon after `position` has the same header in both copies.
        """
        at = position
        for _ in range(_BATCHES_AHEAD):
            if at >= min(copy.end, source.end):
                break
            theirs = source.read(at, HEADER_SIZE)
            if theirs is None or len(theirs) < HEADER_SIZE:
                return False
            if copy.read(at, HEADER_SIZE) == theirs:
                return True
            at += max(int.from_bytes(theirs[8:12], "big", signed=True), 1) + 12
        if at == min(copy.end, source.end) and copy.active:
            return True  # The shorter copy lacks only the latest appends.
        # After compaction, the end proves nothing: different copies may have the same size.
        return at == copy.end == source.end and not self._scrubbing.rewritten

    def _tell(self, copy: Copy, position: int, cause: str, *, left: bool = False) -> None:
        self._damaged.add(copy.place)
        scrubbing = self._scrubbing
        report = scrubbing.report_left if left and not scrubbing.rewritten else scrubbing.report
        report(ScrubFinding(Finding(copy.file, Position(position), cause), None), batch=True)

    def _pass_damage(self, group: _CopyGroup, going: list[Copy], causes: dict[str, str]) -> bool:
        """Report a batch that is damaged in all copies. Return whether scrubbing can continue at a later batch."""
        for copy in going:
            left = len(going) == len(self._copies)
            self._tell(copy, group.position, causes[copy.place] or "damaged", left=left)
        bounds = self._bounds(group, going)
        for position in self._next_positions(group.position, going):
            for copy in going:
                window = copy.window(position) if position < copy.end else None
                if window is not None and judge_first(window, bounds)[0] is not None:
                    group.position = position
                    return True
        return False

    def _next_positions(self, position: int, going: list[Copy]) -> Iterator[int]:
        """Yield positions where the next batch may begin.

        The first ones follow from the damaged batch's length field, the others come from the indexes.
        """
        for copy in going:
            head = copy.read(position, 12)
            if head is not None and len(head) == 12:
                yield position + 12 + max(int.from_bytes(head[8:], "big", signed=True), 1)
        known = {
            entry.position
            for copy in going
            for entry in copy.segment.offset_index
            if entry.position > position
        }
        yield from sorted(known)[:_BATCHES_AHEAD]

    def _heal_indexes(self) -> None:
        sound = {}
        for copy in self._copies:
            check = self._indexes[copy.place]
            if copy.place not in self._damaged and check.is_sound(copy):
                sound[copy.place] = copy
        for copy in self._copies:
            if copy.place not in self._damaged and copy.place not in sound:
                source = next((one for one in sound.values() if one.end == copy.end), None)
                origin = "its batches" if source is None else source.place
                mend_both = partial(mend_indexes, copy, source, self._scrubbing.guard)
                # Later findings may follow from the first.
                found = healed(
                    self._indexes[copy.place].findings[0],
                    mend_both,
                    origin if self._scrubbing.heals else None,
                )
                self._scrubbing.report(found, batch=False)


def _as_now(copy: Copy) -> tuple[Copy, tuple[int, int]]:
    """Return the copy up to its present end, and the size of each index's entries below that end."""
    parts, segment = copy.log.parts, copy.segment
    with parts.lock:  # Excludes an append that has added index entries but not the new end.
        end = parts.state.end.bytes_of(segment) if copy.active else copy.end
        return copy._replace(end=end), (
            segment.offset_index.slots.used_bytes,
            segment.time_index.slots.used_bytes,
        )


def _alike(windows: Sequence[bytes]) -> int:
    """Return the number of leading bytes that are the same in all windows."""
    least = min(map(len, windows))
    first = windows[0]
    for window in windows[1:]:
        if window[:least] != first[:least]:
            low, high = 0, least  # Binary search: same up to `low`, different up to `high`.
            while high - low > 1:
                middle = (low + high) // 2
                if window[low:middle] == first[low:middle]:
                    low = middle
                else:
                    high = middle
            least = low
    return least
