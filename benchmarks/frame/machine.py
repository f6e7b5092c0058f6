"""Facts about the machine of a run, by name."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
from pathlib import Path

PACKAGES = ("topicfs", "pyfuse3", "trio", "crc32c", "kafka-python", "aiokafka", "pyarrow", "pyspark")

MOUNT_OPTIONS = "TOPICFS_BENCH_MOUNT"
"""Environment variable with further command-line options for every mount of topicfs that is measured."""


def machine_facts(directory: Path | None = None) -> dict[str, str]:
    """Return the facts by name; `directory` is the directory of the benchmarks' files."""
    place = directory or Path(tempfile.gettempdir())
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": filesystem_type(place),
        "load when it began": f"{load():.1f} programs wanted a processor",
        "mount options": os.environ.get(MOUNT_OPTIONS) or "the defaults",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def filesystem_type(place: Path) -> str:
    """Return the type of the file system that holds `place`, such as ext4 or tmpfs."""
    real = place.resolve()
    best, found = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        mountpoint = fields.split(" ")[4]
        if real.is_relative_to(mountpoint) and len(mountpoint) >= len(best):
            best, found = mountpoint, rest.split(" ")[0]
    return found


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
