"""Spark's own Kafka connector: Maven fetches its jars once into the user's cache, and a session loads them.

Only `pom.xml` has the versions of the jars. A folder of jars is either complete or absent. The folder's name has a
hash of the pom, so that each version has its own folder. Jars are fetched only for a place that is a Kafka cluster.

The jars must be named before the session's JVM starts. If the user's settings already name packages, or jars of a
connector, no setting is added and nothing is fetched.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

from platformdirs import user_cache_path

from topicfs.pipeline.errors import PipelineError
from topicfs.storage.config.properties import PropertiesError, parse_properties

_LOGGER = logging.getLogger(__name__)

COLORS = re.compile("\x1b\\[[0-9;]*m")
"""Escape sequences of colors, which Debian's Maven prints even with --batch-mode."""
DOWNLOAD_TIMEOUT_SECONDS = 280
"""Time limit of a fetch in seconds. A slow network needs two minutes.

Tests have a longer time limit, so that the fetch can report why it failed.
"""


class JarsMissingError(PipelineError):
    """The jars are missing and cannot be fetched; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars that Maven can fetch."""

    name: str
    """Name of the jars' folder in the cache, and of the jars in messages."""
    pom: Path
    variable: str
    """Environment variable that may name a folder with the jars; if it is set, nothing is fetched."""
    first: str
    """Glob that one of the jars must match: a folder without a match is refused."""

    def folder(self, *, say: Callable[[str], object] = _LOGGER.warning) -> Path:
        """Return the jars' folder; announce and fetch missing jars (blocking). Raises JarsMissingError, OSError."""
        given = os.environ.get(self.variable)
        if given:
            if not any(Path(given).glob(self.first)):
                raise JarsMissingError(f"{self.variable}={given}: this folder has no {self.first}")
            return Path(given)
        fingerprint = hashlib.sha256(self.pom.read_bytes()).hexdigest()[:16]
        folder = user_cache_path("topicfs") / f"{self.name}-{fingerprint}"
        if not folder.is_dir():
            self._fetch(folder, say)
        return folder

    def _fetch(self, folder: Path, say: Callable[[str], object]) -> None:
        """Let Maven copy the jars to a temporary folder, then rename it to `folder`, so that `folder` is complete."""
        maven = shutil.which("mvn")
        if maven is None:
            raise JarsMissingError(
                f"fetching the jars of {self.name} needs mvn: install Maven, or name a folder that has them in {self.variable}"
            )
        say(f"fetching the jars of {self.name} into {folder} (once; a minute at most)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as beside:
            output = Path(beside) / "jars"
            self._run(maven, output)
            try:
                output.rename(folder)
            except OSError:
                if not folder.is_dir():  # If the folder exists, another process has fetched the same jars.
                    raise

    def _run(self, maven: str, output: Path) -> None:
        command = [maven, "--quiet", "--batch-mode", "--file", str(self.pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={output}"]
        try:
            done = subprocess.run(  # noqa: S603 (our own pom, no shell)
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=DOWNLOAD_TIMEOUT_SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise JarsMissingError(
                f"{maven} did not fetch the jars of {self.name} in {DOWNLOAD_TIMEOUT_SECONDS} s; try again, or name a folder "
                f"that has them in {self.variable}"
            ) from None
        if done.returncode or not any(output.glob(self.first)):
            raise JarsMissingError(
                f"{maven} could not fetch the jars of {self.name}: {_cause(done.stdout + done.stderr)}; "
                f"fix this, or name a folder that has them in {self.variable}"
            )


def _cause(printed: str) -> str:
    """Return Maven's first error line, which names what could not be fetched; if there is none, Maven's last line."""
    lines = [line.strip() for line in COLORS.sub("", printed).splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR] ")]
    return (errors or lines[-1:] or ["it printed nothing"])[0]


CONNECTOR = Jars(
    name="spark-kafka",
    pom=Path(__file__).with_name("pom.xml"),
    variable="TOPICFS_SPARK_KAFKA_JARS",
    first="spark-sql-kafka-0-10_*.jar",
)
"""Spark's Kafka connector, with its dependencies that Spark itself does not have."""

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
_FLAGS = {"--packages": PACKAGES, "--jars": JARS}


def settings_of_session(
    spark_home: Path,
    jars: Callable[[], Path],
    given: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the setting that makes a session in this environment load the connector, in addition to `given`.

    Return no setting if the user's settings, or Spark's own jars, have a connector. `jars` is called only if its folder
    is needed, and may raise.
    """
    defaults = {**spark_defaults(spark_home, environment), **given}
    arguments = submit_arguments(environment)
    named = arguments.get(JARS, defaults.get(JARS, ""))
    if (
        any((spark_home / "jars").glob(CONNECTOR.first))
        or PACKAGES in {**defaults, **arguments}
        or any(fnmatch(jar.strip().rpartition("/")[2], CONNECTOR.first) for jar in named.split(","))
    ):
        return {}
    if JARS in arguments:
        # Jars in these arguments override the jars that a session sets, so the two lists cannot be combined.
        raise PipelineError(
            f"PYSPARK_SUBMIT_ARGS names jars, but not Spark's Kafka connector; add its jars there: {joined(jars())}"
        )
    return {JARS: ",".join(filter(None, [named.strip(), joined(jars())]))}


def spark_defaults(spark_home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Read `spark-defaults.conf`; return an empty result if the file does not exist. Raises PipelineError, OSError."""
    file = Path(environment.get("SPARK_CONF_DIR") or spark_home / "conf") / "spark-defaults.conf"
    try:
        return parse_properties(file.read_bytes())
    except FileNotFoundError:
        return {}
    except PropertiesError as error:
        raise PipelineError(f"{file}: {error}") from None


def submit_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return spark-submit's settings in `PYSPARK_SUBMIT_ARGS`; a name's last value counts. Raises PipelineError."""
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


def _parts(word: str) -> list[str]:
    """Split an argument such as `--packages=a:b:c` into flag and value; other arguments stay whole."""
    flag, equals, value = word.partition("=")
    return [flag, value] if equals and flag.startswith("--") else [word]


def joined(folder: Path) -> str:
    """Return the paths of all jars of a folder, separated by commas, as `spark.jars` takes them."""
    return ",".join(str(jar) for jar in sorted(folder.absolute().glob("*.jar")))
