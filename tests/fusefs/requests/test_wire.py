"""The opcodes and flags in `wire` are those of the kernel."""

from __future__ import annotations

import re
from pathlib import Path

from topicfs.fusefs.requests import wire

KERNEL = Path("/usr/include/linux/fuse.h")
"""The kernel's header, which is installed with the C library's headers. Compiling the modules needs these headers."""


def test_the_numbers_are_the_kernels():
    """Each opcode and flag has the value in <linux/fuse.h>."""
    text = KERNEL.read_text()
    opcodes = {name: int(number) for name, number in re.findall(r"\bFUSE_(\w+)\s*= (\d+),", text)}
    flags = dict(re.findall(r"#define FOPEN_(\w+)\s+\(1 << (\d+)\)", text))
    ours = ("LOOKUP", "FORGET", "GETATTR", "OPEN", "READ", "WRITE", "RELEASE", "FLUSH", "BATCH_FORGET")
    ours += ("INIT", "OPENDIR", "READDIR", "READDIRPLUS", "RELEASEDIR", "INTERRUPT")
    assert [opcodes[name] for name in ours] == [getattr(wire, name) for name in ours]
    flag_names = {"DIRECT_IO": "DIRECT_IO", "KEEP_CACHE": "KEEP_CACHE", "NO_FLUSH": "NOFLUSH"}
    assert {ours: 1 << int(flags[theirs]) for ours, theirs in flag_names.items()} == {
        name: getattr(wire, name) for name in flag_names
    }
