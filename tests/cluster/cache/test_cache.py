"""Tests that the cache of a cluster's records uses files of an earlier process only after a clean close."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topicfs.cluster.brokers.bounds import PartitionBounds
from topicfs.cluster.cache.cache import CLEAN, Cache
from topicfs.cluster.cache.cache_file import FetchedBatches
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import AbortedTransaction, Isolation, Offset, ProducerId, Record, Timestamp

KNOWN = PartitionBounds(Offset(0), Offset(2), Offset(2), 0)
ABORTED = AbortedTransaction(ProducerId(7), Offset(0))


def opened(directory: Path) -> Cache:
    cache = Cache(directory, 1 << 20, WarningBook(lambda: Timestamp(0)))
    cache.find("cluster", {"topic"})
    return cache


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A cleanly closed cache with the records of an aborted transaction."""
    records = [Record(Offset(number), Timestamp(1), None, b"aborted") for number in range(2)]
    stamp = BatchStamp(transactional=True, producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    data = memoryview(bytes(encode(records, stamp)))
    cache = opened(tmp_path)
    window = FetchedBatches(Offset(0), Offset(2), data, (ABORTED,), Isolation.READ_COMMITTED, 0)
    cache.partition("cluster", "topic", 0).put(window, KNOWN)
    cache.close()
    return tmp_path


def test_files_are_trusted_after_a_clean_close(kept: Path) -> None:
    """After a clean close, the next process uses the cached transactions and the list of aborted transactions."""
    cache = opened(kept)
    assert not cache.partition("cluster", "topic", 0).empty
    cache.close()


def test_files_of_a_crash_are_never_trusted(kept: Path) -> None:
    """The files of a crashed process are never used, even after a later process has closed the cache cleanly.

    The files may lack aborted transactions.
    """
    (kept / CLEAN).unlink()
    opened(kept).close()
    cache = opened(kept)
    assert cache.partition("cluster", "topic", 0).empty
    cache.close()
    assert (kept / CLEAN).exists()


def test_trusted_files_are_synced_before_the_clean_mark(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing syncs the list of aborted transactions before it writes the clean mark.

    Opening first deletes the clean mark on disk.
    """
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, (kept / CLEAN).exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    cache = opened(kept)
    assert [(kept.name, False)] == synced
    assert not cache.partition("cluster", "topic", 0).empty
    cache.close()
    assert [(f"{0:020}.aborted", False), ("topic-0", False)] == synced[1:]
    assert (kept / CLEAN).exists()


@pytest.mark.parametrize(
    "cluster_id", ["../outside", "/", "..", ".", "a/b", "x" * 300, "a\0b", "lost+found", CLEAN]
)
def test_no_cluster_id_escapes_the_cache_directory(tmp_path: Path, cluster_id: str) -> None:
    """Whatever text a broker sends as cluster id, the cache stores records two levels below its own directory."""
    directory = tmp_path / "a" / "cache"
    if cluster_id == "/":
        cluster_id = str(tmp_path / "outside")
    window = FetchedBatches(
        Offset(0),
        Offset(2),
        memoryview(bytes(encode([Record(Offset(n), Timestamp(1), None, b"v") for n in range(2)]))),
        (),
        Isolation.READ_COMMITTED,
        0,
    )
    for found in (False, True):
        cache = Cache(directory, 1 << 20, WarningBook(lambda: Timestamp(0)))
        cache.find(cluster_id, {"topic"})
        assert found is not cache.partition(cluster_id, "topic", 0).empty
        cache.partition(cluster_id, "topic", 0).put(window, KNOWN)
        cache.close()
    [kept] = {path.parent for path in tmp_path.rglob("*") if path.name.startswith("0000")}
    assert (directory, "topic-0") == (kept.parents[1], kept.name)
