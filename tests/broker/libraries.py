"""Kafka's jars, fetched once by Maven into a cache folder, and the Java that runs them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

POM = Path(__file__).with_name("pom.xml")
VARIABLE = "TOPICFS_KAFKA_LIBS"
"""Names a folder that has the jars already; nothing is fetched then."""

MINIMUM_JAVA = 17
FETCH_TIMEOUT_SECONDS = 280
"""Below the time limit of a test, so that the reason is told."""


class UnavailableError(Exception):
    """Java, Maven or the jars cannot be had here; one line says which and why."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java machine and Kafka's classes."""

    program: str
    jars: Path
    """The folder of the jars."""

    def command(
        self, main_class: str, *arguments: str, heap: str = "256M", temporary: Path | None = None
    ) -> list[str]:
        """What to run for one of Kafka's main classes; the flags are for a quick start, not for speed.

        `temporary` is where native libraries are unpacked, which stay there when the process is killed.
        """
        return [
            self.program,
            *([f"-Djava.io.tmpdir={temporary}"] if temporary else []),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]


def find_java() -> Java:
    """Have everything ready to run a broker; raises UnavailableError."""
    return Java(_find_program(), _find_jars())


def _find_program() -> str:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if program is None:
        raise UnavailableError(f"no java: install a Java {MINIMUM_JAVA} runtime (openjdk-17-jre-headless)")
    output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        raise UnavailableError(f"{program} is not Java {MINIMUM_JAVA} or newer: {output.splitlines()[:1]}")
    return program


def _find_jars() -> Path:
    given = os.environ.get(VARIABLE)
    if given:
        if not any(Path(given).glob("kafka_2.13-*.jar")):
            raise UnavailableError(f"{VARIABLE}={given}: no Kafka jars there")
        return Path(given)
    fingerprint = hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    jars = user_cache_path("topicfs") / f"kafka-{fingerprint}"
    if not jars.is_dir():
        _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    """Let Maven copy the jars beside `jars`, then rename the whole folder: it is there complete or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"no mvn: install Maven, or name a folder of Kafka's jars in {VARIABLE}")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=jars.parent) as folder:
        output = Path(folder) / "jars"
        _run_maven(maven, output)
        try:
            output.rename(jars)
        except OSError:
            if not jars.is_dir():  # Otherwise somebody else fetched the same meanwhile.
                raise


def _run_maven(maven: str, output: Path) -> None:
    command = [maven, "--quiet", "--batch-mode", "--file", str(POM), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={output}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"mvn did not fetch the jars in {FETCH_TIMEOUT_SECONDS} s") from None
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        raise UnavailableError(f"mvn could not fetch the jars: {' '.join(errors[:1]) or done.stderr[-300:]}")
