"""Settings with which a session finds Spark's Kafka connector, beside those that a user made.

Jars are named before the session's Java machine starts, or never. A user's own packages, or a connector among a user's
own jars, win: then nothing is added, and nothing fetched.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

from topicfs.pipeline.connector.maven import CONNECTOR
from topicfs.pipeline.errors import PipelineError
from topicfs.storage.config.properties import PropertiesError, parse_properties

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
_FLAGS = {"--packages": PACKAGES, "--jars": JARS}


def settings_of_session(
    spark_home: Path,
    jars: Callable[[], Path],
    given: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the settings that a session in this environment needs, beside those `given` for it.

    Raises PipelineError, OSError; blocking.
    """
    return connector_settings(
        defaults={**spark_defaults(spark_home, environment), **given},
        arguments=submit_arguments(environment),
        present=has_connector(spark_home),
        jars=jars,
    )


def connector_settings(
    *, defaults: Mapping[str, str], arguments: Mapping[str, str], present: bool, jars: Callable[[], Path]
) -> dict[str, str]:
    """Return what to set, for a user's `defaults` (of the session, of spark-defaults.conf) and `arguments` (of spark-submit).

    `present`: Spark's own folder of jars has a connector. `jars` is asked only where it is needed, and raises
    what it raises.
    """
    named = arguments.get(JARS, defaults.get(JARS, ""))
    if present or PACKAGES in defaults or PACKAGES in arguments or _names_connector(named):
        return {}
    if JARS in arguments:
        # What is given there overrides what a session sets, so the two cannot be joined.
        raise PipelineError(
            f"PYSPARK_SUBMIT_ARGS names jars, but not Spark's Kafka connector; add its jars there: {joined(jars())}"
        )
    return {JARS: ",".join(filter(None, [named.strip(), joined(jars())]))}


def spark_defaults(spark_home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Read `spark-defaults.conf`, if there is one (PipelineError, OSError)."""
    file = Path(environment.get("SPARK_CONF_DIR") or spark_home / "conf") / "spark-defaults.conf"
    try:
        return parse_properties(file.read_bytes())
    except FileNotFoundError:
        return {}
    except PropertiesError as error:
        raise PipelineError(f"{file}: {error}") from None


def submit_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among what `PYSPARK_SUBMIT_ARGS` passes to spark-submit; of one given twice the last (PipelineError)."""
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError as error:
        raise PipelineError(f"PYSPARK_SUBMIT_ARGS: {error}") from None
    words = [part for word in words for part in _parts(word)]
    found = {}
    for word, following in pairwise(words):
        if word in _FLAGS:
            found[_FLAGS[word]] = following
        elif word in {"--conf", "-c"}:
            name, _, value = following.partition("=")
            found[name] = value
    return found


def has_connector(spark_home: Path) -> bool:
    """Return whether the connector is among Spark's own jars."""
    return any((spark_home / "jars").glob(CONNECTOR.first))


def _parts(word: str) -> list[str]:
    """Return a word's parts: `--packages=a:b:c` is two words in one."""
    flag, equals, value = word.partition("=")
    return [flag, value] if equals and flag.startswith("--") else [word]


def _names_connector(jars: str) -> bool:
    return any(fnmatch(jar.strip().rpartition("/")[2], CONNECTOR.first) for jar in jars.split(","))


def joined(folder: Path) -> str:
    """Name all jars of a folder, as `spark.jars` takes them."""
    return ",".join(str(jar) for jar in sorted(folder.absolute().glob("*.jar")))
