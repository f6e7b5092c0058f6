"""The Spark session of a command: quiet, in UTC, and with this Python interpreter in its workers.

Spark's own rules decide where Spark runs: the master given here, otherwise MASTER or SPARK_REMOTE of the environment,
otherwise `spark.master` of spark-defaults.conf, otherwise every core of this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from topicfs.pipeline.errors import SparkMissingError, needing
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.tasks.output import redirected_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of the session that the user sets."""

    master: str | None = None
    """Spark's master URL; None: from the environment or Spark's own configuration."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings by name. They override the settings of `job_session`."""


@contextmanager
def job_session(
    options: SessionOptions,
    *,
    stderr: IO[bytes] | None = None,
    places: Iterable[SparkPlace] = (),
    say: Callable[[str], object] | None = None,
) -> Iterator[SparkSession]:
    """Yield a session that can reach `places`, and stop it after the block; `say` gets a line before jars are fetched.

    `stderr` gets the standard error of Spark's processes. Raises SparkMissingError if pyspark or pyarrow is missing,
    PipelineError if the jars of Spark's Kafka connector cannot be fetched.
    """
    with needing(SparkMissingError, "pyspark", "pyarrow"):
        import pyarrow  # noqa: F401, ICN001 (imported only to see that it exists)
        from pyspark.sql import SparkSession as Session
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # All records pass between Spark and its Python processes through this socket, which is cheaper than
        # TCP on the loopback.
        "spark.python.unix.domain.socket.enabled": "true",
        **options.settings,
    }
    if any(place.is_kafka for place in places) and "SPARK_REMOTE" not in os.environ:
        settings |= _connector(options.settings, say)
    builder = Session.builder.appName("topicfs")
    if options.master is not None:
        builder = builder.master(options.master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with redirected_stderr(stderr):
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _connector(given: Mapping[str, str], say: Callable[[str], object] | None) -> dict[str, str]:
    """Return the settings that load Spark's Kafka connector; empty if the user's own settings load a connector."""
    import pyspark

    from topicfs.pipeline.connector import CONNECTOR, settings_of_session

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    jars = CONNECTOR.folder if say is None else lambda: CONNECTOR.folder(say=say)
    return settings_of_session(home, jars, given)
