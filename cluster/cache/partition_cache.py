"""The cache of one partition: cache files in ascending order of their batches. The files never overlap."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from topicfs.cluster.brokers.bounds import PartitionBounds
from topicfs.cluster.cache.cache_file import LOG_SUFFIX, CacheFile, DamagedError, FetchedBatches, part_below
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.codec.batch import find_offset, scan
from topicfs.storage.codec.binary.fields import CURRENT_MAGIC
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Isolation, Offset

if TYPE_CHECKING:
    from topicfs.cluster.cache.cache import Cache

RUN_BYTES = 32 << 20
"""Size at which a new file is started. To free space, whole files are removed, the least recently used first."""
HURRY_SECONDS = 0.005


class PartitionCache:
    """The cache of one partition. Safe from any thread. Only `put` raises errors of the disk, as OSError."""

    def __init__(
        self, directory: Path, keeper: Cache, *, believes_transactions: bool, run_bytes: int = RUN_BYTES
    ) -> None:
        """Load the files. `believes_transactions` is True if the last process closed the cache cleanly.

        If it is False, files with transactions are removed, because their lists of aborted transactions may be
        incomplete.
        """
        self._directory, self._keeper, self._cache_file_bytes = directory, keeper, run_bytes
        self._lock = threading.RLock()
        self._cache_files: list[CacheFile] = []
        self._closed = False
        self._checked_epoch = -1
        """The leader epoch whose leader has confirmed the cached records."""
        for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
            with suppress(OSError):
                self._load(path, believes_transactions=believes_transactions)

    def _load(self, path: Path, *, believes_transactions: bool) -> None:
        try:
            cache_file = CacheFile.load(path)
        except (DamagedError, StorageError, ValueError) as error:
            self._keeper.damaged(str(error))
            path.unlink()
            return
        before = self._cache_files[-1].next_offset if self._cache_files else Offset(0)
        # After a crash, the file's list may lack aborted transactions. Readers would then see these
        # transactions as committed.
        if (
            not cache_file.size
            or cache_file.base_offset < before
            or (cache_file.transactional and not believes_transactions)
        ):
            cache_file.close()
            cache_file.remove()
            return
        self._cache_files.append(cache_file)
        self._keeper.used(cache_file, self)

    def window(
        self, offset: Offset, max_bytes: int, isolation: Isolation, known: PartitionBounds
    ) -> FetchedBatches | None:
        """Return batches from the one that contains `offset`; None if not cached, or if the leader's log may differ."""
        # Do not wait long for another thread that writes to a slow disk.
        if not self._lock.acquire(timeout=HURRY_SECONDS):
            return None
        try:
            cache_file = self._cache_file_at(offset) if self._checked_epoch == known.leader_epoch else None
            if cache_file is None:
                return None
            try:
                found = cache_file.window(offset, max_bytes, isolation, known.leader_epoch)
            except (OSError, DamagedError) as error:
                self._keeper.damaged(str(error))
                self._drop(cache_file)
                return None
            self._keeper.used(cache_file, self)
        finally:
            self._lock.release()
        ends_before = find_offset(found.data, offset, len(found.data)) >= len(found.data)
        return None if offset >= found.next_offset or ends_before else found

    def put(self, window: FetchedBatches, known: PartitionBounds) -> None:
        """Cache the batches of `window` that are the same for all readers at its isolation level. Raises OSError."""
        data = _keepable(window, known)
        if not data:
            return
        with self._lock:
            if self._closed:
                return
            while self._cache_files and self._cache_files[0].next_offset <= known.log_start_offset:
                self._drop(self._cache_files[0])
            if self._checked_epoch != window.leader_epoch:
                if self._cache_files:
                    return  # Cached files must first be compared with the leader, by `check`.
                self._checked_epoch = window.leader_epoch
            cache_file = self._cache_file_at(window.offset)
            start = window.offset
            if cache_file is not None:
                start = cache_file.next_offset
                data = data[find_offset(data, start, len(data)) :]
            self._append(data, start, min(window.next_offset, Offset(known.last_stable_offset)), window)

    def _append(self, data: memoryview, start: Offset, end: Offset, window: FetchedBatches) -> None:
        following = self._cache_files[bisect_right(self._bases(), start) :]
        if following and following[0].base_offset < end:
            data, end = part_below(data, following[0].base_offset), following[0].base_offset
        if not data or end <= start:
            return
        cache_file = next(
            (
                one
                for one in self._cache_files
                if one.next_offset == start and one.size < self._cache_file_bytes
            ),
            None,
        )
        if cache_file is None:
            base = min(start, scan(data, max_batches=1)[0].base_offset)
            if self._cache_file_at(base) is not None:
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            cache_file = CacheFile(self._directory / f"{base:020}{LOG_SUFFIX}", base)
            self._cache_files.insert(bisect_right(self._bases(), base), cache_file)
        try:
            cache_file.append(data, end, window.aborted)
        except BaseException:
            self._drop(cache_file)
            raise
        self._keeper.used(cache_file, self)

    def end_from(self, offset: Offset, known: PartitionBounds) -> Offset:
        """Return the exclusive end of the records cached from `offset` without a gap; `offset` if there are none."""
        with self._lock:
            if self._checked_epoch != known.leader_epoch:
                return offset
            while (cache_file := self._cache_file_at(offset)) is not None:
                offset = cache_file.next_offset
            return offset

    @property
    def empty(self) -> bool:
        return not self._cache_files

    def needs_check(self, known: PartitionBounds) -> bool:
        """Return whether the present leader has not confirmed the cached records yet."""
        return bool(self._cache_files) and self._checked_epoch != known.leader_epoch

    def check(self, ask: Callable[[int], EpochEnd | None], leader_epoch: int) -> None:
        """Remove the cache files that the leader's log contradicts (blocking).

        `ask` takes a leader epoch, and returns the offset at which that epoch ends in the leader's log.
        """
        while True:
            with self._lock:
                newest = self._cache_files[-1] if self._cache_files else None
            if newest is None:
                break
            found = ask(newest.leader_epoch) if newest.leader_epoch >= 0 else None
            if (
                found is not None
                and found.epoch == newest.leader_epoch
                and newest.next_offset <= found.end_offset
            ):
                break
            with self._lock:
                self._drop(newest)
        with self._lock:
            self._checked_epoch = leader_epoch

    def forget(self, cache_file: CacheFile) -> None:
        """Remove a cache file to make room."""
        with self._lock:
            self._drop(cache_file)

    def remove(self) -> None:
        """Remove all cache files, because the topic was deleted or must not be cached."""
        with self._lock:
            for cache_file in list(self._cache_files):
                self._drop(cache_file)
            with suppress(OSError):
                self._directory.rmdir()

    def close(self) -> None:
        """Close the files after syncing the lists of aborted transactions. Raises OSError."""
        with self._lock:
            self._closed = True
            cache_files, self._cache_files = self._cache_files, []
        with ExitStack() as closing:
            for cache_file in cache_files:
                closing.callback(cache_file.close)
            for cache_file in cache_files:
                cache_file.flush()

    def _cache_file_at(self, offset: Offset) -> CacheFile | None:
        index = bisect_right(self._bases(), offset) - 1
        cache_file = self._cache_files[index] if index >= 0 else None
        return cache_file if cache_file is not None and offset < cache_file.next_offset else None

    def _bases(self) -> list[Offset]:
        return [cache_file.base_offset for cache_file in self._cache_files]

    def _drop(self, cache_file: CacheFile) -> None:
        if cache_file in self._cache_files:
            self._cache_files.remove(cache_file)
            cache_file.close()
            cache_file.remove()
            self._keeper.removed(cache_file)


def _keepable(window: FetchedBatches, known: PartitionBounds) -> memoryview:
    """Return the batches of `window` to cache: the batches below the last stable offset.

    Returns nothing if a batch belongs to a transaction, and the leader was not asked which transactions were aborted.
    """
    data = part_below(window.data, known.last_stable_offset)
    batches = scan(data)
    plain = not any(one.is_transactional or one.is_control for one in batches)
    if window.isolation is Isolation.READ_UNCOMMITTED and not plain:
        return data[:0]
    if batches.problem is not None or any(one.magic != CURRENT_MAGIC for one in batches):
        return data[:0]
    return data
