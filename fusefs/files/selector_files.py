"""Files named by offset or time: single records and ranges. Created by a lookup, never listed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from topicfs.fusefs import selectors
from topicfs.fusefs.appending.flags import Access, refuse_writing
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.log_file import ViewNode
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.handle import BytesHandle, Handle
from topicfs.fusefs.nodes.nodes import READ_MODE, Attributes, Directory, FileNode, nanoseconds
from topicfs.fusefs.views.records import (
    BatchCutError,
    PlainRecord,
    content_of,
    find_plain,
    find_record,
    headers_json,
)
from topicfs.fusefs.views.view import View
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.disk.names import SegmentFileKind, segment_file

SELECTOR_CACHE_SECONDS = 1.0
"""How long a name relative to now, such as `-10` or `@10m`, keeps the meaning that it had at its lookup."""

LARGEST_XATTR_BYTES = 65_536
"""Largest value of an extended attribute (XATTR_SIZE_MAX of the kernel)."""

MAX_KEPT_RECORD_BYTES = 4096
"""The content of a record of up to this size is kept from lookup to open; a larger record is read again."""


def current_until(selector: selectors.Selector) -> float:
    """Return the time until which a name keeps the meaning of its lookup.

    For a relative time, this is one second from now.
    """
    relative = isinstance(selector, (selectors.AtTime, selectors.TimeRange)) and selector.relative
    return time.monotonic() + SELECTOR_CACHE_SECONDS if relative else math.inf


def selected_file(parent: Directory, name: str, files: PartitionFiles) -> FileNode:
    """Return the file that a selector names. Raises FileError (ENOENT) with a reason that names the existing range."""
    try:
        selector = selectors.parse(name)
        form = files.context.decoding.form(selector.suffix)
    except selectors.SelectorError as error:
        # Programs look for hidden names (.git, .hidden, .Trash); people do not.
        raise FileError(Refusal.NOT_FOUND, str(error), reported=not name.startswith(".")) from None
    if files.context.engine.remote:
        return LazySelectorFile(parent, name, files, selector, form)
    return _resolved(parent, name, files, selector, form)


def _resolved(
    parent: Directory, name: str, files: PartitionFiles, selector: selectors.Selector, form: Form
) -> FileNode:
    try:
        return _found_file(parent, name, files, selector, form)
    except (selectors.SelectorError, BatchCutError) as error:
        raise FileError(Refusal.NOT_FOUND, str(error), reported=True) from None


def _found_file(
    parent: Directory, name: str, files: PartitionFiles, selector: selectors.Selector, form: Form
) -> FileNode:
    isolation = files.context.settings.isolation
    if files.partition.unknown is not None or files.context.engine.remote:
        files.partition.find_bounds()
    # Most lookups are for a single existing record, so read the record immediately instead of checking first.
    if form is VALUES and isinstance(selector, selectors.Single):
        plain = find_plain(files.partition, selector.offset, isolation)
        if plain is not None:
            return RecordFile(parent, name, files, selector, form, plain)
    found = selectors.find_one(selector, files.partition, isolation)
    if found is not None:
        return RecordFile(parent, name, files, selector, form, found)
    place = selectors.resolve(selector, files.partition, isolation=isolation)
    if not isinstance(place, selectors.SelectedRange):
        found = find_record(files.partition, place, isolation=isolation)
        if found is None:
            raise selectors.SelectorError(f"{name}: the record at offset {place} no longer exists")
        return RecordFile(parent, name, files, selector, form, found)
    view = files.views.range(form, place.start_offset, place.end_offset)
    kind = SnapshotRangeFile if isinstance(selector, selectors.LastN | selectors.TimeRange) else RangeFile
    return kind(parent, name, files, selector, place, view)


def _selected_now(selector: selectors.Selector, files: PartitionFiles) -> selectors.Selected | None:
    """Return what a selector selects now; None if it selects nothing."""
    with suppress(selectors.SelectorError):
        return selectors.resolve(selector, files.partition, isolation=files.context.settings.isolation)
    return None


class LazySelectorFile(FileNode):
    """A file whose selector is resolved at stat(2) or open(2), because a lookup that waits blocks other lookups."""

    __slots__ = ("_current_until", "_file", "_form", "_resolve", "_until")
    entry_timeout = SELECTOR_CACHE_SECONDS

    def __init__(
        self, parent: Directory, name: str, files: PartitionFiles, selector: selectors.Selector, form: Form
    ) -> None:
        super().__init__(files.context, parent, name)
        self._resolve = partial(_resolved, parent, name, files, selector, form)
        self._form = form
        self._file: FileNode | None = None
        self._until = 0.0
        self._current_until = current_until(selector)

    def is_current(self) -> bool:
        return time.monotonic() < self._current_until and not self._form.outdated

    def attributes(self) -> Attributes:
        if self._file is None:
            return Attributes(READ_MODE, 0, 0, 0, self.node_id)
        attributes = self._file.attributes()
        # A record does not change, so the kernel may cache its attributes (otherwise each read sends four
        # more requests). For a growing file, the kernel is notified of changes under the node ID of that
        # file, not under the ID of this node.
        certain = attributes.timeout if isinstance(self._file, RecordFile) else 0
        until = self._until - time.monotonic()
        return attributes._replace(ino=self.node_id, timeout=max(0.0, min(certain, until)))

    @property
    def measured(self) -> bool:
        return self._file is not None and time.monotonic() < self._until

    async def measure(self, pid: int) -> None:
        program = self.program(pid)._replace(path="")  # The file is not open yet.
        self._file = await self.context.blocking.run_inline_or_in_thread(self._resolve, program)
        self._until = time.monotonic() + SELECTOR_CACHE_SECONDS

    async def open(self, access: Access, pid: int) -> Handle:
        refuse_writing(access)
        if not self.measured:
            await self.measure(pid)
        assert self._file is not None
        return await self._file.open(access, pid)

    def xattrs(self) -> Mapping[str, bytes | None]:
        return (self._file or self._resolve()).xattrs()


class RecordFile(FileNode):
    """`42`, `42.json`, `42.batch`, `@TIME`: a record, or the batch with the record; mtime is the record's timestamp."""

    __slots__ = (
        "_content",
        "_current_until",
        "_files",
        "_form",
        "_offset",
        "_rewrites",
        "_selector",
        "_size",
        "_timestamp",
        "_xattrs",
    )
    entry_timeout = SELECTOR_CACHE_SECONDS

    def __init__(
        self,
        parent: Directory,
        name: str,
        files: PartitionFiles,
        selector: selectors.Selector,
        form: Form,
        found: FoundRecord | PlainRecord,
    ) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._selector = selector
        self._form = form
        content = found.value if isinstance(found, PlainRecord) else content_of(found, form, files.partition)
        self._offset = found.offset
        self._rewrites = files.partition.rewrites
        self._size = len(content)
        self._timestamp = found.timestamp
        self._content = content if len(content) <= MAX_KEPT_RECORD_BYTES else None
        self._xattrs: Mapping[str, bytes | None] | None = None
        self._current_until = current_until(selector)

    def is_current(self) -> bool:
        if self._files.deleted or self._removed() or self._form.outdated:
            return False
        if isinstance(self._selector, selectors.Single):
            return True
        if time.monotonic() >= self._current_until:
            return False
        return _selected_now(self._selector, self._files) == self._offset

    def _removed(self) -> bool:
        """Return whether the record may be gone (by retention or compaction) and must be looked up again."""
        partition = self._files.partition
        return self._offset < partition.log_start_offset or self._rewrites != partition.rewrites

    def _found(self) -> FoundRecord:
        files = self._files
        found = find_record(files.partition, self._offset, isolation=files.context.settings.isolation)
        if found is None:
            raise FileError(
                Refusal.NOT_FOUND, f"offset {self._offset}: the record no longer exists", reported=True
            )
        return found

    def attributes(self) -> Attributes:
        mtime_ns = nanoseconds(self._timestamp)
        return Attributes(READ_MODE, self._size, mtime_ns, SELECTOR_CACHE_SECONDS, self.node_id)

    async def open(self, access: Access, pid: int) -> Handle:
        refuse_writing(access)
        self._files.check_exists()
        if self._removed():
            raise FileError(Refusal.GONE, f"offset {self._offset} was deleted")
        content = self._content
        if content is None:
            content = await self.context.blocking.run_inline_or_in_thread(
                lambda: content_of(self._found(), self._form, self._files.partition), self.program(pid)
            )
        return BytesHandle(content)

    def xattrs(self) -> Mapping[str, bytes | None]:
        if self._xattrs is None:
            in_file = self._files.partition.directory is not None
            self._xattrs = _xattrs(self._found(), in_file=in_file)
        return self._xattrs


def _xattrs(found: FoundRecord, *, in_file: bool) -> Mapping[str, bytes | None]:
    place = f"base_offset {found.batch.base_offset}"
    if in_file:
        segment = segment_file(found.segment_base_offset, SegmentFileKind.LOG)
        place += f" position {found.batch_position} segment {segment}"
    values: dict[str, bytes | None] = {
        "timestamp": b"%d" % found.timestamp,
        "timestamp_type": found.batch.timestamp_type.label.encode(),
        "leader_epoch": b"%d" % found.batch.leader_epoch,
        "batch": place.encode(),
    }
    columns, index = found.columns, found.number
    key_bytes, header_bytes = columns.key_lengths[index], columns.header_lengths[index]
    if key_bytes >= 0:
        values["key"] = columns.key(index) if key_bytes <= LARGEST_XATTR_BYTES else None
    if header_bytes > LARGEST_XATTR_BYTES:  # The text of headers is never shorter than the headers.
        values["headers"] = None
    elif headers := columns.headers(index):
        shown = headers_json(headers).encode()
        values["headers"] = shown if len(shown) <= LARGEST_XATTR_BYTES else None
    return {f"user.kafka.{name}": value for name, value in values.items()}


class RangeFile(ViewNode):
    """`42-99`, `42-`: a range of offsets. A range without a last offset grows like `log`."""

    __slots__ = ("_place", "_selector")
    entry_timeout = SELECTOR_CACHE_SECONDS

    def __init__(
        self,
        parent: Directory,
        name: str,
        files: PartitionFiles,
        selector: selectors.Selector,
        place: selectors.SelectedRange,
        view: View,
    ) -> None:
        super().__init__(parent, name, files, view)
        self._selector = selector
        self._place = place

    def is_current(self) -> bool:
        """Return whether the selector still means the same bytes, although the log may have changed."""
        return not self._view.source.form.outdated and self._positions_hold()

    def _positions_hold(self) -> bool:
        return not self._view.outdated and _selected_now(self._selector, self._files) == self._place

    def forgotten(self) -> None:
        super().forgotten()
        if self._files.shown_inos.get(self.name) == self.node_id:
            del self._files.shown_inos[self.name]


class SnapshotRangeFile(RangeFile):
    """`-10`, `@T1-@T2`: the range that the name meant at lookup, kept for a second and while the file is open."""

    __slots__ = ("_until",)

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self._until = time.monotonic() + SELECTOR_CACHE_SECONDS

    def is_current(self) -> bool:
        if self._view.outdated or self._view.source.form.outdated:
            return False
        return self._opened > 0 or time.monotonic() < self._until

    def _check_current(self) -> None:
        self._files.check_exists()
