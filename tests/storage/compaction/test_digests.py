"""Tests that the MD5 computed from columns of keys equals the library's, whatever keys are adjacent."""

from __future__ import annotations

from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import columns_of_keys
from topicfs.storage.compaction.digests import digest_of, digests_of_keys

BLOCK_ENDS = [0, 1, 54, 55, 56, 57, 63, 64, 65, 118, 119, 120, 127, 128, 129]
"""Key sizes around MD5's blocks of 64 bytes. The last 9 or more bytes of a block are the end mark and the length."""


def expected(key):
    digest = md5(key, usedforsecurity=False).digest()
    return [int.from_bytes(half, "little") % 2**63 for half in (digest[:8], digest[8:])]


def by_columns(keys, first, last):
    """Return the digests of the records that have a key. The dictionary's keys are the records' indexes."""
    found = digests_of_keys(columns_of_keys(keys), first, last).tolist()
    assert len(found) == 2 * (last - first)
    return {
        index: found[2 * (index - first) : 2 * (index - first) + 2]
        for index in range(first, last)
        if keys[index] is not None
    }


@pytest.mark.parametrize("size", BLOCK_ENDS)
def test_a_digest_is_both_halves_of_md5(size):
    """A digest is the two halves of the MD5 without their highest bits, so that each half fits int64.

    A key that fills its last block, or needs another block for its length, has the right digest as well.
    """
    wanted = expected(b"k" * size)
    assert digest_of(b"k" * size).tolist() == wanted
    assert by_columns([b"k" * size], 0, 1) == {0: wanted}


@given(
    st.lists(st.one_of(st.none(), st.sampled_from(BLOCK_ENDS).map(b"k".__mul__), st.binary()), max_size=30),
    st.data(),
)
def test_a_digest_depends_on_no_other_key(keys, data):
    """The digest of a key depends neither on adjacent keys nor on the requested range."""
    first = data.draw(st.integers(0, len(keys)))
    last = data.draw(st.integers(first, len(keys)))
    asked = {index: expected(keys[index]) for index in range(first, last) if keys[index] is not None}
    assert by_columns(keys, first, last) == asked
