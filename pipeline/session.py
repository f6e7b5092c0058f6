"""A Spark session of one's own, for commands: on this machine, quiet, and with this interpreter in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.errors import SparkMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def local_session(*, show_progress: bool) -> Iterator[SparkSession]:
    """A session that ends with the block. SparkMissingError without pyspark and pyarrow."""
    try:
        import pyarrow  # noqa: F401, ICN001, PLC0415 (asked for only whether it is there)
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415 (everything else works without Spark)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"pyspark", "pyarrow"}:
            raise SparkMissingError from None
        raise
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(show_progress).lower(),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = Session.builder.appName("topicfs")
    if "SPARK_REMOTE" not in os.environ and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
