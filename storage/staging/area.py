"""The files of all writes in a data directory, and their states.

    staged*  →  requested  →  claimed  →  gone: done
                    │             └────→  refused, read by the process that submitted it
                    └→ gone: withdrawn

Any process may submit and withdraw; only the directory's owner does everything else. If a claim and a withdrawal
happen at the same time, one rename decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from uuid import uuid4

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import (
    WRITE_PREFIX,
    WriteFile,
    WriteFileKind,
    WriteId,
    parse_write_file,
    write_file,
)
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Timestamp
from topicfs.storage.staging.manifest import Content, Manifest, Placement, decode_manifest, encode_manifest
from topicfs.storage.staging.record import CommitRecord, CommittedQuery
from topicfs.storage.staging.staged_file import (
    Frame,
    StagedFile,
    StagedFileWriter,
    check_whole,
    copy_staged,
    read_frames,
)

ABANDONED_AFTER_MS = 7 * 24 * 3600 * 1000
"""Time for which staged files are kept if they are never submitted, counted from their last change."""


class WriteRefusedError(StorageError):
    """The owner refused the write. Only a write with a placement may have been appended in part."""


class WriteState(Enum):
    UNKNOWN = "not submitted, or withdrawn"
    REQUESTED = "submitted"
    CLAIMED = "being appended"
    REFUSED = "refused"
    COMMITTED = "committed"


class StagingArea:
    """The writes in a data directory. Keeps nothing in memory, because several processes use the files at once."""

    def __init__(
        self,
        directory: Path,
        files: FileSystem,
        record: CommitRecord | None = None,
        *,
        replicated: bool = False,
    ) -> None:
        """Prepare the area. `record`: a shared commit record; `replicated`: copy micro-batches to other directories."""
        self.directory = directory
        self.files = files
        self.record = record or CommitRecord(files, lambda: (directory,))
        self.replicated = replicated

    # For writers.

    def stage(self, write: WriteId, task: int) -> StagedFileWriter:
        """Begin a staged file. Each attempt of a task gets its own file, even in another process. Raises OSError."""
        part = f"{task}-{uuid4().hex}"
        return StagedFileWriter(self.directory / write_file(write, WriteFileKind.STAGED, part), self.files)

    def submit(
        self,
        write: WriteId,
        staged: Sequence[StagedFile],
        placement: Placement | None = None,
        content: Content | None = None,
    ) -> bool:
        """Ask the owner to append the files; return False if the write was submitted before. Blocks. Raises OSError."""
        if self.state(write) not in (WriteState.UNKNOWN, WriteState.REFUSED):
            return False
        self._unlink(self._path(write, WriteFileKind.REFUSED))
        manifest = encode_manifest(Manifest(tuple(staged), placement=placement, content=content))
        temporary = self.directory / write_file(write, WriteFileKind.STAGED, f"manifest-{uuid4().hex}")
        try:
            write_atomically(
                self.files, self._path(write, WriteFileKind.REQUESTED), manifest, temporary=temporary
            )
        except FileNotFoundError:
            if write.batch is None:
                raise
            return (
                False  # The owner has just finished a write of the same name, and removed its staged files.
            )
        return True

    def withdraw(self, write: WriteId) -> bool:
        """Withdraw a request that is not claimed yet; return False if it is too late. Raises OSError."""
        withdrawn = self._unlink(self._path(write, WriteFileKind.REQUESTED))
        if withdrawn:
            self.files.sync_directory(self.directory)
        return withdrawn

    def state(self, write: WriteId) -> WriteState:
        """Return a write's state; UNKNOWN also after the commit of a single write. Raises CorruptionError, OSError."""
        # Check in the order of the states, so that a change during these checks is not missed.
        if self.files.exists(self._path(write, WriteFileKind.REQUESTED)):
            return WriteState.REQUESTED
        if self.files.exists(self._path(write, WriteFileKind.CLAIMED)):
            return WriteState.CLAIMED
        if self.is_committed(write):
            return WriteState.COMMITTED
        if self.files.exists(self._path(write, WriteFileKind.REFUSED)):
            return WriteState.REFUSED
        return WriteState.UNKNOWN

    def take_refusal(self, write: WriteId) -> WriteRefusedError:
        """Return why a write was refused, and remove the file with the reason. Raises OSError."""
        path = self._path(write, WriteFileKind.REFUSED)
        reason = json.loads(self.files.read_bytes(path))["reason"]
        self._unlink(path)
        return WriteRefusedError(f"write {write}: {reason}")

    def discard(self, names: Iterable[str]) -> None:
        """Remove staged files that will not be submitted, or that were committed under other names. Raises OSError."""
        for name in names:
            self._unlink(self.directory / name)

    def is_committed(self, write: WriteId) -> bool:
        """Return whether a micro-batch was committed; False for other writes. Raises CorruptionError, OSError."""
        known = self.committed(write)
        return known is not None and write.batch is not None and write.batch <= known.batch

    def committed(self, write: WriteId) -> CommittedQuery | None:
        """Return the last commit of the write's query to its target, or None. Raises CorruptionError, OSError."""
        if write.batch is None:
            return None
        return self.record.read(write.query).get(write.series)

    # For the owner.

    def is_empty(self) -> bool:
        """Return whether the directory has no file of any write. Raises OSError."""
        return not self._listed()

    def waiting(self) -> list[WriteId]:
        """Return the writes that still have to be appended, claimed writes first. Raises OSError."""
        found = self._listed()
        claimed = {file.write for file in found if file.kind is WriteFileKind.CLAIMED}
        requested = {file.write for file in found if file.kind is WriteFileKind.REQUESTED} - claimed
        return [*sorted(claimed, key=str), *sorted(requested, key=str)]

    def claim(self, write: WriteId) -> Manifest | None:
        """Claim a request; return its manifest. Raises CorruptionError, OSError.

        None if the request was withdrawn, or if its write continues in another directory.
        """
        path = self._path(write, WriteFileKind.CLAIMED)
        if not self.files.exists(path):
            try:
                self.files.rename(self._path(write, WriteFileKind.REQUESTED), path)
            except FileNotFoundError:
                return None
        manifest = self._manifest(path)
        if manifest.begun is None:
            for other in self._others(write):
                # A copy gets `begun` before this manifest does, and the copy's directory may have served
                # alone since then.
                with suppress(FileNotFoundError):
                    if self._manifest(other / path.name).begun is not None:
                        return None
        return manifest

    def frames(self, manifest: Manifest, *, checked: bool = False) -> Iterator[Frame]:
        """Yield a claimed write's batches; if `checked`, files are verified first. Raises CorruptionError, OSError."""
        for staged in manifest.files if checked else ():
            check_whole(self.directory / staged.name, self.files, staged)
        for staged in manifest.files:
            yield from read_frames(self.directory / staged.name, self.files)

    def note(self, write: WriteId, manifest: Manifest) -> None:
        """Copy a claimed write to the other directories, then write its new `manifest`. Blocks. Raises OSError."""
        content, path = encode_manifest(manifest), self._path(write, WriteFileKind.CLAIMED)
        for other in self._others(write):
            try:
                for staged in manifest.files:
                    copy_staged(self.directory / staged.name, other / staged.name, self.files)
                write_atomically(self.files, other / path.name, content)
            except OSError as error:
                if Path(str(error.filename)).parent == self.directory:
                    raise
                self.record.failed(other, error)
        write_atomically(self.files, path, content)

    def refuse(self, write: WriteId, reason: str) -> None:
        """Refuse a claimed write, and remove its staged files. Blocks. Raises OSError."""
        content = json.dumps({"reason": reason}).encode() + b"\n"
        path = self._path(write, WriteFileKind.REFUSED)
        try:
            write_atomically(self.files, path, content)
        except OSError:
            # Once the staged files are gone, a full disk has room; nobody needs these files any more.
            self.discard_staged(write)
            write_atomically(self.files, path, content)
        self._unlink(self._path(write, WriteFileKind.CLAIMED))
        self.files.sync_directory(self.directory)
        self.discard_staged(write)

    def finish(self, write: WriteId) -> None:
        """Remove the files of a committed write, and their copies. Blocks. Raises OSError."""
        for other in self._others(write):
            with suppress(OSError):  # The duty of that other directory removes them.
                StagingArea(other, self.files).finish(write)
        for kind in (WriteFileKind.REQUESTED, WriteFileKind.REFUSED, WriteFileKind.CLAIMED):
            self._unlink(self._path(write, kind))
        # Remove the manifest first: a manifest that comes back after a crash must find its staged files.
        self.files.sync_directory(self.directory)
        self.discard_staged(write)

    def discard_abandoned(self, now: Timestamp) -> None:
        """Remove staged files of committed writes, and old unsubmitted files. Raises CorruptionError, OSError."""
        found = self._listed()
        submitted = {file.write for file in found if file.kind is not WriteFileKind.STAGED}
        for file in found:
            if file.kind is WriteFileKind.STAGED and file.write not in submitted:
                path = self.directory / write_file(*file)
                with suppress(FileNotFoundError):
                    old = self.files.modified_time_ms(path) < now - ABANDONED_AFTER_MS
                    if old or self.is_committed(file.write):
                        self.files.unlink(path)

    def discard_staged(self, write: WriteId) -> None:
        """Remove the staged files of a write, and of earlier micro-batches of its query. Raises OSError."""
        for file in self._listed():
            if file.kind is not WriteFileKind.STAGED or file.write.series != write.series:
                continue
            if file.write == write or (
                write.batch is not None and file.write.batch is not None and file.write.batch < write.batch
            ):
                self._unlink(self.directory / write_file(*file))

    def _manifest(self, path: Path) -> Manifest:
        return decode_manifest(self.files.read_bytes(path), file=path)

    def _listed(self) -> list[WriteFile]:
        entries = self.files.list_directory(self.directory, prefix=WRITE_PREFIX)
        parsed = (parse_write_file(entry.name) for entry in entries if not entry.is_directory)
        return [file for file in parsed if file is not None]

    def _others(self, write: WriteId) -> list[Path]:
        """Return the directories that have copies of a write of this directory. Only a micro-batch has copies."""
        copied = self.replicated and write.batch is not None
        return [one for one in self.record.directories() if one != self.directory] if copied else []

    def _path(self, write: WriteId, kind: WriteFileKind) -> Path:
        return self.directory / write_file(write, kind)

    def _unlink(self, path: Path) -> bool:
        try:
            self.files.unlink(path)
        except FileNotFoundError:
            return False
        return True
