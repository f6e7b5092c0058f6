"""The whole cache: its directory, which one process owns at a time, and its size limit."""

from __future__ import annotations

import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Container
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

from topicfs.cluster.cache.cache_file import CacheFile, sync
from topicfs.cluster.cache.partition_cache import RUN_BYTES, PartitionCache
from topicfs.cluster.errors import CacheError
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.errors import DirectoryLockedError
from topicfs.storage.messages import WarningBook, reason_of

MARK = "topicfs.cache"
"""The file that marks a directory as a cache."""
CLEAN = "topicfs.clean"
"""The file that a process creates when it closes the cache cleanly, and that the next process removes at the start."""
_OWN = frozenset((MARK, CLEAN, ".lock", "lost+found"))
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RUNS = 8
"""Minimum number of full cache files that fit into the cache. With fewer files, one new file could displace all
others.
"""


class Cache:
    """The cache of one process. Safe from any thread. Errors are only reported, and reads then ask the cluster."""

    def __init__(self, directory: Path, max_bytes: int, warnings: WarningBook) -> None:
        """Take over or create a cache directory. Raises CacheError, OSError."""
        self._directory, self._max_bytes, self._warnings = directory, max_bytes, warnings
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(directory)
        try:
            self._owned = DirectoryLock(directory)
        except DirectoryLockedError as error:
            raise CacheError(
                f"{directory}: {error.holder} has its cache here; name another directory with --cache"
            ) from None
        (directory / MARK).touch()
        self._believes_transactions = (directory / CLEAN).exists()
        if self._believes_transactions:
            # Sync the removal: a power loss must not restore the mark next to newer data.
            (directory / CLEAN).unlink()
            sync(directory)
        self._lock = threading.Lock()
        self._partitions: dict[Path, PartitionCache] = {}
        self._unread: OrderedDict[Path, int] = OrderedDict()
        """The sizes of partition directories that have not been opened yet, the oldest first."""
        self._cache_files: OrderedDict[CacheFile, tuple[PartitionCache, int]] = OrderedDict()
        """The cache files, each with its partition's cache and its size, the least recently used first."""
        self.bytes = 0
        """Total size of the files in bytes."""
        self.working = True
        """False after the disk was full or has failed. From then on nothing is cached."""

    def find(self, cluster_id: str, topic_ids: Container[str]) -> None:
        """Find existing cache files, and remove those of topics that were deleted in the cluster."""
        directory = self._directory_of(cluster_id)
        found = {path: _files(path) for path in self._directory.glob("*/*-*") if path.is_dir()}
        for path, (_, size) in sorted(found.items(), key=lambda each: each[1]):
            if path.parent != directory or path.name.rpartition("-")[0] in topic_ids:
                with self._lock:
                    self._unread[path] = size
                    self.bytes += size
            else:
                shutil.rmtree(path, ignore_errors=True)
        self.make_room()

    def partition(self, cluster_id: str, topic_id: str, number: int) -> PartitionCache:
        path = self._directory_of(cluster_id) / f"{topic_id}-{number}"
        with self._lock:
            found = self._partitions.get(path)
            if found is None:
                self.bytes -= self._unread.pop(path, 0)
        if found is None:
            made = PartitionCache(
                path,
                self,
                believes_transactions=self._believes_transactions,
                run_bytes=min(RUN_BYTES, self._max_bytes // _RUNS),
            )
            with self._lock:
                found = self._partitions.setdefault(path, made)
        return found

    def fail(self, error: OSError) -> None:
        """Stop caching because the disk is full or has failed."""
        if self.working:
            self.working = False
            self._warnings.add(f"{self._directory}: {reason_of(error)}; nothing more is cached")

    def make_room(self) -> None:
        """Remove the least recently used files until the cache is within its size limit."""
        while True:
            with self._lock:
                if self.bytes <= self._max_bytes:
                    return
                unread = next(iter(self._unread), None)
                used = next(iter(self._cache_files.items()), None)
                if unread is not None:
                    self.bytes -= self._unread.pop(unread)
            if unread is not None:
                shutil.rmtree(unread, ignore_errors=True)
            elif used is not None:
                cache_file, (owner, _) = used
                owner.forget(cache_file)
            else:
                return

    def used(self, cache_file: CacheFile, cache: PartitionCache) -> None:
        """Record that a cache file was read, or has grown."""
        with self._lock:
            self.bytes += cache_file.size - self._cache_files.pop(cache_file, (cache, 0))[1]
            self._cache_files[cache_file] = cache, cache_file.size

    def removed(self, cache_file: CacheFile) -> None:
        with self._lock:
            if cache_file in self._cache_files:
                self.bytes -= self._cache_files.pop(cache_file)[1]

    def damaged(self, what: str) -> None:
        """Warn about a damaged file. The caller removes the file."""
        self._warnings.add(f"{what}; it is removed from the cache, and fetched again")

    def close(self) -> None:
        """Close the files and release the directory. Idempotent."""
        self.working = False
        with self._lock:
            partitions, self._partitions = list(self._partitions.values()), {}
        with suppress(OSError), ExitStack() as closing:
            for one in partitions:
                closing.callback(one.close)
            closing.close()
            # If nobody has read some files of a crashed process yet, do not leave the mark: the next process
            # must not trust these files either.
            if self._owned.held and (self._believes_transactions or not self._unread):
                (self._directory / CLEAN).touch()
        self._owned.release()

    def _directory_of(self, cluster_id: str) -> Path:
        """Return a cluster's directory. Unusual ids are hashed, because an id from a broker could be a path."""
        if cluster_id and not _PLAIN_ID.fullmatch(cluster_id):
            cluster_id = f"sha256-{sha256(cluster_id.encode()).hexdigest()}"
        return self._directory / (cluster_id or "unnamed")


def _check(directory: Path) -> None:
    """Raise CacheError unless the directory is a cache or empty."""
    names = {path.name for path in directory.iterdir()}
    if MARK not in names and names - _OWN:
        raise CacheError(
            f"{directory}: not a cache: contains {min(names - _OWN)}; name an empty directory with --cache"
        )


def _files(directory: Path) -> tuple[float, int]:
    """Return the time of the last write to a directory's files, and their total size."""
    found = []
    with suppress(OSError):
        found = [path.stat() for path in directory.iterdir()]
    return max((one.st_mtime for one in found), default=0.0), sum(one.st_size for one in found)
