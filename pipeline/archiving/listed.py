"""The lists of an archive's data files: a Parquet file that is not listed does not belong to the archive.

    ARCHIVE/topic=orders/date=2026-01-02/part-….parquet     the records of a topic and a date
    ARCHIVE/_spark_metadata/                                 Spark's list of the committed files (`parquet`)
    ARCHIVE/_checkpoint/                                     the offsets up to which records are archived
    ARCHIVE/catalog.db, ARCHIVE/metadata/                    an Iceberg table with its files and offsets (`iceberg`)

Spark's list has absolute paths, which no longer exist once the archive is moved or copied. So topicfs uses only the
last three parts of each path.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from topicfs.pipeline.errors import PipelineError

CHECKPOINT = "_checkpoint"
COMMITTED = "_spark_metadata"
COMPACT = ".compact"
CATALOG = "catalog.db"
"""The SQLite catalog of an Iceberg table; it names the table's newest metadata."""


def is_iceberg(archive: Path) -> bool:
    return (archive / CATALOG).is_file()


def missing_list_error(archive: Path, what: object) -> PipelineError:
    """Return the error for an archive without its list of files or offsets; `what` names the missing list."""
    return PipelineError(
        f"{archive}: {what} is missing, so it is unknown which records the archive has; archive into another directory"
    )


def file_key(uri: str) -> tuple[str, ...]:
    """Return the last three parts of a data file's URI: the folders of its topic and date, and its name."""
    return tuple(unquote(uri).split("/")[-3:])


def committed_lists(listed: Path) -> dict[int, Path]:
    """Return the lists of files by number, the newest complete list and all later ones.

    Raises PipelineError if a list is missing.
    """
    numbers = {path.name.removesuffix(COMPACT): path for path in listed.iterdir()}
    lists = {int(name): path for name, path in numbers.items() if name.isdecimal()}
    first = max((number for number, path in lists.items() if path.suffix == COMPACT), default=0)
    wanted = range(first, max(lists, default=-1) + 1)
    for number in wanted:
        if number not in lists:
            raise missing_list_error(listed.parent, listed / str(number))
    return {number: lists[number] for number in wanted}


def listed_lines(listed: Path) -> list[str]:
    """Return one line of JSON for each committed file. Raises PipelineError if a list is missing."""
    # The first line is the format's version.
    return [line for path in committed_lists(listed).values() for line in path.read_text().splitlines()[1:]]
