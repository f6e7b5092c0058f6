"""A broker with ordinary settings and Java options, and programs that use it from a shell.

The broker of the tests is tuned to start fast and to run its duties often. This broker should be as fast as possible.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame.question import SkippedError
from testing.broker.broker import running_broker
from testing.broker.client import Client, let_go
from testing.broker.libraries import Java, UnavailableError, find_java

SETTINGS = {
    # Kafka's defaults of the settings that the tests change.
    "log.retention.check.interval.ms": "300000",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.flush.start.offset.checkpoint.interval.ms": "60000",
    "log.cleaner.backoff.ms": "15000",
    "log.index.size.max.bytes": "10485760",
    "num.network.threads": "3",
    "num.io.threads": "8",
}
BROKER_HEAP, TOOL_HEAP = "1G", "512M"
"""Heap of the broker, as in kafka-server-start.sh, and heap of the tools."""


class ServerJava(Java):
    """Java with the options of Kafka's own scripts: the optimizing compiler, and the default collector."""

    def command(
        self, main_class: str, *arguments: str, heap: str = TOOL_HEAP, temporary: Path | None = None
    ) -> list[str]:
        heap = BROKER_HEAP if main_class == "kafka.Kafka" else heap
        return [
            self.program,
            *([f"-Djava.io.tmpdir={temporary}"] if temporary else []),
            f"-Xmx{heap}",
            f"-Xms{heap}",
            "-server",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]


@dataclass(frozen=True, slots=True)
class BrokerTools:
    """A running broker, and the commands of a user at a shell."""

    bootstrap_server: str
    java: ServerJava
    client: Client
    """A client for setup that is not measured."""
    pid: int

    def kcat(self, mode: str, topic: str, *flags: str) -> list[str]:
        return ["kcat", mode, "-b", self.bootstrap_server, "-t", topic, "-p", "0", *flags]

    def perf_producer(self, topic: str, records: int, payload: Path, *properties: str) -> list[str]:
        """Return the command that produces lines of the file `payload`, in random order."""
        place = (
            "--bootstrap-server",
            self.bootstrap_server,
            "--topic",
            topic,
            "--payload-file",
            str(payload),
        )
        work = ("--num-records", str(records), "--throughput", "-1", "--command-property", *properties)
        return self.java.command("org.apache.kafka.tools.ProducerPerformance", *place, *work)

    def perf_consumer(self, topic: str, records: int) -> list[str]:
        place = ("--bootstrap-server", self.bootstrap_server, "--topic", topic, "--num-records", str(records))
        return self.java.command("org.apache.kafka.tools.ConsumerPerformance", *place, "--hide-header")

    def console_producer(self, topic: str) -> list[str]:
        main_class = "org.apache.kafka.tools.ConsoleProducer"
        return self.java.command(main_class, "--bootstrap-server", self.bootstrap_server, "--topic", topic)

    def console_consumer(self, topic: str, records: int) -> list[str]:
        main_class = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        server = ("--bootstrap-server", self.bootstrap_server)
        place = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(records))
        return self.java.command(main_class, *server, *place)


@contextmanager
def broker_tools(home: Path) -> Iterator[BrokerTools]:
    """Run a broker. Raises SkippedError if Java, Maven or kcat is missing."""
    if shutil.which("kcat") is None:
        raise SkippedError("kcat is missing: install the package kcat")
    try:
        found = find_java()
    except UnavailableError as error:
        raise SkippedError(str(error)) from None
    java = ServerJava(found.program, found.jars)
    with running_broker(home, java, SETTINGS) as broker:
        yield BrokerTools(broker.bootstrap_server, java, Client(broker.bootstrap_server), broker.pid)
        let_go()
        broker.stop()
