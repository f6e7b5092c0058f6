"""Counts of the kernel's requests: how many of each kind, how long they took, and their errors.

Each kind has one row: its buckets, followed by the sum of all durations.

    0 durations below 1 ns │ 1 below 2 ns │ 2 below 4 ns │ … │ 40 all longer │ 41 sum in nanoseconds       each 8 bytes

So a request costs one clock reading and two additions. Compiled by Cython; runs uncompiled with the same results.
Written by the event loop's thread; any thread may read the counts.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

import cython

if cython.compiled:
    from cython.cimports.topicfs.fusefs.requests import device
    from cython.cimports.topicfs.fusefs.requests.clock import monotonic_ns
    from cython.cimports.topicfs.storage.codec.binary import memory
else:
    from topicfs.fusefs.requests import device
    from topicfs.storage.codec.binary import memory

BUCKETS = 41
"""Number of buckets. Bucket N counts durations below 2^N ns that are in no earlier bucket; the last bucket counts all
longer ones.
"""
ROW = 8 * (BUCKETS + 1)
"""Size of a row in bytes."""

KINDS = {
    1: "lookup",
    2: "forget",
    3: "getattr",
    4: "setattr",
    5: "readlink",
    6: "symlink",
    8: "mknod",
    9: "mkdir",
    10: "unlink",
    11: "rmdir",
    12: "rename",
    13: "link",
    14: "open",
    15: "read",
    16: "write",
    17: "statfs",
    18: "release",
    20: "fsync",
    21: "setxattr",
    22: "getxattr",
    23: "listxattr",
    24: "removexattr",
    25: "flush",
    27: "opendir",
    28: "readdir",
    29: "releasedir",
    30: "fsyncdir",
    35: "create",
    40: "poll",
    42: "batch_forget",
    63: "follow",
}
"""Names of the kinds by the kernel's numbers (<linux/fuse.h>); `follow` is a read that waits for more records."""
NUMBERS = {name: number for number, name in KINDS.items()}
FOLLOW = NUMBERS["follow"]

_LAST = cython.declare(cython.int, 40)
_ROW = cython.declare(cython.Py_ssize_t, 336)
_MAX_KINDS = cython.declare(cython.uint, 64)


class RequestDurations(NamedTuple):
    """The durations of the requests of one kind."""

    buckets: tuple[int, ...]
    total_ns: int


@cython.final
@cython.cclass
class RequestCounts:
    """Counts requests, their durations and their errors, by kind."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.bytes_written = 0
        self._table = bytearray(_ROW * _MAX_KINDS)
        self._errors: dict[tuple[int, int], int] = {}

    @cython.ccall
    def note(self, kind: cython.uint, nanoseconds: cython.longlong) -> object:
        """Count one request of a kind (by the kind's number), and its duration."""
        octets: cython.p_uchar = memory.writable(self._table)
        row: cython.Py_ssize_t = _ROW * (kind % _MAX_KINDS)
        bucket: cython.int = 0
        rest: cython.longlong = nanoseconds
        while rest > 0 and bucket < _LAST:
            rest >>= 1
            bucket += 1
        device.put_number(octets, row + 8 * bucket, 8, device.number_at(octets, row + 8 * bucket, 8) + 1)
        at: cython.Py_ssize_t = row + 8 * (_LAST + 1)
        if nanoseconds > 0:
            device.put_number(octets, at, 8, device.number_at(octets, at, 8) + nanoseconds)
        return None

    def note_error(self, kind: int, number: int) -> None:
        key = (kind, number)
        self._errors[key] = self._errors.get(key, 0) + 1

    def durations(self) -> Mapping[str, RequestDurations]:
        found = {}
        for number, name in KINDS.items():
            *buckets, total_ns = struct.unpack_from(f"={BUCKETS + 1}Q", self._table, ROW * number)
            if any(buckets):
                found[name] = RequestDurations(tuple(buckets), total_ns)
        return found

    def errors(self) -> Mapping[tuple[str, int], int]:
        return {
            (KINDS.get(kind, "other"), number): count for (kind, number), count in self._errors.copy().items()
        }


@cython.cfunc
def now() -> cython.longlong:
    """Return the nanoseconds of a monotonic clock."""
    if cython.compiled:
        return monotonic_ns()
    return time.monotonic_ns()
