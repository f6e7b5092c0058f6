"""Tests of the transaction index (TransactionIndexTest)."""

from __future__ import annotations

import pytest

from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes.transaction_index import AbortedSpan, TransactionIndex, decode, encode

ROWS = [(1, 0, 10, 11), (2, 5, 15, 13), (3, 18, 35, 25), (4, 32, 50, 40)]
SPANS = [AbortedSpan(*row) for row in ROWS]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "00000000000000000000.txnindex"


@pytest.fixture
def index(path):
    found = TransactionIndex(NativeFileSystem(), path, 0)
    yield found
    found.close()


def test_a_slot_has_kafkas_bytes():
    """Row 31: an entry has version, producer ID, first, last and last stable offset in 34 bytes."""
    span = AbortedSpan(98, 15, 20, 25)
    assert encode(span).hex() == "0000" + "".join(f"{n:016x}" for n in span)
    assert decode(encode(span), "f") == [span]


def test_there_is_no_file_without_an_entry(index, path):
    """The file of the index is created when the first abort is indexed."""
    assert not path.exists()
    index.append(SPANS[0])
    assert 34 == path.stat().st_size


def test_last_offsets_must_ascend(index):
    """Row 30: a last offset not above the previous one is refused."""
    index.append(AbortedSpan(0, 0, 10, 2))
    with pytest.raises(ValueError, match="not above 10"):
        index.append(AbortedSpan(1, 5, 10, 15))


def test_truncation_drops_what_ends_at_or_after_the_offset(index, path):
    """Row 30: truncating to 50 drops the entry that ends at 50. A reset drops every entry."""
    for span in SPANS:
        index.append(span)
    index.truncate_to(51)
    assert SPANS == list(index)
    index.truncate_to(50)
    assert list(TransactionIndex(NativeFileSystem(), path, 0)) == SPANS[:3]
    index.append(AbortedSpan(5, 40, 60, 61))
    index.reset()
    assert ([], False) == (list(index), path.exists())


def test_an_entry_below_the_segment_is_corruption(path):
    """Row 28: an entry whose last offset is below the base offset raises CorruptionError."""
    path.write_bytes(encode(SPANS[0]))
    with pytest.raises(CorruptionError, match="below the base offset 100"):
        TransactionIndex(NativeFileSystem(), path, 100).check()


@pytest.mark.parametrize(
    ("data", "cause"), [(b"\0" * 35, "trailing bytes; an entry has"), (b"\0\1" + b"\0" * 32, "version 1")]
)
def test_bytes_that_are_no_entries_are_corruption(path, data, cause):
    """CorruptionError is raised for a part of an entry at the end, and for an unknown version."""
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=cause):
        TransactionIndex(NativeFileSystem(), path, 0)
