"""Tests of how `topicfs top` finds the programs that have files of a mount open."""

from __future__ import annotations

import os
from pathlib import Path

from topicfs.top.mount_source import OpenFile, open_files


def test_files_of_topics_by_program(tmp_path: Path):
    """Open files are listed with their program and topics. A member of a group counts as a reader.

    Files of no topic, such as `@status`, are skipped.
    """
    held = {
        3: ("/mnt/orders/0/log", os.O_RDONLY),
        4: ("/mnt/orders/0/log", os.O_WRONLY | os.O_APPEND),
        5: ("/mnt/@groups/billing/orders,clicks/log", os.O_RDWR),
        6: ("/mnt/@status", os.O_RDONLY),
        7: ("/mnt2/orders/0/log", os.O_RDONLY),
        8: ("/mnt", os.O_RDONLY),
        9: ("pipe:[5]", os.O_RDONLY),
        10: ("/mnt/@groups/billing/status", os.O_RDONLY),
        11: ("/mnt/@queues/jobs/tasks/take", os.O_RDWR),
    }
    process = tmp_path / "4711"
    for folder in ("fd", "fdinfo"):
        (process / folder).mkdir(parents=True)
    (process / "comm").write_text("a program\n")
    for number, (path, flags) in held.items():
        (process / "fd" / str(number)).symlink_to(path)
        (process / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t29\n")
    (tmp_path / "12" / "fd").mkdir(parents=True)
    # Process 12 has ended: it has no fdinfo.
    (tmp_path / "12" / "fd" / "1").symlink_to("/mnt/orders/0/log")
    (tmp_path / "13").mkdir()
    (tmp_path / "meminfo").touch()
    expected = {
        OpenFile("a program (4711)", ("orders",), writes=False),
        OpenFile("a program (4711)", ("orders",), writes=True),
        OpenFile("a program (4711)", ("orders", "clicks"), writes=False),
        OpenFile("a program (4711)", ("tasks",), writes=False),
    }
    assert expected == set(open_files(Path("/mnt"), tmp_path))


def test_this_process_is_found(tmp_path: Path):
    """The process of the test is found in the real /proc."""
    (tmp_path / "orders").mkdir()
    with (tmp_path / "orders" / "log").open("w"):
        (found,) = open_files(tmp_path)
    assert (True, ("orders",)) == (found.writes, found.topics)
    assert found.program.endswith(f"({os.getpid()})")


def test_a_program_whose_name_is_no_text_is_shown(tmp_path: Path):
    """A program whose name the kernel has cut in the middle of a character is shown."""
    process = tmp_path / "4711"
    for folder in ("fd", "fdinfo"):
        (process / folder).mkdir(parents=True)
    (process / "comm").write_bytes(("x" * 14 + "é").encode()[:15] + b"\n")
    (process / "fd" / "3").symlink_to("/mnt/orders/0/log")
    (process / "fdinfo" / "3").write_text("flags:\t00\n")
    assert [r"xxxxxxxxxxxxxx\xc3 (4711)"] == [one.program for one in open_files(Path("/mnt"), tmp_path)]
