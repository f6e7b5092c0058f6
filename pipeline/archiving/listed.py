"""The lists of an archive: which of its Parquet files count.

    ARCHIVE/topic=orders/date=2026-01-02/part-….parquet     the records of a topic and a date
    ARCHIVE/_spark_metadata/                                 Spark's list of those that were committed (`parquet`)
    ARCHIVE/_checkpoint/                                     how far the archive came
    ARCHIVE/catalog.db, ARCHIVE/metadata/                    in place of both, an Iceberg table (`iceberg`)

Spark's own list names the files absolutely, so that an archive that was moved or copied would be lost to Spark: here only
their last three parts count.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from topicfs.pipeline.errors import PipelineError

CHECKPOINT = "_checkpoint"
COMMITTED = "_spark_metadata"
COMPACT = ".compact"
CATALOG = "catalog.db"
"""The catalog of an Iceberg table, of SQLite: it names the table's newest metadata."""


def is_iceberg(archive: Path) -> bool:
    return (archive / CATALOG).is_file()


def place_lost(archive: Path, what: object) -> PipelineError:
    """Return the error for an archive that has lost the list of what it holds."""
    return PipelineError(
        f"{archive}: which records it has is not known: {what} is missing; archive into another directory"
    )


def file_key(uri: str) -> tuple[str, ...]:
    """Return topic, date and name of a file."""
    return tuple(unquote(uri).split("/")[-3:])


def committed_lists(listed: Path) -> dict[int, Path]:
    """Return the lists by number, from the newest one that has all files on (PipelineError where a later one is missing)."""
    numbers = {path.name.removesuffix(COMPACT): path for path in listed.iterdir()}
    lists = {int(name): path for name, path in numbers.items() if name.isdecimal()}
    first = max((number for number, path in lists.items() if path.suffix == COMPACT), default=0)
    wanted = range(first, max(lists, default=-1) + 1)
    for number in wanted:
        if number not in lists:
            raise place_lost(listed.parent, listed / str(number))
    return {number: lists[number] for number in wanted}


def listed_lines(listed: Path) -> list[str]:
    """Return a line of JSON for each committed file (PipelineError where a list is missing)."""
    # The first line is the format's version.
    return [line for path in committed_lists(listed).values() for line in path.read_text().splitlines()[1:]]
