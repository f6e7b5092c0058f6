"""The kernel's requests and answers on /dev/fuse: <linux/fuse.h>, in the machine's byte order.

    request   0 length u32 │ 4 opcode u32 │ 8 id u64 │ 16 node u64 │ 24 uid, gid, pid u32 │ 36 … │ 40 what it asks
    answer    0 length u32 │ 4 -errno i32 │ 8 id u64 │ 16 what was asked for

Arguments and results of the common requests; the sizes are those of protocol version 7.9 and later:

    LOOKUP        40 name, ended by NUL                            node, times, attributes: 128 bytes
    FORGET        40 references u64                                no answer
    BATCH_FORGET  40 count u32 │ 48 node, references u64 …         no answer
    GETATTR       40 …                                             time, attributes: 104 bytes
    OPEN, OPENDIR 40 flags u32                                     handle u64 │ flags u32 │ …
    READ          40 handle u64 │ 48 position u64 │ 56 size u32    bytes
    WRITE         40 handle u64 │ 48 position u64 │ 56 size u32 │ 80 bytes    size u32 │ …
    FLUSH, RELEASE, RELEASEDIR   40 handle u64                     nothing

The relay changes two kinds. INIT has 44 minor version u32, and returns 36 largest write u32 │ 40 …; READDIR and
READDIRPLUS have READ's arguments.
"""

LOOKUP = 1
FORGET = 2
GETATTR = 3
OPEN = 14
READ = 15
WRITE = 16
RELEASE = 18
FLUSH = 25
INIT = 26
OPENDIR = 27
READDIR = 28
RELEASEDIR = 29
INTERRUPT = 36
BATCH_FORGET = 42
READDIRPLUS = 44

REQUEST_HEADER_SIZE = 40
WRITE_HEADER_SIZE = 80
ANSWER_HEADER_SIZE = 16
ENTRY_SIZE = 128
ENTRY_HEADER_SIZE = 40
"""Size of an entry before its attributes."""
ATTRIBUTES_ANSWER_SIZE = 104
ATTRIBUTES_HEADER_SIZE = 16
OPENED_SIZE = 16
WRITTEN_SIZE = 8

DIRECT_IO = 1
KEEP_CACHE = 2
NO_FLUSH = 32
"""Flags of an opened file. DIRECT_IO: bypass the page cache. KEEP_CACHE: keep it. NO_FLUSH: no request at close(2)."""

STAT_BLOCK = 512
"""Unit of st_blocks, in bytes."""

LARGEST_WRITE = 1048576
"""Maximum data in one write request, as reported to the kernel."""
LARGEST_REQUEST_SIZE = 1052672
"""Size of the largest write request including its header; the kernel refuses a smaller buffer."""
