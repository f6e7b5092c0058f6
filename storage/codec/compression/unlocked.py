"""Inflating without the interpreter's lock, many batches in one call: what `codecs` does, for what producers write.

Batches of a busy producer have 16 KiB, and inflate in less time than it takes to give the interpreter's lock away and get
it back. Here the libraries' own functions are called, found where their Python modules have them, so that others run
Python meanwhile, on another processor. A library that shows no such functions, and content that is unusual, damaged or
larger than the room, is left to `codecs`: it alone says what is wrong with a batch.

This module is compiled by Cython, and runs uncompiled with the same results: there it leaves everything to `codecs`.
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
"""Room for what one batch inflates to; what is larger pays for a call of its own."""
_GZIP = cython.declare(cython.int, int(Codec.GZIP))
_KEPT = 8
"""Workspaces kept, each of which one thread uses at a time."""

_MODULES = {Codec.GZIP: "isal.isal_zlib", Codec.LZ4: "lz4.block._block", Codec.ZSTD: "zstandard._cffi"}
"""The modules with the libraries' functions. Snappy's has none that could be called: its format is read here."""


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
    """Return a workspace that nobody uses; `give_back` it."""
    try:
        return _WORKSPACES.pop()
    except IndexError:
        _load()
        return Workspace()


give_back = _WORKSPACES.append


@cache
def _load() -> None:
    """Find the libraries' functions, before the first workspace: a program that reads one record imports no library."""
    for codec, module in _MODULES.items() if cython.compiled else ():
        with suppress(ImportError):
            place = importlib.util.find_spec(module)
            if place is not None and place.origin:
                unlocked_load(int(codec), place.origin.encode())


@cython.cfunc
@cython.exceptval(check=False)
def space_of(workspace: Workspace) -> cython.p_void:
    """Return the memory itself, valid as long as the workspace is held."""
    if cython.compiled:
        return workspace._space  # noqa: SLF001 - of this module's own class
    return workspace


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def content_of(space: cython.p_void) -> cython.p_uchar:
    """Return a pointer to what was inflated last."""
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
    most_parts: cython.Py_ssize_t,
) -> cython.long:
    """Inflate `source[start:end]` to at most `room` bytes, in at most so many parts; return how many, or -1: `codecs` has to."""
    if cython.compiled:
        made: cython.long = unlocked_inflate(space, codec, source + start, end - start, room, most_parts)
        if codec == _GZIP:  # ISA-L leaves the upper halves in use.
            release_upper_halves()
        return made
    return -1
