"""JVM flags for a fast start in tests, whose JVMs run only for seconds.

A JVM spends half of that time on finding, reading and verifying classes. An archive of classes (Java calls it class
data sharing) stores them as they are in memory: `testing/class_archives.py` makes one archive for Spark and one for
Kafka.
"""

from __future__ import annotations

from pathlib import Path

ARCHIVES = Path(__file__).parents[1] / "build" / "java"
"""The folder of the archives."""
PLAIN_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""The first compiler and the serial collector are enough. The size of the code cache is set because these flags have
a smaller default, with which the JVM would clean the cache constantly.
"""


def archive_of(name: str) -> Path:
    """Return the path of the archive for "spark" or "kafka", which may not exist."""
    return ARCHIVES / f"{name}.jsa"


def quick_start(name: str) -> list[str]:
    """Return flags for a JVM that runs "spark" or "kafka", with the archive of its classes if it exists.

    If the archive was made from other jars or by another Java, the JVM starts without it. The warning about this,
    which would appear in a program's output, is switched off.
    """
    archive = archive_of(name)
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
    return [*PLAIN_FLAGS, *shared]
