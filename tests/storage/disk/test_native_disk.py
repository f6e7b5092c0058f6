"""Tests of the real disk: writes are complete or undone, few descriptors are open, read-only disks stay unchanged."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.disk import native
from topicfs.storage.disk.filesystem import DirectoryEntry, FileEnds
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import ReadOnlyError
from topicfs.storage.model import Position, Timestamp


@pytest.fixture
def disk():
    return NativeFileSystem()


@pytest.fixture
def file(disk, tmp_path):
    """A new, empty file."""
    return disk.open(tmp_path / "file", create=True)


@contextmanager
def size_limit(size: int) -> Iterator[None]:
    """Limit the size of files.

    A write beyond `size` is cut short, and the next write fails. The limit ends before the test ends, because pytest
    may write its own output to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_comes_short_leaves_nothing(disk, file):
    """If only a part of a write fits, the write fails and the part is removed."""
    file.append(b"a" * 100)
    with size_limit(150), pytest.raises(OSError, match="too large"):
        file.append(b"b" * 100)
    assert b"a" * 100 == disk.read_bytes(file.path)


def test_an_error_after_opening_names_the_file(disk, tmp_path):
    """The error of a write, read or flush names the file.

    The system calls work on a descriptor, so their own errors do not have the file's name.
    """
    with size_limit(150), pytest.raises(OSError, match="too large") as written:
        disk.write_bytes(tmp_path / "large", b"b" * 200)
    assert str(tmp_path / "large") == written.value.filename
    with pytest.raises(OSError, match="Input/output error") as read:
        disk.read_bytes(Path("/proc/self/mem"))
    assert "/proc/self/mem" == read.value.filename
    with pytest.raises(OSError, match="Invalid argument") as flushed:
        disk.sync_directory(Path("/proc"))
    assert "/proc" == flushed.value.filename


CHANGES = {
    "pwrite": lambda file: file.pwrite(b"new", Position(2)),
    "append": lambda file: file.append(b"new"),
    "truncate": lambda file: file.truncate(5),
}


@pytest.mark.parametrize("kind", [NativeFileSystem, SimulatedDisk])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_does_not_reach_other_hard_links(kind, change, tmp_path):
    """If a file has several names (hard links), the first change copies the file, with its modification time.

    Only the name by which the file was opened then leads to the changed copy.
    """
    disk = kind()
    directory = tmp_path if kind is NativeFileSystem else Path("/")
    ours, theirs, alone = (directory / name for name in ("ours", "theirs", "alone"))
    for path in (theirs, alone):
        disk.write_bytes(path, b"0123456789", sync=True)
    disk.set_modified_time(theirs, Timestamp(1_000))
    assert disk.link(theirs, ours)
    file, expected = disk.open(ours), disk.open(alone)
    before = file.map(10)
    change(file)
    change(expected)
    wanted = disk.read_bytes(alone)
    size = len(wanted)
    assert [b"0123456789", wanted] == [disk.read_bytes(theirs), disk.read_bytes(ours)]
    assert [b"0123456789", wanted, wanted] == [bytes(before), file.pread(99, Position(0)), file.map(size)]
    assert 1_000 == disk.modified_time_ms(theirs)
    assert ["alone", "ours", "theirs"] == [entry.name for entry in disk.list_directory(directory)]


def test_opening_reading_and_flushing_keep_a_files_other_names(disk, tmp_path):
    """Opening, reading and flushing a linked file do not copy it."""
    disk.write_bytes(tmp_path / "theirs", b"0123456789")
    disk.link(tmp_path / "theirs", tmp_path / "ours")
    for read_only in (False, True):
        file = disk.open(tmp_path / "ours", read_only=read_only)
        assert (10, b"01", b"01") == (file.size(), file.pread(2, Position(0)), file.map(2))
        file.sync()
        file.close()
    assert 2 == (tmp_path / "ours").stat().st_nlink


def test_a_copy_for_which_there_is_no_room(disk, tmp_path):
    """If there is no space for the copy, the change fails and the link stays. The next change tries to copy again."""
    disk.write_bytes(tmp_path / "theirs", b"a" * 200)
    disk.link(tmp_path / "theirs", tmp_path / "ours")
    file = disk.open(tmp_path / "ours")
    with size_limit(150), pytest.raises(OSError, match="too large"):
        file.pwrite(b"new", Position(0))
    assert ["ours", "theirs"] == [entry.name for entry in disk.list_directory(tmp_path)]
    assert 2 == (tmp_path / "ours").stat().st_nlink
    file.pwrite(b"new", Position(0))
    assert [b"a" * 200, b"new" + b"a" * 197] == [disk.read_bytes(tmp_path / n) for n in ("theirs", "ours")]


def test_a_reader_that_opened_a_file_before_its_copy_was_made(disk, tmp_path, monkeypatch):
    """If a descriptor was opened just before a linked file was copied, the descriptor is not kept.

    Later reads then see the copy.
    """
    disk.write_bytes(tmp_path / "theirs", b"0123456789")
    disk.link(tmp_path / "theirs", tmp_path / "ours")
    file = disk.open(tmp_path / "ours")
    file.close()
    opened = native.open_known

    def overtaken(path, flags):
        found = opened(path, flags)
        monkeypatch.setattr(native, "open_known", opened)
        file.pwrite(b"new", Position(0))
        return found

    monkeypatch.setattr(native, "open_known", overtaken)
    assert b"0123456789" == file.pread(10, Position(0))
    assert b"new3456789" == file.pread(10, Position(0)) == file.map(10)


def test_a_short_write_inside_a_file_cuts_nothing(file):
    """A failed write inside a file does not remove the bytes after the position of the write."""
    file.append(b"a" * 200)
    with size_limit(150), pytest.raises(OSError, match="too large"):
        file.pwrite(b"b" * 100, Position(100))
    assert 200 == file.size()


def test_reads_come_short_only_at_the_end(file):
    """A positioned read returns fewer bytes than requested only at the end of the file."""
    file.append(b"0123456789")
    assert b"345" == file.pread(3, Position(3))
    assert b"89" == file.pread(10, Position(8))
    assert b"" == file.pread(10, Position(10))


def descriptors_below(directory: Path) -> int:
    """Return the number of this process's descriptors of files in `directory`."""
    links = Path("/proc/self/fd").iterdir()
    targets = [link.readlink() for link in links if link.is_symlink()]
    return sum(target.parent == directory for target in targets)


def test_more_files_than_descriptors(tmp_path):
    """If more files are used than the pool keeps open, some are closed, and opened again when they are used."""
    disk = NativeFileSystem(max_open_files=4)
    files = [disk.open(tmp_path / str(number), create=True) for number in range(50)]
    for _ in range(3):
        for number, file in enumerate(files):
            file.append(str(number).encode() + b",")
    assert descriptors_below(tmp_path) <= 4
    assert [f"{number},".encode() * 3 for number in range(50)] == [
        file.pread(99, Position(0)) for file in files
    ]
    for file in files:
        file.close()
    assert 0 == descriptors_below(tmp_path)


def test_a_mapping_outlives_its_file(disk, file):
    """A mapping shows later writes to its range, and stays readable after the file is closed and unlinked."""
    file.truncate(100)
    mapping = file.map(10)
    file.pwrite(b"later", Position(2))
    assert b"\0\0later\0\0\0" == bytes(mapping)
    file.close()
    disk.unlink(file.path)
    assert b"\0\0later\0\0\0" == bytes(mapping)
    with pytest.raises(TypeError):
        mapping[0] = 1


def test_a_mapping_longer_than_the_file_is_refused(file):
    """Mapping more bytes than the file has raises ValueError, because no page after the end may be read."""
    file.truncate(10)
    assert 10 == len(file.map(10))
    assert b"" == file.map(0)
    with pytest.raises(ValueError, match="length"):
        file.map(11)


def test_a_mapping_of_a_truncated_file_stays_readable(disk, tmp_path):
    """If the owner truncates a mapped file, a reader sees zeros, and SIGBUS does not kill the reader."""
    owners = disk.open(tmp_path / "index", create=True)
    owners.truncate(1 << 20)
    owners.pwrite(b"an entry", Position(0))
    readers = NativeFileSystem(read_only=True).open(tmp_path / "index")
    before = readers.map(1 << 20)
    owners.truncate(8)
    after = NativeFileSystem(read_only=True).open(tmp_path / "index").map(1 << 20)
    for mapping in (before, after):
        assert b"an entry" == bytes(mapping[:8])
        assert 0 == mapping[(1 << 20) - 1]
        with pytest.raises(TypeError):
            mapping[0] = 1


def test_a_mapping_follows_truncation(file):
    """A new mapping shows the new content after a file was truncated and has grown again."""
    file.append(b"old old old")
    assert b"old" == file.map(3)
    file.truncate(0)
    file.append(b"new")
    assert b"new" == file.map(3)


def test_a_moved_file_is_found_again(tmp_path):
    """After a rename the file is opened again under its new path."""
    disk = NativeFileSystem(max_open_files=1)
    file = disk.open(tmp_path / "a", create=True)
    file.append(b"content")
    disk.rename(tmp_path / "a", tmp_path / "b")
    file.moved(tmp_path / "b")
    disk.open(tmp_path / "other", create=True).append(b"takes the only place")
    assert b"content" == file.pread(7, Position(0))
    assert tmp_path / "b" == file.path


def test_directories(disk, tmp_path):
    """Directories can be made, listed by name, synced and removed."""
    disk.make_directory(tmp_path / "d")
    disk.write_bytes(tmp_path / "d" / "b", b"2", sync=True)
    disk.write_bytes(tmp_path / "d" / "a", b"1")
    disk.make_directory(tmp_path / "d" / "c")
    expected = [DirectoryEntry("a", False), DirectoryEntry("b", False), DirectoryEntry("c", True)]
    assert expected == disk.list_directory(tmp_path / "d")
    with pytest.raises(FileExistsError):
        disk.make_directory(tmp_path / "d")
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory(tmp_path / "d")
    disk.remove_directory(tmp_path / "d" / "c")
    disk.unlink(tmp_path / "d" / "a")
    disk.sync_directory(tmp_path / "d")
    disk.sync_all(tmp_path)
    assert not disk.exists(tmp_path / "d" / "a")
    assert 1 == disk.size(tmp_path / "d" / "b")
    with pytest.raises(FileNotFoundError):
        disk.list_directory(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        disk.sync_all(tmp_path / "none")
    assert disk.space(tmp_path).available_blocks > 0


def test_a_disk_that_cannot_be_flushed_says_so(disk, tmp_path, monkeypatch):
    """`sync_all` raises the error of the system call with the directory's name."""

    def fail(descriptor):
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: SimpleNamespace(syncfs=fail))
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}'") as failed:
        disk.sync_all(tmp_path)
    assert errno.EIO == failed.value.errno


def test_all_disks_are_flushed_without_syncfs(disk, tmp_path, monkeypatch):
    """If syncfs(2) is missing, as on macOS, `sync_all` flushes all disks."""
    flushed = []
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr("os.sync", lambda: flushed.append("all"))
    disk.sync_all(tmp_path)
    assert ["all"] == flushed


def test_names_that_begin_alike(disk, tmp_path):
    """A listing with a prefix has only the names that begin with it."""
    for name in ("topic-0", "topicfs.write.a", "topicfs.write.b"):
        disk.write_bytes(tmp_path / name, b"")
    listed = disk.list_directory(tmp_path, prefix="topicfs.write.")
    assert ["topicfs.write.a", "topicfs.write.b"] == [entry.name for entry in listed]


def test_modified_times(disk, tmp_path):
    """Modification times are set and returned in milliseconds."""
    disk.write_bytes(tmp_path / "a", b"")
    disk.set_modified_time(tmp_path / "a", Timestamp(1_700_000_000_123))
    assert 1_700_000_000_123 == disk.modified_time_ms(tmp_path / "a")


def test_opening_what_is_missing(disk, tmp_path):
    """Opening a missing file without `create` raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "none")


def test_nothing_changes_on_a_disk_opened_read_only(disk, tmp_path):
    """On a read-only disk each change raises ReadOnlyError, and a file handle refuses writes."""
    disk.write_bytes(tmp_path / "a", b"1")
    view = NativeFileSystem(read_only=True)
    path = tmp_path / "a"
    attempts = [
        lambda: view.open(tmp_path / "new", create=True),
        lambda: view.make_directory(tmp_path / "new"),
        lambda: view.remove_directory(tmp_path),
        lambda: view.rename(path, tmp_path / "b"),
        lambda: view.unlink(path),
        lambda: view.write_bytes(path, b"2"),
        lambda: view.sync_directory(tmp_path),
        lambda: view.sync_all(tmp_path),
        lambda: view.set_modified_time(path, Timestamp(1)),
    ]
    for attempt in attempts:
        with pytest.raises(ReadOnlyError):
            attempt()
    with pytest.raises(OSError) as refused:
        view.open(path).append(b"2")
    assert errno.EBADF == refused.value.errno
    assert [DirectoryEntry("a", False)] == view.list_directory(tmp_path)
    assert b"1" == view.read_bytes(path)


@pytest.mark.parametrize(
    ("call", "system_call"),
    [
        (lambda file: file.size(), "fstat"),
        (lambda file: file.truncate(5), "ftruncate"),
        (lambda file: file.sync(), "fdatasync"),
        (lambda file: bytes(file.map(5)), "fstat"),
        (lambda file: file.pread(5, 0), "pread"),
        (lambda file: file.pwrite(b"12345", 0), "pwrite"),
    ],
)
def test_a_descriptor_in_use_is_not_closed(tmp_path, monkeypatch, call, system_call):
    """Another thread cannot close a descriptor during a system call; otherwise its number could be reused."""
    file = NativeFileSystem().open(tmp_path / "file", create=True)
    file.pwrite(b"12345", 0)
    begun = []
    real = getattr(os, system_call)

    def take_back_first(*arguments):
        begun.append(system_call)
        file.close()
        return real(*arguments)

    monkeypatch.setattr(os, system_call, take_back_first)
    if system_call == "fdatasync":
        monkeypatch.setattr(native, "_SYNC", take_back_first)
    call(file)
    assert [system_call] == begun


@pytest.fixture(params=["native", "simulated"])
def either_disk(request, tmp_path):
    """The real disk and the simulated disk, each with an empty directory."""
    return (NativeFileSystem(), tmp_path) if request.param == "native" else (SimulatedDisk(), Path("/"))


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        (b"", FileEnds(0, b"", b"")),
        (b"12", FileEnds(2, b"12", b"12")),
        (b"1234", FileEnds(4, b"1234", b"1234")),
        (b"12345", FileEnds(5, b"1234", b"2345")),
        (b"123456789", FileEnds(9, b"1234", b"6789")),
        (b"1234" + bytes(4088) + b"6789", FileEnds(4096, b"1234", b"6789")),
        (b"1234" + bytes(4089) + b"6789", FileEnds(4097, b"1234", b"6789")),
        (b"1234" + bytes(9000) + b"6789", FileEnds(9008, b"1234", b"6789")),
    ],
)
def test_the_ends_of_a_file(either_disk, data, ends):
    """`read_ends` returns the size, the first and the last bytes. A shorter file gives fewer bytes."""
    disk, root = either_disk
    disk.write_bytes(root / "file", data)
    assert ends == disk.read_ends(root, "file", 4)


def test_the_ends_of_a_file_that_is_not_there(either_disk):
    """`read_ends` of a missing file raises FileNotFoundError."""
    disk, root = either_disk
    with pytest.raises(FileNotFoundError):
        disk.read_ends(root, "file", 4)


def test_a_small_file_needs_little_memory(tmp_path: Path) -> None:
    """Reading a file of ten bytes needs less than 1 MiB of memory, although files of 512 MiB are permitted."""
    (tmp_path / "meta.properties").write_bytes(b"version=1\n")
    tracemalloc.start()
    try:
        assert b"version=1\n" == NativeFileSystem().read_bytes(tmp_path / "meta.properties")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
