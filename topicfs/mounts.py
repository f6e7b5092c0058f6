"""Where the daemon that owns a data directory has mounted it."""

from __future__ import annotations

from pathlib import Path


def mountpoint_of(pid: int | None) -> Path | None:
    """Find the mount that the process serves; None where there is none that can be seen."""
    # Only here: what it is found with belongs to machines with FUSE.
    from fusefs.mounting.limits import mounts  # noqa: PLC0415
    from fusefs.mounting.mountpoint import FSTYPE  # noqa: PLC0415

    try:
        mountpoints = [Path(path) for path in mounts(FSTYPE)]
    except OSError:
        return None
    return next((path for path in mountpoints if pid is not None and _daemon_of(path) == pid), None)


def _daemon_of(mountpoint: Path) -> int | None:
    try:
        for line in (mountpoint / "@status").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "pid":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
