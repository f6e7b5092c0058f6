"""Loads a partition's directory: Kafka's steps in Kafka's order (kafka-storage.md#loading-order)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.filesystem import File
from topicfs.storage.disk.memory import MemoryFile
from topicfs.storage.disk.names import (
    LOG_START_OFFSETS,
    SegmentFileKind,
    SegmentFileName,
    SegmentFileState,
    parse_partition_directory,
    segment_file,
)
from topicfs.storage.errors import CorruptionError, InvalidNameError
from topicfs.storage.log.log import Log
from topicfs.storage.log.parts import Hole, LoadedLog, LogContext, SmallFiles
from topicfs.storage.log.producers import LogProducers, rebuild_producers
from topicfs.storage.log.removal import Removal
from topicfs.storage.model import Offset, Position, Timestamp, TopicPartition
from topicfs.storage.recovery.options import LoadOptions
from topicfs.storage.recovery.repair import HeadersRepairedError, repair_headers
from topicfs.storage.recovery.segment_recovery import (
    Recovered,
    end_epochs,
    index_last,
    indexes_fit,
    read_end,
    recover_segment,
)
from topicfs.storage.recovery.split import SegmentOverflowError, split_segment
from topicfs.storage.recovery.temporary_files import (
    base_offsets,
    indexes_without_log,
    parse_names,
    replaced,
    sort_temporary_files,
)
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.roll import SegmentDirectory, SegmentSettings, segment_settings
from topicfs.storage.segment.scan import FILE_WINDOW_BYTES, SCAN_WINDOW_BYTES, windows
from topicfs.storage.segment.segment import Segment

_FIRST = Offset(0)
_SWAP = SegmentFileState.SWAP.value

_LOGGER = logging.getLogger(__name__)


_NO_OPTIONS = LoadOptions()


def load_log(
    place: SegmentDirectory, config: TopicConfig, *, clean: bool, options: LoadOptions = _NO_OPTIONS
) -> Log:
    """Load the log in a directory named after its partition; an empty directory becomes an empty log.

    `clean`: the last owner closed the log cleanly, so it is not checked. Otherwise segments from the checkpointed
    recovery point on are checked, cut after the last valid batch, and indexed again; on a read-only disk only in
    memory. Raises InvalidNameError, CorruptionError (the epoch file), OSError.
    """
    parsed = parse_partition_directory(place.path.name)
    if parsed is None:
        raise InvalidNameError(f"{place.path}: not the name of a partition's directory")
    return LogLoader(place, parsed.partition, config, options).load(clean=clean)


def _floor(logs: Iterable[Offset], offset: Offset) -> Offset | None:
    """Return the greatest base offset not above `offset`; if all are above it, the lowest. None without segments."""
    base_offsets = sorted(logs)
    return max((base for base in base_offsets if base <= offset), default=next(iter(base_offsets), None))


class LogLoader:
    def __init__(
        self, place: SegmentDirectory, partition: TopicPartition, config: TopicConfig, options: LoadOptions
    ) -> None:
        self._place = place
        self._directory, self._files, self._clock = place
        self.context = LogContext(partition, self._files, self._clock, options.flusher, options.counts)
        self._config = config
        self._options = options
        self._checkpointed = options.checkpointed
        self._opened: list[Segment] = []
        self._present: AbstractSet[str] = frozenset()
        self._may_split = False
        self._changed = False
        """True if a file may differ from what a clean close leaves."""
        self._begin()

    def _begin(self) -> None:
        """Complete interrupted work, which may remove files; then find the files that belong to the segments."""
        for segment in self._opened:
            segment.close()
        self._opened = []
        self._holes: list[Hole] = []
        self._hidden: str | None = None
        self._unindexed: set[Offset] = set()
        """Base offsets of the segments to be recovered that have no offset index."""
        self._epochs = LeaderEpochs.open(self._directory, self._files)
        self._logs = self._complete_interrupted_work()
        self._producers = LogProducers(
            self.context.partition,
            self._place,
            snapshots=base_offsets(self._present, SegmentFileKind.SNAPSHOT),
            expiration_ms=self._options.producer_expiration_ms,
        )
        self._removal = Removal(self._files)

    def load(self, *, clean: bool) -> Log:
        """Load the log. If a segment's offsets are too far apart, split the segment and begin again."""
        # Offsets of a dense log are never that far apart, and a read-only log ends where its indexes end.
        self._may_split = not self._options.dense and not self._files.read_only
        self._changed = self._changed or not clean
        self._latest_on_disk = self._epochs.latest
        while True:
            try:
                return self._load(clean=clean)
            except SegmentOverflowError as overflow:
                if not self._repair(overflow.segment):
                    parts = split_segment(overflow.segment, self._place, self._segment_settings())
                    _LOGGER.warning("%s; split into segments at %s", overflow, ", ".join(map(str, parts)))
                self._begin()
            except HeadersRepairedError:
                self._begin()

    def _load(self, *, clean: bool) -> Log:
        checkpointed = self._checkpointed
        unflushed_from = None if clean else _floor(self._logs, checkpointed.recovery_point)
        segments = self._open_segments(self._logs, unflushed_from)
        if unflushed_from is not None:
            self._options.counts.recoveries += 1
            segments = self._recover_from(segments, unflushed_from)
        chain, end_offset = self._prepare_chain(segments, checkpointed.log_start_offset)
        log_start_offset = Offset(max(checkpointed.log_start_offset, chain.base_offsets[0]))
        end_epochs(self._epochs, self._latest_on_disk, chain, end_offset)
        self._epochs.truncate_from_start(checkpointed.log_start_offset)
        high_watermark = checkpointed.high_watermark
        if high_watermark is not None:
            high_watermark = Offset(max(log_start_offset, min(high_watermark, end_offset)))
        self._rebuild_producers(chain, log_start_offset, end_offset, clean=clean)
        loaded = LoadedLog(
            chain=chain,
            end_offset=end_offset,
            start_offset=log_start_offset,
            recovery_point=end_offset if clean else min(self._checkpointed.recovery_point, end_offset),
            high_watermark=high_watermark,
            as_closed=not self._changed,
            holes=tuple(self._holes),
            hidden=self._hidden,
        )
        log = Log(self._directory, loaded, self.context, config=self._config, small_files=self.small_files)
        if (
            self._epochs.dirty and not self._files.read_only
        ):  # A broker, too, writes the file soon after a load.
            self.context.flusher.submit(log.flush_epochs)
        return log

    @property
    def small_files(self) -> SmallFiles:
        return SmallFiles(self._epochs, self._producers, self._removal)

    # Leftovers of earlier work.

    def _complete_interrupted_work(self) -> dict[Offset, str]:
        """Complete or undo interrupted work; return the names of the segments' `.log` files by base offset.

        On a read-only disk nothing is renamed, so some of the names end in `.swap`.
        """
        names = [
            entry.name for entry in self._files.list_directory(self._directory) if not entry.is_directory
        ]
        temporary = sort_temporary_files(names)
        swaps = {segment_file(*swap): segment_file(*swap[:2]) for swap in temporary.swaps}
        # In this order: as long as a `.cleaned` file is left, `.swap` files of the same work do not count.
        gone = [*temporary.remove, *self._replaced_by(list(swaps), names)]
        present = {swaps.get(name, name): name for name in names if name not in gone}
        self._follow_deleted(parse_names(temporary.remove), min(base_offsets(present), default=_FIRST))
        self._remove(gone)
        self._rename(swaps)
        self._present = present.keys()
        self._remove(indexes_without_log(list(present)))
        return {
            base_offset: present[segment_file(base_offset, SegmentFileKind.LOG)]
            if self._files.read_only
            else segment_file(base_offset, SegmentFileKind.LOG)
            for base_offset in base_offsets(present)
        }

    def _follow_deleted(self, files: Iterable[SegmentFileName], start: Offset) -> None:
        """Move the start of the leader epochs past first segments that are gone.

        Only segments that were deleted just before the last stop count, not segments that were lost.
        """
        earliest = self._epochs.earliest
        deleted = [
            file
            for file in files
            if file.state is SegmentFileState.DELETED
            and file.kind is SegmentFileKind.LOG
            and file.base_offset < start
        ]
        if deleted and earliest and min(deleted).base_offset <= earliest.start_offset < start:
            last = max(deleted, key=lambda file: file.base_offset)
            end = self._end_of(self._directory / segment_file(*last), last.base_offset)
            self._epochs.truncate_from_start(min(end, start))
            self._epochs.flush()

    def _replaced_by(self, swaps: list[str], names: list[str]) -> list[str]:
        """Return the files that new segments replace.

        These files are in the range from the lowest base offset to the highest end offset of the new segments.
        """
        logs = [file for file in parse_names(swaps) if file.kind is SegmentFileKind.LOG]
        if not logs:
            return []
        end_offset = max(self._end_of(self._directory / segment_file(*log), log.base_offset) for log in logs)
        return replaced(names, min(log.base_offset for log in logs), end_offset)

    def _end_of(self, path: Path, base_offset: Offset) -> Offset:
        end_offset = base_offset
        file = self._files.open(path, read_only=True)
        for window in windows(file, 0, file.size(), window_bytes=SCAN_WINDOW_BYTES):
            if len(window.batches):
                end_offset = window.batches[-1].end_offset
        file.close()
        return end_offset

    def _remove(self, names: list[str]) -> None:
        if self._files.read_only:
            return
        self._changed = self._changed or bool(names)
        for name in names:
            _LOGGER.info(
                "%s: removing %s, left from an interrupted deletion or compaction", self._directory, name
            )
            self._files.unlink(self._directory / name)

    def _rename(self, names: dict[str, str]) -> None:
        if self._files.read_only:
            return
        self._changed = self._changed or bool(names)
        for name, final_name in names.items():
            self._files.rename(self._directory / name, self._directory / final_name)

    # Segments.

    def _open_segments(self, logs: dict[Offset, str], unflushed_from: Offset | None) -> list[Segment]:
        """Open all segments. Below `unflushed_from`, immediately recover segments without a valid offset index."""
        segments: list[Segment] = []
        for base_offset, name in logs.items():
            segment = self._open_segment(base_offset, self._files.open(self._directory / name))
            if unflushed_from is not None and base_offset >= unflushed_from:
                index = segment_file(base_offset, SegmentFileKind.OFFSET_INDEX)
                if not self._files.exists(self._directory / index):
                    self._unindexed.add(base_offset)
                segments.append(segment)
                continue
            if name.endswith(_SWAP) or not self._has_indexes(segment):
                with index_last(segment, self._directory, self._files):
                    self._recover(segment, segments)
                    # No later start has a reason to write these snapshots again.
                    self._producers.sync()
            segments.append(segment)
        return segments

    def _open_segment(self, base_offset: Offset, log: File) -> Segment:
        segment = Segment(self._place, base_offset, self._segment_settings(), log=log)
        self._opened.append(segment)
        return segment

    def _has_indexes(self, segment: Segment) -> bool:
        """Return whether the indexes exist and have ends that fit the log. The transaction index is read completely."""
        name = segment_file(segment.base_offset, SegmentFileKind.TRANSACTION_INDEX)
        # Hardly one in a thousand segments has aborted transactions; the listing shows which of them do.
        segment.may_have_aborted = self._files.read_only or name in self._present
        try:
            if segment.may_have_aborted:
                segment.transaction_index.check()
        except CorruptionError:
            return False
        return indexes_fit(segment, self._directory, self._files)

    def _recover_from(self, segments: list[Segment], unflushed_from: Offset) -> list[Segment]:
        """Recover the segments from `unflushed_from` on; remove segments that follow lost records."""
        first = Chain.of(segments).floor(unflushed_from)
        newest_bases = [segment.base_offset for segment in segments[-2:]]
        for index in range(first, len(segments)):
            following = segments[index + 1 :]
            # A broker makes a missing index before it recovers the unflushed segments, and keeps the segments
            # after it.
            lost = [] if segments[index].base_offset in self._unindexed else following
            before_cut = partial(self._before_cut, segments[index], following, lost)
            recovered = self._recover(segments[index], segments[:index], before_cut, newest_bases)
            if recovered.cut_bytes and lost:
                return segments[: index + 1]
            if following and recovered.end_offset < following[0].base_offset:
                if not self._options.dense:
                    self._holes.append(Hole(recovered.end_offset, following[0].base_offset))
                elif (point := following[0].base_offset) > self._options.checkpointed.recovery_point:
                    self._retire(following)
                    return segments[: index + 1]
                else:  # A power loss did not make this gap: later recoveries begin after it.
                    self._checkpointed = self._checkpointed._replace(recovery_point=point)
        return segments

    def _prepare_chain(self, segments: list[Segment], log_start_offset: Offset) -> tuple[Chain, Offset]:
        """Return the chain with its active segment ready, and the log end offset (kafka-storage.md#loaded-offsets)."""
        end_offset = self._end_offset(segments[-1], segments[:-1]) if segments else log_start_offset
        if end_offset < log_start_offset:
            if self._checkpointed.reached < log_start_offset and any(segment.size for segment in segments):
                raise CorruptionError(
                    self._directory.parent / LOG_START_OFFSETS,
                    0,
                    f"{self.context.partition}: log start {log_start_offset} is beyond the log's end {end_offset}, and "
                    f"no other checkpoint has reached it; stop topicfs, then correct or remove the line",
                )
            _LOGGER.warning(
                "%s: ends at %d, before its start %d: starting over",
                self._directory,
                end_offset,
                log_start_offset,
            )
            self._retire(segments)
            self._epochs.replace(())
            segments, end_offset = [], log_start_offset
        chain = Chain.of(segments or [self._new_segment(log_start_offset)])
        chain.active.active = True
        if not self._files.read_only:
            chain.active.activate(reserve=not self._changed)
        return chain, end_offset

    def _recover(
        self,
        segment: Segment,
        before: list[Segment],
        before_cut: Callable[[Recovered], None] | None = None,
        snapshots_at: Sequence[Offset] = (),
    ) -> Recovered:
        """Recover one segment, with the producers as of its base offset; write snapshots at both of its ends.

        Snapshots after its base offset are deleted, because they may never have been flushed. Further snapshots are
        written at `snapshots_at` (default: the base offsets of the last two segments before this one). `before_cut`
        is called before anything is cut off.
        """
        self._changed = True
        rebuild_producers(
            self._producers,
            before,
            log_start_offset=self._checkpointed.log_start_offset,
            end_offset=segment.base_offset,
            snapshots_at=snapshots_at or [each.base_offset for each in before[-2:]],
        )
        recovered = recover_segment(
            segment, self._epochs, self._producers, may_split=self._may_split, before_cut=before_cut
        )
        cut_bytes = recovered.cut_bytes
        self._options.counts.recovery_bytes_cut += cut_bytes
        if cut_bytes:
            fault = f"{segment.log.path}: position {segment.size}: {recovered.cause}"
            if self._files.read_only:
                self._hidden = self._hidden or f"{fault}; nothing from there on is shown"
            else:
                _LOGGER.warning(
                    "%s; cut %d bytes, and the log ends at offset %d", fault, cut_bytes, recovered.end_offset
                )
        if cut_bytes and not self._files.read_only:
            # Otherwise the bytes cut off could come back after another crash, among records written after the
            # cut.
            segment.log.sync()
        if self._options.failed_before and not self._files.read_only:
            for position in range(0, segment.log.size(), FILE_WINDOW_BYTES):
                written = segment.log.pread(FILE_WINDOW_BYTES, Position(position))
                segment.log.pwrite(written, Position(position))
        self._producers.take(recovered.end_offset)
        return recovered

    def _before_cut(
        self, segment: Segment, following: list[Segment], lost: list[Segment], recovered: Recovered
    ) -> None:
        """Check a segment before its end is cut off. Repair it if possible; otherwise remove the segments in `lost`.

        The segments in `lost` follow the records that are cut off.
        """
        beyond = bool(following) and recovered.end_offset > following[0].base_offset
        if (recovered.cut_bytes or recovered.overlaps or beyond) and self._repair(segment):
            raise HeadersRepairedError
        flushed = self._checkpointed.recovery_point
        if not following and recovered.end_offset < flushed > self._end_of(
            segment.log.path, segment.base_offset
        ):
            # It is not known what was flushed, so recover from the first segment on.
            self._checkpointed = self._checkpointed._replace(recovery_point=_FIRST)
            raise HeadersRepairedError
        if recovered.cut_bytes:
            # Before the cut, because a start that follows a crash would find the cut segment valid.
            self._retire(lost)

    def _repair(self, segment: Segment) -> bool:
        """Correct flipped bits that no checksum covers; return whether any was corrected."""
        if self._files.read_only:
            return False
        next_base = min((base for base in self._logs if base > segment.base_offset), default=None)
        repaired = repair_headers(segment.log, segment.base_offset, next_base)
        for each in repaired:
            _LOGGER.warning("%s: %s", segment.log.path, each)
        return bool(repaired)

    def _rebuild_producers(
        self, chain: Chain, log_start_offset: Offset, end_offset: Offset, *, clean: bool
    ) -> None:
        """Rebuild the producers (kafka-storage.md#loaded-producers).

        Save snapshots at the log end, and at the base offsets of the last two segments.
        """
        producers = self._producers
        producers.keep_only(chain.base_offsets)
        at = [*chain.base_offsets[-2:], end_offset]
        if clean and not producers.snapshots:
            # A log that a broker closed cleanly and that has no snapshot never had a producer.
            producers.forget_all()
            for offset in at:
                producers.state.end_offset = offset
                producers.take(offset)
            return
        rebuild_producers(
            producers,
            chain.segments,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            snapshots_at=at,
        )

    def _end_offset(self, segment: Segment, before: list[Segment]) -> Offset:
        end_offset, position = read_end(segment)
        times = segment.time_index
        if position == segment.size and (not times.entries or times.last.offset < end_offset):
            return end_offset
        # The clean-shutdown marker was wrong. Recover the segment: otherwise appends would follow a torn
        # batch, or times of records that never existed would be used.
        before_cut = partial(self._before_cut, segment, [], [])
        return self._recover(segment, before, before_cut).end_offset

    def _new_segment(self, base_offset: Offset) -> Segment:
        if self._files.read_only:
            path = self._directory / segment_file(base_offset, SegmentFileKind.LOG)
            return self._open_segment(base_offset, MemoryFile(path))
        self._changed = True
        return Segment.create(self._place, base_offset, self._segment_settings())

    def _segment_settings(self) -> SegmentSettings:
        return segment_settings(self._config)

    def _retire(self, segments: list[Segment]) -> None:
        due = Timestamp(self._clock() + self._config.file_delete_delay_ms)
        self._changed = self._changed or bool(segments)
        for segment in segments:
            if not self._files.read_only:
                self._removal.retire(segment, self._directory, due)
            segment.close()
        if segments and not self._files.read_only:
            # Otherwise the segments could come back after another crash, after records written in the
            # meantime.
            self._files.sync_directory(self._directory)
