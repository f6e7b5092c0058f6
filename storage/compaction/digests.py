"""MD5 of keys, eight in parallel, for the offset map (kafka-storage.md#offset-map). Compiled; also runs uncompiled."""

from __future__ import annotations

import struct
from array import array
from functools import partial
from hashlib import md5

import cython

from topicfs.storage.codec.columns import Columns

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
    from cython.cimports.topicfs.storage.compaction.md5_lanes import has_md5_lanes, md5_halves
else:
    from topicfs.storage.codec.binary import fields, memory

_MD5 = partial(md5, usedforsecurity=False)
_HALVES = struct.Struct("<qq")
_HALF_MASK = 2**63 - 1
_SIDE_BY_SIDE = cython.declare(cython.bint, has_md5_lanes() if cython.compiled else 0)


def digest_of(key: bytes) -> memoryview[int]:
    """Return two int64: both halves of the MD5, with their highest bits cleared so that both are nonnegative."""
    return memoryview(array("q", [half & _HALF_MASK for half in _HALVES.unpack(_MD5(key).digest())]))


def digests_of_keys(columns: Columns, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> memoryview[int]:
    """Return the digests of the keys of records [first, last), two int64 per key; a null key counts as empty."""
    view: memoryview = columns.block
    block: cython.p_longlong = memory.int64s_of(view)
    stride: cython.Py_ssize_t = len(columns)
    data: memoryview = columns.data
    digests: memoryview = memory.new_int64s(2 * (last - first))
    if cython.compiled and _SIDE_BY_SIDE:
        positions: cython.p_longlong = block + fields.KEY_POSITIONS * stride + first
        md5_halves(
            memory.octets_of(data), positions, positions + stride, last - first, memory.int64s_of(digests)
        )
        return digests
    index: cython.Py_ssize_t
    for index in range(first, last):
        at: cython.Py_ssize_t = block[fields.KEY_POSITIONS * stride + index]
        length: cython.Py_ssize_t = block[fields.KEY_LENGTHS * stride + index]
        key: bytes = bytes(data[at : at + length]) if length > 0 else b""
        digests[2 * (index - first) : 2 * (index - first) + 2] = digest_of(key)
    return digests
