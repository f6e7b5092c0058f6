"""One broker that is its own controller, on loopback, in a folder of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from storage.checkpoints.identifiers import new_id
from storage.config.properties import format_properties
from testing.broker.libraries import Java
from testing.processes import ending_with_this

START_TIMEOUT_SECONDS = 90
STOP_TIMEOUT_SECONDS = 60
POLL_SECONDS = 0.1

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed node is let in again only when its old session has ended (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    # Indexes are preallocated: twice 10 MB a partition otherwise, which tests would copy.
    "log.index.size.max.bytes": "65536",
}
"""One node, small indexes, and every background duty soon."""


class BrokerError(Exception):
    """The broker did not do what was asked; the end of its log is in the message."""


class Broker:
    """A node over `home`: `home/log` is its log directory, `home/broker.log` what it printed.

    It may be started, stopped, killed and started again; leaving it as a context manager always ends it.
    """

    def __init__(self, home: Path, java: Java, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.log_dir = home / "log"
        self._java = java
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = _free_ports(2)

    @property
    def bootstrap_server(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()

    def format(self) -> None:
        """Make a new cluster of this one node."""
        self.log_dir.mkdir(parents=True)
        self._properties_file.write_bytes(format_properties(self._properties()))
        command = self._java.command(
            "kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(self._properties_file)
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"format: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Run, and return when clients are served."""
        assert not self.running
        command = self._java.command(
            "kafka.Kafka", str(self._properties_file), heap="512M", temporary=self.home
        )
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(
                ending_with_this(command, "KILL"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_served()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly: the marker is written."""
        self._end(signal.SIGTERM)
        if not (self.log_dir / ".kafka_cleanshutdown").exists():
            raise BrokerError(f"stopped, but not cleanly\n{self._last_lines()}")

    def kill(self) -> None:
        """End at once, as by kill -9."""
        self._end(signal.SIGKILL)

    @contextmanager
    def stopped(self) -> Iterator[Path]:
        """The log directory in a block in which the broker is cleanly stopped; it is started again afterwards."""
        self.stop()
        yield self.log_dir
        self.start()

    @property
    def _properties_file(self) -> Path:
        return self.home / "server.properties"

    @property
    def _output_file(self) -> Path:
        return self.home / "broker.log"

    def _properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://{self.bootstrap_server},CONTROLLER://127.0.0.1:{self._controller_port}"
        return {
            **SETTINGS,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.log_dir),
            **self._settings,
        }

    def _wait_until_served(self) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap_server, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise BrokerError(f"ended while starting\n{self._last_lines()}")
            if self._accepts() and _has_broker(client):
                return
            time.sleep(POLL_SECONDS)
        raise BrokerError(f"not ready after {START_TIMEOUT_SECONDS} s\n{self._last_lines()}")

    def _accepts(self) -> bool:
        """Return whether the port is open: librdkafka itself would wait ever longer between two attempts."""
        with ExitStack() as stack:
            try:
                stack.enter_context(socket.create_connection(("127.0.0.1", self._port), timeout=1))
            except OSError:
                return False
        return True

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BrokerError(
                f"did not stop in {STOP_TIMEOUT_SECONDS} s: killed\n{self._last_lines()}"
            ) from None

    def _last_lines(self, count: int = 30) -> str:
        return "\n".join(self._output_file.read_text(errors="replace").splitlines()[-count:])


@contextmanager
def running_broker(home: Path, java: Java, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Format and start a broker in the new folder `home`; it is ended afterwards whatever happened."""
    with Broker(home, java, settings) as broker:
        broker.format()
        broker.start()
        yield broker


def _has_broker(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def _free_ports(count: int) -> list[int]:
    """Free ports; each is kept open until all are known, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
