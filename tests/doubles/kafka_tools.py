"""Runs Kafka's command line tools, which take one to two seconds to start, and kcat."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from testing.broker.libraries import Java

TIMEOUT_SECONDS = 120


class Output(NamedTuple):
    stdout: str
    stderr: str


def run_tool(java: Java, main_class: str, *arguments: str, directory: Path | None = None) -> Output:
    """Run a tool to its end, in `directory` for relative file names. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        java.command(main_class, *arguments),
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
        cwd=directory,
    )
    return Output(done.stdout, done.stderr)


def dump(java: Java, files: Iterable[Path], *flags: str, directory: Path | None = None) -> Output:
    """Print segment and index files as kafka-dump-log does, all files in one call.

    The exit status has no meaning: mismatches are lines on standard error.
    """
    names = ",".join(str(file) for file in files)
    return run_tool(
        java, "org.apache.kafka.tools.DumpLogSegments", *flags, "--files", names, directory=directory
    )


def console_produce(
    java: Java, bootstrap_server: str, topic: str, *flags: str, lines: Iterable[str]
) -> subprocess.CompletedProcess[str]:
    """Produce a record for each line with the console producer."""
    at = ("--bootstrap-server", bootstrap_server, "--topic", topic)
    return subprocess.run(
        java.command("org.apache.kafka.tools.ConsoleProducer", *at, *flags),
        input="".join(f"{line}\n" for line in lines),
        text=True,
        check=True,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
    )


def console_consume(
    java: Java, bootstrap_server: str, topic: str, *flags: str, partition: int = 0, count: int
) -> list[str]:
    """Read `count` records from the start with the console consumer; return a line for each record."""
    output = run_tool(
        java,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap_server, "--topic", topic, "--partition", str(partition)),
        *("--offset", "0", "--max-messages", str(count), "--timeout-ms", "30000"),
        *flags,
    )
    return output.stdout.splitlines()


def consume_by_kcat(
    bootstrap_server: str, topic: str, *, partition: int = 0, start: str = "beginning"
) -> list[dict[str, Any]]:
    """Read to the current end with kcat, a second client; return the JSON that `kcat -J` prints for each record."""
    options = f"-C -b {bootstrap_server} -t {topic} -p {partition} -o {start} -e -q -J"
    done = subprocess.run(
        ["kcat", *options.split()],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
