"""`status` of a partition and `@status` of the daemon: one `name value` a line."""

from __future__ import annotations

from datetime import UTC, datetime

from fusefs.forms import VALUES
from fusefs.tree.nodes import Directory
from fusefs.tree.partition_files import PartitionFiles
from fusefs.tree.texts import TextFile
from storage.messages import printable
from storage.model import PartitionStatus, Timestamp


class PartitionStatusFile(TextFile):
    """`status`: where a partition stands."""

    __slots__ = ("_files",)

    def __init__(self, parent: Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(files.context, parent, name)
        self._files = files

    def mtime_ns(self) -> int:
        return self._files.mtime_ns()

    def render(self) -> str:
        self._files.check_exists()
        status = self._files.partition.status()
        offsets = status.offsets
        lines = {
            "state": status.state,
            "log_start_offset": offsets.log_start_offset,
            "recovery_point": offsets.recovery_point,
            "unflushed_records": max(offsets.log_end_offset - offsets.recovery_point, 0),
            "last_stable_offset": offsets.last_stable_offset,
            "high_watermark": offsets.high_watermark,
            "log_end_offset": offsets.log_end_offset,
            "leader_epoch": offsets.leader_epoch,
            "segments": status.segments,
            "log_bytes": status.log_bytes,
            "index_bytes": status.index_bytes,
            "first_timestamp": spelled_time(status.first_timestamp),
            "last_timestamp": spelled_time(status.last_timestamp),
            **cleaning_lines(status),
            "last_flush": spelled_time(status.last_flush),
            "measured": "yes" if self._files.views.whole(VALUES).measured else "no",
            "directory": status.directory,
        }
        return "".join(f"{name} {printable(str(value))}\n" for name, value in lines.items())


def cleaning_lines(status: PartitionStatus) -> dict[str, object]:
    """What compaction has to do; nothing where nothing is compacted."""
    if status.first_dirty_offset is None or status.cleanable_ratio is None:
        return {}
    return {
        "first_dirty_offset": status.first_dirty_offset,
        "cleanable_ratio": f"{status.cleanable_ratio:.2f}",
    }


def spelled_time(timestamp: Timestamp) -> str:
    """Milliseconds, as selectors take them, and the same moment for people; `-` where there is none."""
    if timestamp < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return str(timestamp)
    return f"{timestamp} {moment.replace('+00:00', 'Z')}"


class DaemonStatusFile(TextFile):
    """`@status`: the daemon, and why the newest operations failed."""

    __slots__ = ()

    def render(self) -> str:
        lines = [*self.context.status_lines(), *self.context.reports.lines()]
        return "".join(f"{printable(line)}\n" for line in lines)
