"""The cache as a whole: its directory, which one process has at a time, and its bound."""

from __future__ import annotations

import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Container
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path

from topicfs.cluster.cache.partition_cache import RUN_BYTES, PartitionCache
from topicfs.cluster.cache.run import CachedRun, sync
from topicfs.cluster.errors import CacheError
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.errors import DirectoryLockedError
from topicfs.storage.messages import WarningBook, reason_of

MARK = "topicfs.cache"
"""The file that tells a cache from any other directory."""
CLEAN = "topicfs.clean"
"""Made at the end of a process that closed the cache in order, removed at the beginning of the next."""
_OWN = frozenset((MARK, CLEAN, ".lock", "lost+found"))
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RUNS = 8
"""Least number of files that have room: with fewer, a new one would take the place of all the others."""


class Cache:
    """The cache of one process. Safe from any thread. Its errors fail no read: they are reported, and the cluster is asked."""

    def __init__(self, directory: Path, max_bytes: int, warnings: WarningBook) -> None:
        """Take over a directory, or make it. Raises CacheError, OSError."""
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
            # On disk, too: a power loss must not bring it back beside what is written from now on.
            (directory / CLEAN).unlink()
            sync(directory)
        self._lock = threading.Lock()
        self._partitions: dict[Path, PartitionCache] = {}
        self._unread: OrderedDict[Path, int] = OrderedDict()
        """Directories of partitions that nobody has asked for yet, with their bytes, the oldest first."""
        self._runs: OrderedDict[CachedRun, tuple[PartitionCache, int]] = OrderedDict()
        """Runs with the partition and the bytes of each, the least recently used first."""
        self._bytes = 0
        self._working = True

    @property
    def bytes(self) -> int:
        """Size of the files in bytes."""
        return self._bytes

    @property
    def working(self) -> bool:
        """False once its disk is full, or has failed: nothing more is kept."""
        return self._working

    def find(self, cluster_id: str, topic_ids: Container[str]) -> None:
        """Find the files that are there; those of a cluster's deleted topics are removed."""
        directory = self._directory_of(cluster_id)
        found = {path: _files(path) for path in self._directory.glob("*/*-*") if path.is_dir()}
        for path, (_, size) in sorted(found.items(), key=lambda each: each[1]):
            if path.parent != directory or path.name.rpartition("-")[0] in topic_ids:
                with self._lock:
                    self._unread[path] = size
                    self._bytes += size
            else:
                shutil.rmtree(path, ignore_errors=True)
        self.make_room()

    def partition(self, cluster_id: str, topic_id: str, number: int) -> PartitionCache:
        """Return the cache of a partition."""
        path = self._directory_of(cluster_id) / f"{topic_id}-{number}"
        with self._lock:
            found = self._partitions.get(path)
            if found is None:
                self._bytes -= self._unread.pop(path, 0)
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
        """Keep nothing more: the disk is full, or has failed."""
        if self._working:
            self._working = False
            self._warnings.add(f"{self._directory}: {reason_of(error)}; nothing more is kept in the cache")

    def make_room(self) -> None:
        """Remove the least recently used files, until the rest is within the bound."""
        while True:
            with self._lock:
                if self._bytes <= self._max_bytes:
                    return
                unread = next(iter(self._unread), None)
                used = next(iter(self._runs.items()), None)
                if unread is not None:
                    self._bytes -= self._unread.pop(unread)
            if unread is not None:
                shutil.rmtree(unread, ignore_errors=True)
            elif used is not None:
                run, (owner, _) = used
                owner.forget(run)
            else:
                return

    def used(self, run: CachedRun, cache: PartitionCache) -> None:
        """Count a run of a partition's cache that was read, or grew."""
        with self._lock:
            self._bytes += run.size - self._runs.pop(run, (cache, 0))[1]
            self._runs[run] = cache, run.size

    def removed(self, run: CachedRun) -> None:
        with self._lock:
            if run in self._runs:
                self._bytes -= self._runs.pop(run)[1]

    def damaged(self, what: str) -> None:
        """Warn of a damaged file, which is removed."""
        self._warnings.add(f"{what}; it is removed from the cache, and fetched again")

    def close(self) -> None:
        """Close the files, and give up the directory. Idempotent."""
        self._working = False
        with self._lock:
            partitions, self._partitions = list(self._partitions.values()), {}
        with suppress(OSError), ExitStack() as closing:
            for one in partitions:
                closing.callback(one.close)
            closing.close()
            # What was not believed, and nobody has read since, is not to be believed the next time either.
            if self._owned.held and (self._believes_transactions or not self._unread):
                (self._directory / CLEAN).touch()
        self._owned.release()

    def _directory_of(self, cluster_id: str) -> Path:
        """Return a cluster's directory. The id comes from a broker and may be a path: only a plain name is used as it is."""
        if cluster_id and not _PLAIN_ID.fullmatch(cluster_id):
            cluster_id = f"sha256-{sha256(cluster_id.encode()).hexdigest()}"
        return self._directory / (cluster_id or "unnamed")


def _check(directory: Path) -> None:
    """Raise CacheError unless a directory is a cache, or empty."""
    names = {path.name for path in directory.iterdir()}
    if MARK not in names and names - _OWN:
        raise CacheError(
            f"{directory}: holds {min(names - _OWN)}, and is no cache; name an empty directory with --cache"
        )


def _files(directory: Path) -> tuple[float, int]:
    """Return the time of the last write to a directory's files, and their bytes."""
    found = []
    with suppress(OSError):
        found = [path.stat() for path in directory.iterdir()]
    return max((one.st_mtime for one in found), default=0.0), sum(one.st_size for one in found)
