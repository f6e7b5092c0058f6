"""Kafka's jars, which Maven fetches once into a cache folder, and the Java that runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from testing.java import PLAIN_FLAGS, quick_start
from topicfs.pipeline.connector import Jars, JarsMissingError

KAFKA = Jars(
    name="kafka",
    pom=Path(__file__).with_name("pom.xml"),
    variable="TOPICFS_KAFKA_LIBS",
    first="kafka_2.13-*.jar",
)
"""A broker and its command line tools."""

MINIMUM_JAVA = 17


class UnavailableError(Exception):
    """Java, Maven or the jars are not available; the message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime and Kafka's classes."""

    program: str
    jars: Path
    """The folder with the jars."""
    flags: Sequence[str] = field(default_factory=lambda: quick_start("kafka"))
    """Flags for each started JVM."""

    def command(
        self, main_class: str, *arguments: str, heap: str = "256M", temporary: Path | None = None
    ) -> list[str]:
        """Return the command that runs one of Kafka's main classes.

        Native libraries are unpacked in `temporary`, and stay there if the process is killed.
        """
        return [
            self.program,
            *([f"-Djava.io.tmpdir={temporary}"] if temporary else []),
            f"-Xmx{heap}",
            *self.flags,
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]


def find_java() -> Java:
    """Prepare everything that a broker needs to run. Raises UnavailableError."""
    return Java(_find_program(), _find_jars(KAFKA))


def find_java_of(release: str) -> Java:
    """Prepare everything that a broker of another release of Kafka needs to run. Raises UnavailableError."""
    with tempfile.TemporaryDirectory() as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(re.sub(r"(?<=<kafka\.version>)[^<]+", release, KAFKA.pom.read_text()))
        variable = f"{KAFKA.variable}_{release.replace('.', '_')}"
        jars = replace(KAFKA, name=f"kafka-{release}", pom=pom, variable=variable)
        return Java(_find_program(), _find_jars(jars), flags=PLAIN_FLAGS)


def _find_program() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if program is None:
        raise UnavailableError(f"no java: install a JDK {MINIMUM_JAVA} (openjdk-17-jdk-headless)")
    output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        raise UnavailableError(f"{program} is not Java {MINIMUM_JAVA} or newer: {output.splitlines()[:1]}")
    return program


def _find_jars(jars: Jars) -> Path:
    try:
        return jars.folder()
    except JarsMissingError as error:
        raise UnavailableError(str(error)) from None
