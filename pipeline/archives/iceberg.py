"""An archive that is an Iceberg table, through pyiceberg, which is imported when an archive is one.

ARCHIVE/catalog.db       the catalog, of SQLite: where the table's newest metadata are
ARCHIVE/metadata/        the table's metadata
ARCHIVE/topic=…/date=…/  its files
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from topicfs.pipeline.errors import IcebergMissingError, needing

Table: TypeAlias = Any
"""pyiceberg is imported late."""
CATALOG = "catalog.db"
NAME = "topicfs.records"


def is_iceberg(archive: Path) -> bool:
    return (archive / CATALOG).is_file()


def open_catalog(archive: Path) -> Any:
    """Return the catalog in an archive, which is made where there is none (IcebergMissingError)."""
    with needing(IcebergMissingError, "pyiceberg", "sqlalchemy"):
        from pyiceberg.catalog.sql import SqlCatalog
    return SqlCatalog(
        "topicfs", uri=f"sqlite:///{archive.absolute() / CATALOG}", warehouse=f"file://{archive.absolute()}"
    )


def table_files(archive: Path) -> list[str]:
    """Return the addresses of the table's files ; none where a run was killed before it made the table (IcebergMissingError)."""
    catalog = open_catalog(archive)
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(NAME)
        return [one.file.file_path for one in table.scan().plan_files()]
    except NoSuchTableError:
        return []
    finally:
        catalog.close()
