"""Spark's own Kafka connector: Maven fetches its jars once into the user's cache, and a session uses them.

`pom.xml` is the one place of their versions. A folder of jars is there whole or not at all; it is named after the content of
its pom, so that another version is another folder. Nothing is fetched where no place is a Kafka cluster.

Jars are named before the session's Java machine starts, or never. A user's own packages, or a connector among a user's
own jars, win: then nothing is added, and nothing fetched.
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
"""Debian's Maven prints them even where it is told not to."""
TIMEOUT_S = 280
"""For all of one pom: a slow network needs a minute or two. Below the time limit of a test, so that the reason is reported."""


class JarsMissingError(PipelineError):
    """The jars are not there and cannot be fetched; one line says why and what helps."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars."""

    name: str
    """Name of their folder in the cache, and in messages."""
    pom: Path
    variable: str
    """Environment variable that names a folder with the jars; nothing is fetched then."""
    first: str
    """A glob that matches one of them: a folder without it is another one."""

    def folder(self, *, say: Callable[[str], object] = _LOGGER.warning) -> Path:
        """Return the folder of the jars, fetched if need be; `say` gets a line before that (JarsMissingError, OSError; blocking)."""
        given = os.environ.get(self.variable)
        if given:
            if not any(Path(given).glob(self.first)):
                raise JarsMissingError(f"{self.variable}={given}: no {self.first} there")
            return Path(given)
        fingerprint = hashlib.sha256(self.pom.read_bytes()).hexdigest()[:16]
        folder = user_cache_path("topicfs") / f"{self.name}-{fingerprint}"
        if not folder.is_dir():
            self._fetch(folder, say)
        return folder

    def _fetch(self, folder: Path, say: Callable[[str], object]) -> None:
        """Have Maven copy the jars beside `folder`, then rename the copy: it is there complete or not at all."""
        maven = shutil.which("mvn")
        if maven is None:
            raise JarsMissingError(
                f"no mvn to fetch the jars of {self.name}: install Maven, or name a folder that has them in {self.variable}"
            )
        say(f"fetching the jars of {self.name} into {folder} (once; a minute at most)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as beside:
            output = Path(beside) / "jars"
            self._run(maven, output)
            try:
                output.rename(folder)
            except OSError:
                if not folder.is_dir():  # Otherwise another process fetched the same meanwhile.
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
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise JarsMissingError(
                f"{maven} did not fetch the jars of {self.name} in {TIMEOUT_S} s; try again, or name a folder "
                f"that has them in {self.variable}"
            ) from None
        if done.returncode or not any(output.glob(self.first)):
            raise JarsMissingError(
                f"{maven} could not fetch the jars of {self.name}: {_cause(done.stdout + done.stderr)}; "
                f"mend that, or name a folder that has them in {self.variable}"
            )


def _cause(printed: str) -> str:
    """Return Maven's first line of an error, which names what it could not get; else the last one that it printed."""
    lines = [line.strip() for line in COLORS.sub("", printed).splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR] ")]
    return (errors or lines[-1:] or ["it printed nothing"])[0]


CONNECTOR = Jars(
    name="spark-kafka",
    pom=Path(__file__).with_name("pom.xml"),
    variable="TOPICFS_SPARK_KAFKA_JARS",
    first="spark-sql-kafka-0-10_*.jar",
)
"""Spark's connector with what it needs beyond Spark itself."""

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
