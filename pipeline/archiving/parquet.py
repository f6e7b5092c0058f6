"""Commits of an archive of Parquet files, in the format of Spark's file sink, so that Spark reads committed files only.

    ARCHIVE/_checkpoint/offsets/7    offsets where round 7 ends, written before its files; a second run uses them again
    ARCHIVE/_spark_metadata/7        the files of round 7; every tenth list (`9.compact`) has the files of all rounds
    ARCHIVE/_checkpoint/commits/7    shows readers of the checkpoint that round 7 is committed

A round is committed when its list of files exists.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection
from pathlib import Path

from topicfs.pipeline.archiving.listed import (
    CHECKPOINT,
    COMMITTED,
    COMPACT,
    committed_lists,
    file_key,
    listed_lines,
    missing_list_error,
)
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.source.query.offsets import StreamState, decode_stream_offset, encode_stream_offset
from topicfs.storage.disk.native import NativeFileSystem

COMPACT_INTERVAL = 10
"""Each tenth list has the files of all rounds, as by default in Spark."""
REMOVE_AFTER_SECONDS = 24 * 3600
"""Age at which a file not in the newest list is removed. Readers of an older list may need a younger file."""
_NO_WATERMARK = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


class ParquetCommits:
    """The commits of an archive. A commit adds the files of a round together with the offsets where the round ends."""

    has_topic = False
    """True if the data files have a column `topic`, in addition to the folders `topic=…`."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._offsets, self._commits = (archive / CHECKPOINT / name for name in ("offsets", "commits"))
        self._lists = archive / COMMITTED
        self._files = NativeFileSystem()
        for folder in (self._offsets, self._commits, self._lists):
            folder.mkdir(parents=True, exist_ok=True)

    def last(self) -> tuple[int, StreamState | None]:
        """Return the last commit's number and end offsets; -1, None if there is none. Raises PipelineError, OSError."""
        number = max(committed_lists(self._lists), default=-1)
        names = (one.name for one in self._commits.iterdir())
        noted = max((int(name) for name in names if name.isdecimal()), default=-1)
        state = self.planned(number)
        if number < noted:
            raise missing_list_error(self._archive, self._lists / str(noted))
        if number >= 0 and state is None:
            raise missing_list_error(self._archive, self._offsets / str(number))
        return number, state

    def planned(self, number: int) -> StreamState | None:
        """Return the end offsets that `plan` recorded for a round; None if it recorded none. Raises PipelineError."""
        file = self._offsets / str(number)
        if not file.exists():
            return None
        try:
            return decode_stream_offset(json.loads(file.read_text(encoding="utf-8").splitlines()[2]))
        except (ValueError, AttributeError, IndexError) as error:
            raise PipelineError(f"{file}: not the offsets of an archive: {error}") from None

    def plan(self, number: int, state: StreamState) -> StreamState:
        """Record the end of a round before the round writes files.

        If an earlier run has recorded an end for this number, return that end; otherwise return `state`.
        """
        content = json.dumps(encode_stream_offset(state), separators=(",", ":"))
        self._create(self._offsets / str(number), f"v1\n{_NO_WATERMARK}\n{content}")
        noted = self.planned(number)
        assert noted is not None, "it was just written, or was there"
        return noted

    def merges(self, number: int) -> bool:
        """Return whether commit `number` writes a list of all files, and so can replace files."""
        return (number + 1) % COMPACT_INTERVAL == 0

    def commit(
        self, number: int, state: StreamState, added: Collection[Path], replaced: Collection[Path]
    ) -> None:
        """Commit a round, whose files are `added`, and make `replaced` files obsolete.

        Raises OSError, and PipelineError if another run has committed the round.
        """
        del state  # `plan` has already recorded the state.
        lines = [_line(file) for file in added]
        name = str(number)
        if self.merges(number):
            gone = {file_key(file.as_uri()) for file in replaced}
            known = (
                line for line in listed_lines(self._lists) if file_key(json.loads(line)["path"]) not in gone
            )
            lines = [*known, *lines]
            name += COMPACT
        if not self._create(self._lists / name, "\n".join(["v1", *lines])):
            raise PipelineError(f"{self._archive}: another run archived the same records; run it again")
        self._create(self._commits / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
        if self.merges(number):
            self._remove_left_over({file_key(json.loads(line)["path"]) for line in lines})

    def _create(self, path: Path, content: str) -> bool:
        """Create a file with all of its content; return False if the file exists."""
        if path.exists():
            return False
        # Spark may have left a checksum file for an unfinished file with this name. That checksum would not
        # match this file.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        self._files.write_bytes(temporary, content.encode(), sync=True)
        try:
            if not self._files.link(temporary, path):  # The file system has no hard links.
                self._files.rename(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        self._files.sync_directory(path.parent)
        return True

    def _remove_left_over(self, listed: Collection[tuple[str, ...]]) -> None:
        for file in self._archive.glob("topic=*/date=*/part-*.parquet"):
            old = time.time() - file.stat().st_mtime > REMOVE_AFTER_SECONDS
            if old and file_key(file.as_uri()) not in listed:
                file.unlink()


def _line(file: Path) -> str:
    """Return a file's line in a list, as Spark writes it."""
    found = file.stat()
    return json.dumps(
        {
            "path": file.as_uri(),
            "size": found.st_size,
            "isDir": False,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "blockReplication": 1,
            "blockSize": 32 << 20,
            "action": "add",
        },
        separators=(",", ":"),
    )
