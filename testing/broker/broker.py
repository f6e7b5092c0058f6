"""Brokers on loopback, each in its own folder: one broker that is its own controller, or a cluster of three."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testing.broker.formatting import format_by_tool, format_directory
from testing.broker.libraries import Java
from testing.broker.proxy import Proxy
from testing.ports import reserve_ports
from testing.processes import ending_with_this
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.config.properties import format_properties

START_TIMEOUT_SECONDS = 240
STOP_TIMEOUT_SECONDS = 60
POLL_SECONDS = 0.1

SETTINGS: Mapping[str, str] = {
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
    # A killed node is accepted again only after its old session has ended (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Time between an idle controller's writes to its log (500 ms by default).
    "metadata.max.idle.interval.ms": "5000",
    # Few threads, because each idle thread wakes up three times a second, in the broker and in the
    # controller.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    # Indexes are preallocated: by default 2 × 10 MB per partition, which tests would have to copy.
    "log.index.size.max.bytes": "65536",
}
"""Settings for one node, with small indexes and short periods of all background duties."""


class BrokerError(Exception):
    """The broker did not do what was requested. The message contains the end of the broker's log."""


class Broker:
    """A node in the folder `home`: `home/log` is its log directory, `home/broker.log` its output.

    It may be started, stopped, killed and started again; leaving the context manager always ends the node.
    """

    def __init__(
        self,
        home: Path,
        java: Java,
        settings: Mapping[str, str] | None = None,
        *,
        protocols: Sequence[str] = (),
        node: int = 1,
        controller: Broker | None = None,
        may_be_cut_off: bool = False,
    ) -> None:
        """`protocols`: protocols that get a listener each, besides plain text (SSL, SASL_PLAINTEXT, SASL_SSL).

        `controller`: another broker whose controller this broker uses. Required if this broker `may_be_cut_off`.
        """
        self.home = home
        self.node = node
        self.cluster_id: str = controller.cluster_id if controller else new_id()
        self.log_dir = home / "log"
        self._java = java
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._controller = controller
        self._port, self.controller_port, *ports = reserve_ports(2 + len(protocols))
        self.ports: Mapping[str, int] = dict(zip(protocols, ports, strict=True))
        """Ports by protocol; the certificates are for `localhost`."""
        self._ways: tuple[Proxy, ...] = ()
        """Proxies from clients to the broker, and from the broker to its controller."""
        if may_be_cut_off and controller is not None:
            self._ways = Proxy(self._port), Proxy(controller.controller_port)

    @property
    def bootstrap_server(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The ID of the broker's running process, or of its last process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def works(self) -> bool:
        """Return whether the broker runs, is not paused, and accepts connections."""
        return (
            self._process is not None
            and self.running
            and not _stands_still(self._process.pid)
            and self._accepts()
        )

    def knows(self, count: int) -> bool:
        """Return whether this broker considers `count` brokers alive."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_server, "log_level": 0})
        return count == len(client.list_topics(timeout=START_TIMEOUT_SECONDS).brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()
        for way in self._ways:
            way.close()

    def format(self, *, by_tool: bool = False) -> None:
        """Format this node's directory for a new cluster.

        With `by_tool`, Kafka's own tool does it, as older releases require.
        """
        properties = self._properties()
        self.home.mkdir(parents=True, exist_ok=True)
        self._properties_file.write_bytes(format_properties(properties))
        if by_tool:
            self.log_dir.mkdir()
            format_by_tool(self._java, self._properties_file, cluster_id=self.cluster_id)
        else:
            format_directory(self.log_dir, self._java, properties, cluster_id=self.cluster_id, node=self.node)

    def start(self) -> None:
        """Start the broker, and return when it serves clients."""
        self.launch()
        self.wait_until_served()

    def launch(self) -> None:
        """Start the broker.

        Call this from the main thread, because the system ends the broker with the thread that started it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise BrokerError(
                "a broker that another thread starts ends with that thread: start it in the main thread"
            )
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

    def wait_until_served(self) -> None:
        """Return when the broker serves clients. Raises BrokerError, after killing it, if it does not serve in time."""
        try:
            self._wait_until_served()
        except BaseException:
            self.kill()
            raise

    def stop(self, *, seconds: float = STOP_TIMEOUT_SECONDS) -> None:
        """Shut down cleanly within `seconds`, which leaves the clean-shutdown marker."""
        self._end(signal.SIGTERM, seconds)
        if not (self.log_dir / ".kafka_cleanshutdown").exists():
            raise BrokerError(f"the broker did not stop cleanly\n{self._last_lines()}")

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the broker during a `with` block: connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The signal takes effect a moment later if the broker runs on another processor; until then a request
        # may be answered.
        while not _stands_still(self._process.pid):
            time.sleep(0.001)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """During a `with` block, disconnect the broker from clients and its controller: it learns of no new leaders."""
        assert self._ways
        with ExitStack() as stack:
            for way in self._ways:
                stack.enter_context(way.cut())
            yield

    @contextmanager
    def stopped(self) -> Iterator[Path]:
        """During a `with` block, keep the broker stopped after a clean shutdown; yields its log directory."""
        self.stop()
        try:
            yield self.log_dir
        finally:
            self.start()

    @property
    def _properties_file(self) -> Path:
        return self.home / "server.properties"

    @property
    def _output_file(self) -> Path:
        return self.home / "broker.log"

    def _properties(self) -> dict[str, str]:
        own = [f"PLAINTEXT://{self.bootstrap_server}"]
        own += [f"{protocol}://localhost:{port}" for protocol, port in self.ports.items()]
        controller = self._controller or self
        listeners = ",".join(own)
        if controller is self:
            listeners += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        advertised, voter = ",".join(own), controller.controller_port
        if self._ways:
            way_here, way_to_controller = self._ways
            advertised, voter = f"PLAINTEXT://127.0.0.1:{way_here.port}", way_to_controller.port
        known = ",".join(f"{protocol}:{protocol}" for protocol in self.ports)
        return {
            **SETTINGS,
            "process.roles": "broker,controller" if controller is self else "broker",
            "node.id": str(self.node),
            "listener.security.protocol.map": f"{SETTINGS['listener.security.protocol.map']}{known and ','}{known}",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"{controller.node}@127.0.0.1:{voter}",
            "log.dirs": str(self.log_dir),
            **self._settings,
        }

    def _wait_until_served(self) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap_server, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise BrokerError(f"the broker ended while it was starting\n{self._last_lines()}")
            if self._accepts() and _has_broker(client):
                return
            time.sleep(POLL_SECONDS)
        raise BrokerError(f"the broker was not ready after {START_TIMEOUT_SECONDS} s\n{self._last_lines()}")

    def _accepts(self) -> bool:
        """Return whether the port is open.

        Librdkafka is not used, because it waits longer and longer between attempts.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(socket.create_connection(("127.0.0.1", self._port), timeout=1))
            except OSError:
                return False
        return True

    def _end(self, number: signal.Signals, seconds: float) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BrokerError(
                f"the broker did not stop within {seconds:g} s, and was killed\n{self._last_lines()}"
            ) from None

    def _last_lines(self, count: int = 30) -> str:
        return "\n".join(self._output_file.read_text(errors="replace").splitlines()[-count:])


@contextmanager
def running_broker(
    home: Path, java: Java, settings: Mapping[str, str] | None = None, *, protocols: Sequence[str] = ()
) -> Iterator[Broker]:
    """Format and start a broker in the new folder `home`; it is always ended after the `with` block."""
    with Broker(home, java, settings, protocols=protocols) as broker:
        broker.format()
        broker.start()
        yield broker


@contextmanager
def running_cluster(
    home: Path, java: Java, settings: Mapping[str, str] | None = None
) -> Iterator[dict[int, Broker]]:
    """Run three brokers in the new folder `home`; yield them by number.

    The first is the controller and must stay alive. Kafka's own topics have a replica on each broker. The second
    broker may be cut off.
    """
    own = ("offsets.topic", "transaction.state.log")
    replicated = {f"{name}.replication.factor": "3" for name in own}
    # Longest time for which a follower's fetch waits for new records (500 ms by default).
    replicated |= {"replica.fetch.wait.max.ms": "2000", **(settings or {})}
    with ExitStack() as stack:
        first = Broker(home / "node1", java, replicated)
        others = [
            Broker(
                home / f"node{node}", java, replicated, node=node, controller=first, may_be_cut_off=node == 2
            )
            for node in (2, 3)
        ]
        brokers = [stack.enter_context(broker) for broker in (first, *others)]
        for broker in brokers:
            broker.format()
            broker.launch()
        for broker in brokers:
            broker.wait_until_served()
        yield {broker.node: broker for broker in brokers}


def _stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped."""
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False  # A thread has ended in the meantime.
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def _has_broker(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
