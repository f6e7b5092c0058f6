"""The mountpoint: checks it before mounting, takes it over from a killed daemon, and unmounts it."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from topicfs.fusefs.mounting.limits import mounters, mounts
from topicfs.fusefs.processes.signals import look
from topicfs.fusefs.processes.visible import processes
from topicfs.storage.disk.names import META_PROPERTIES
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import printable

END = "."
"""The last line of each complete report. If a report lacks this line, its daemon did not end cleanly."""
LAST_WORDS = "topicfs-last-words"
STATUS_CHARACTERS = 1 << 20
"""Maximum number of characters to read from `@status`."""
SHOWN = 5
"""Number of lines shown to the user; the daemon's log has all lines."""


class LastWords:
    """The daemon's report of the data that it could not store when its mount ended, for the command that unmounts it.

    The report is in a memory file, which needs no space on a full disk. `@status` names the daemon's descriptor of
    this file. The command opens the file before unmounting, and reads it after the daemon has ended.
    """

    def __init__(self) -> None:
        self._descriptor = os.memfd_create(LAST_WORDS)
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def end(self, lines: Iterable[str]) -> None:
        """Write the lines about what could not be stored, if any, and finish the report."""
        text = "".join(f"{printable(line)}\n" for line in [*lines, END])
        os.write(self._descriptor, text.encode())


def read_last_words(descriptor: int) -> list[str]:
    """Return the report of a daemon that has ended; adds a line if the daemon was killed before it finished."""
    size = os.fstat(descriptor).st_size
    lines = os.pread(descriptor, size, 0).decode().splitlines()
    if not lines or lines[-1] != END:
        return ["the daemon ended before it closed its data directories; the next mount recovers them"]
    return lines[:-1]


def shortened(lines: list[str]) -> str:
    """Return lines joined to a text that fits into a one-line message."""
    more = f"; and {len(lines) - SHOWN} more, which the daemon's log has" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more


FSTYPE = "fuse.topicfs"

HELD_SECONDS = 0.5
"""How long an unmount waits for the daemon before it looks for other places where the filesystem is still mounted."""
UNMOUNT_SECONDS = 60.0
"""How long an unmount waits for its daemon to flush and end."""
BUSY_PAUSE_SECONDS = 0.05
"""Time between two attempts, because the kernel does not report when a mount is no longer in use."""
BUSY_SECONDS = 1.0
"""How long an unmount waits for programs that use the mount, such as other commands that briefly read `@status`."""


class MountError(StorageError):
    """A mount or unmount is not possible in the current state."""


def prepare(mountpoint: Path, directories: Sequence[Path], *, nonempty: bool = False) -> str | None:
    """Check that `mountpoint` can be mounted on; unmount it if its daemon was killed. Return a message about that, or None.

    A directory with files is refused unless `nonempty`. Raises MountError.
    """
    word = None
    try:
        # Do not use stat, which the kernel answers from its cache for a while after the daemon was killed.
        os.statvfs(mountpoint)
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            unmount_command(str(mountpoint.absolute()), lazily=True)
            word = (
                f"{mountpoint}: the daemon of an earlier mount had been killed; its mountpoint was taken over"
            )
        elif error.errno == errno.ENOENT:
            raise MountError(f"{mountpoint}: no such directory; make it first") from None
        else:
            raise MountError(f"{mountpoint}: {error.strerror}") from None
    if not mountpoint.is_dir():
        raise MountError(f"{mountpoint}: not a directory")
    real = mountpoint.resolve()
    if str(real) in mounts(FSTYPE):
        raise MountError(
            f"{mountpoint}: a topicfs is mounted there already; run `topicfs umount {mountpoint}` first"
        )
    for directory in directories:
        data = directory.resolve()
        if real == data or data in real.parents or real in data.parents:
            raise MountError(
                f"{mountpoint}: the mountpoint must be outside of the data directory {directory}, and must not contain it"
            )
    if not nonempty:
        _check_empty(mountpoint)
    return word


def _check_empty(mountpoint: Path) -> None:
    """Raise MountError if the mount would hide files. In most cases, the user has swapped the two arguments."""
    try:
        names = {entry.name for entry in os.scandir(mountpoint)}
    except OSError as error:
        raise MountError(f"{mountpoint}: {error.strerror}") from None
    if META_PROPERTIES in names:
        raise MountError(
            f"{mountpoint}: contains a data directory, which the mount would hide; put the data directory first: "
            f"topicfs mount {mountpoint} MOUNTPOINT"
        )
    if names:
        raise MountError(
            f"{mountpoint}: is not empty, and the mount would hide its files; choose an empty directory, or add --nonempty"
        )


def unmount(path: Path) -> str | None:
    """Unmount, and wait until the daemon has flushed and ended. Raises MountError.

    Return a remark for the user, or None.
    """
    mountpoint = str(path.absolute())
    if mountpoint not in mounts(FSTYPE) and str(_resolved(path)) in mounts(FSTYPE):
        mountpoint = str(_resolved(path))
    if mountpoint not in mounts(FSTYPE):
        raise MountError(f"{path}: no topicfs is mounted there")
    daemon, device, word = daemon_values(mountpoint), mounts(FSTYPE)[mountpoint], None
    with ExitStack() as opened:
        # Another process may get the number later, but not the descriptor.
        process = _opened(opened, lambda pid: os.pidfd_open(int(pid)), daemon.get("pid"))
        words = _opened(opened, _last_words, daemon.get("umount_report"))
        before = _holders(device)
        unmount_command(mountpoint, lazily=not daemon)
        if process is None:
            return (
                None
                if daemon
                else f"{path}: its daemon had been killed; the next mount recovers the data directories"
            )
        # A later mount of another filesystem may get the number of the device: it was not there before.
        held = {} if _ended(process, HELD_SECONDS) else _holders(device)
        if places := ", ".join(held[one] for one in held if one in before):
            # The daemon ends only when the last of its mounts is gone.
            signal.pidfd_send_signal(process, signal.SIGTERM)
            word = f"{path}: unmounted and ended, but it is still mounted elsewhere and dead there: {places}"
        if not _ended(process, UNMOUNT_SECONDS):
            raise MountError(f"{path}: unmounted, but its daemon (process {daemon['pid']}) has not ended yet")
        lost = [] if words is None else read_last_words(words)
    if lost:
        raise MountError(f"{path}: unmounted, but some data was lost: {shortened(lost)}")
    return word


def _holders(device: str) -> dict[str, str]:
    """Return the paths where a filesystem is mounted, here and in containers, each with a process that sees it."""
    found: dict[str, str] = {}
    for process in processes():
        with suppress(OSError):
            for path, mounted in mounts(FSTYPE, process.pid).items():
                if mounted == device:
                    found.setdefault(path, f"{path} of process {process.pid} ({process.program})")
    return found


def _users(mountpoint: str) -> Iterator[str]:
    """Yield the visible processes whose working directory or open files are in a mount."""
    for process in processes():
        with suppress(OSError):
            if process.is_inside(mountpoint):
                yield str(process)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except OSError:
        return path  # A dead mount cannot be looked into.


def daemon_values(mountpoint: str) -> dict[str, str]:
    """Return the values of `@status` about the daemon, by name; empty if the daemon does not answer.

    Leaves out `pid` and `umount_report` if the process does not belong to the user who mounted: any user can mount a
    filesystem that claims to be a topicfs and to be served by another user's process.
    """
    try:
        with open(f"{mountpoint}/@status", encoding="utf-8") as file:  # noqa: PTH123 - beside the os calls around it
            lines = file.read(STATUS_CHARACTERS).splitlines()
        values = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        if mounters(FSTYPE).get(mountpoint) != user_of(int(values.get("pid", 0))):
            return {name: value for name, value in values.items() if name not in {"pid", "umount_report"}}
    except (OSError, ValueError):
        return {}
    return values


def mountpoint_of(pid: int | None) -> Path | None:
    """Return the mountpoint that process `pid` serves; None if no such mount is visible."""
    try:
        # Skip mounts of other users: reading their `@status` might never end.
        mountpoints = [path for path, user in mounters(FSTYPE).items() if pid and user == user_of(pid)]
    except OSError:
        return None
    return next((Path(path) for path in mountpoints if daemon_values(path).get("pid") == str(pid)), None)


def user_of(pid: int) -> int | None:
    """Return the real user ID of a process; None if it does not exist or is hidden."""
    seen = look(pid)
    return None if seen is None else seen.user


def _opened(opened: ExitStack, open_it: Callable[[str], int], what: str | None) -> int | None:
    """Return the descriptor from `open_it(what)`, which `opened` closes later; None if `what` cannot be opened."""
    if what is None:
        return None
    try:
        descriptor = open_it(what)
    except (OSError, ValueError):
        return None
    opened.callback(os.close, descriptor)
    return descriptor


def _last_words(path: str) -> int:
    """Open the daemon's memory file. Raises OSError; ValueError for a file of another kind, which is never opened."""
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        itself = Path(f"/proc/self/fd/{found}")
        if not str(itself.readlink()).startswith(f"/memfd:{LAST_WORDS} "):
            raise ValueError(path)
        return os.open(itself, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _ended(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def unmount_command(mountpoint: str, *, lazily: bool) -> None:
    fusermount = shutil.which("fusermount3") or shutil.which("fusermount")
    if os.geteuid() == 0 and shutil.which("umount"):
        command = ["umount", *(["-l"] if lazily else []), mountpoint]
    elif fusermount is not None:
        command = [fusermount, "-u", *(["-z"] if lazily else []), mountpoint]
    else:
        raise MountError("fusermount3 is missing; install the package fuse3")
    deadline, last = time.monotonic() + BUSY_SECONDS, False
    while True:
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words and a path
        if not result.returncode:
            return
        busy = "busy" in result.stderr
        if last and busy and (users := list(_users(mountpoint))):
            raise MountError(
                f"{mountpoint}: is in use by {', '.join(users)}; end these programs or let them leave the directory"
            )
        if last or not busy:
            raise MountError(f"{mountpoint}: {result.stderr.strip() or 'cannot be unmounted'}")
        time.sleep(BUSY_PAUSE_SECONDS)  # The kernel does not report when a mount is no longer busy.
        last = time.monotonic() > deadline
