"""The Parquet files of an archive that count.

    ARCHIVE/topic=orders/date=2026-01-02/part-….parquet     the records of a topic and a date
    ARCHIVE/_spark_metadata/                                 Spark's list of those that were committed
    ARCHIVE/_checkpoint/                                     how far the archive came

Spark's own list names the files absolutely, so that an archive that was moved or copied would be lost to Spark: here only
their last three parts count.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

from topicfs.pipeline.errors import NoArchiveError, PipelineError

CHECKPOINT = "_checkpoint"
COMMITTED = "_spark_metadata"
_COMPACT = ".compact"


def archived_files(archive: Path) -> list[Path]:
    """Return the files that count; none of topics without records (PipelineError where one is missing, or all of the archive)."""
    listed = archive / COMMITTED
    files = (
        [archive.joinpath(*parts) for parts in _committed(listed)]
        if listed.is_dir()
        else sorted(archive.glob("topic=*/date=*/*.parquet"))
    )
    if not files and not (archive / CHECKPOINT).is_dir():
        raise NoArchiveError(archive)
    for file in files:
        if not file.is_file():
            raise PipelineError(f"{file}: belongs to the archive and is not there")
    return files


def _committed(listed: Path) -> list[tuple[str, ...]]:
    """Return topic, date and name of each committed file: from the newest list of all, and from what came after it."""
    batches = {
        int(path.name.removesuffix(_COMPACT)): path
        for path in listed.iterdir()
        if path.name.removesuffix(_COMPACT).isdecimal()
    }
    compacted = max((number for number, path in batches.items() if path.suffix == _COMPACT), default=-1)
    found: list[tuple[str, ...]] = []
    for number in sorted(number for number in batches if number >= compacted):
        # The first line is the format's version.
        lines = batches[number].read_text().splitlines()[1:]
        found += [tuple(unquote(json.loads(line)["path"]).split("/")[-3:]) for line in lines]
    return found
