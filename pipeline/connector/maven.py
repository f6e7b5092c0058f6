"""The jars that a pom names, fetched once by Maven into the user's cache: a folder of them is there whole or not at all.

A pom's folder is named after its content: another version of it, or another set of jars, is another folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from topicfs.pipeline.errors import PipelineError

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
