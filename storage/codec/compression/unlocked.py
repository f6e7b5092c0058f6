"""Inflates many batches in one call without the interpreter's lock, if they are as producers usually write them.

Batches of a busy producer have 16 KiB, and inflate faster than a thread can release the lock and take it again.
Therefore one call inflates many batches, while other threads run Python on another processor. It calls the C
functions of the libraries, which this module finds in their Python modules. If a library does not export the
functions, or if a batch's content is unusual, damaged or larger than the buffer, `codecs` inflates it instead. Only
`codecs` reports what is wrong with a batch. This module is compiled by Cython. Uncompiled, it leaves every batch to
`codecs`.
"""

# ruff: noqa: PLR0913, PLR0917 -- functions over raw memory take pointers and bounds one by one

from __future__ import annotations

import importlib.util
from collections import deque
from contextlib import suppress
from functools import cache

import cython

from topicfs.storage.codec.headers import Codec

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary.vectors import release_upper_halves
    from cython.cimports.topicfs.storage.codec.compression.unlocked import (
        unlocked_content,
        unlocked_free,
        unlocked_inflate,
        unlocked_load,
        unlocked_new,
    )

CONTENT_BYTES = cython.declare(cython.Py_ssize_t, 2**20)
"""Size of the buffer for one batch's inflated content; larger content is inflated in a separate call."""
_GZIP = cython.declare(cython.int, int(Codec.GZIP))
_KEPT = 8
"""Number of workspaces kept; each is used by one thread at a time."""

_MODULES = {Codec.GZIP: "isal.isal_zlib", Codec.LZ4: "lz4.block._block", Codec.ZSTD: "zstandard._cffi"}
"""The modules that export the libraries' functions. Snappy's module exports none, so its format is read here."""


@cython.cclass
class Workspace:
    """Memory in which batches are inflated one after the other. Used by one thread at a time."""

    def __cinit__(self) -> None:
        if cython.compiled:
            self._space = unlocked_new(CONTENT_BYTES)
            if self._space == cython.NULL:
                raise MemoryError

    def __dealloc__(self) -> None:
        if cython.compiled:
            unlocked_free(self._space)


_WORKSPACES: deque[Workspace] = deque(maxlen=_KEPT)


def take_workspace() -> Workspace:
    """Return a workspace for exclusive use; pass it to `give_back` afterwards."""
    try:
        return _WORKSPACES.pop()
    except IndexError:
        _load()
        return Workspace()


give_back = _WORKSPACES.append


@cache
def _load() -> None:
    """Find the libraries' functions before the first workspace; a program that reads one record imports no library."""
    for codec, module in _MODULES.items() if cython.compiled else ():
        with suppress(ImportError):
            place = importlib.util.find_spec(module)
            if place is not None and place.origin:
                unlocked_load(int(codec), place.origin.encode())


@cython.cfunc
@cython.exceptval(check=False)
def space_of(workspace: Workspace) -> cython.p_void:
    """Return the workspace's memory, valid as long as the workspace is held."""
    if cython.compiled:
        return workspace._space  # noqa: SLF001 - of this module's own class
    return workspace


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def content_of(space: cython.p_void) -> cython.p_uchar:
    """Return a pointer to the content that was inflated last."""
    if cython.compiled:
        return unlocked_content(space)
    return bytearray()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def inflate_in(
    space: cython.p_void,
    codec: cython.int,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
    max_parts: cython.Py_ssize_t,
) -> cython.long:
    """Inflate `source[start:end]` to at most `room` bytes in at most `max_parts` parts.

    Return the inflated size, or -1 if `codecs` has to inflate the content.
    """
    if cython.compiled:
        made: cython.long = unlocked_inflate(space, codec, source + start, end - start, room, max_parts)
        if codec == _GZIP:  # ISA-L leaves the upper halves of the vector registers in use.
            release_upper_halves()
        return made
    return -1
