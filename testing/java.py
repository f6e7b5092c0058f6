"""The flags with which a Java machine of a test starts quickly, for it lives for seconds.

Half of such a life goes into finding, reading and verifying classes. An archive of classes (Java calls it class data
sharing) holds them as they are in memory: `testing/class_archives.py` makes one for Spark and one for Kafka.
"""

from __future__ import annotations

from pathlib import Path

ARCHIVES = Path(__file__).parents[1] / "build" / "java"
"""The folder of the archives."""
PLAIN_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""The first compiler and the plain collector suffice; the small cache for code that comes with them is swept all the time."""


def archive_of(name: str) -> Path:
    """The archive of "spark" or of "kafka", which need not be there."""
    return ARCHIVES / f"{name}.jsa"


def quick_start(name: str) -> list[str]:
    """Flags of a machine that runs "spark" or "kafka", with the archive of its classes if that was made.

    A machine that finds it made from other jars, or by another Java, starts without it; the warning that would be
    printed among a program's own lines is switched off.
    """
    archive = archive_of(name)
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
    return [*PLAIN_FLAGS, *shared]
