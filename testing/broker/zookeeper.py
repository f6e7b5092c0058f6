"""A broker of Kafka 2.8, which keeps its cluster's metadata in a ZooKeeper of its own: without one that release has no transactions."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from testing.broker.broker import Broker
from testing.broker.libraries import Java
from testing.processes import ending_with_this
from topicfs.storage.config.properties import format_properties

WITHOUT_ZOOKEEPER = frozenset(
    {
        "process.roles",
        "node.id",
        "controller.listener.names",
        "controller.quorum.voters",
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "metadata.max.idle.interval.ms",
    }
)
"""Settings of a broker that is, or has, a controller of Kafka's own."""


class ZooKeeperBroker(Broker):
    """A broker and its ZooKeeper, which listens where another broker's controller would."""

    def __init__(self, home: Path, java: Java, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(home, java, settings)
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()

    def format(self, *, by_tool: bool = False) -> None:  # noqa: ARG002 (it has no such tool)
        """Write the settings: this release formats an empty directory itself when it starts."""
        self.log_dir.mkdir(parents=True)
        self._properties_file.write_bytes(format_properties(self._properties()))

    def launch(self) -> None:
        """Run both. Call this from the main thread, as for any broker."""
        if self._zookeeper is None:
            settings = {
                "dataDir": str(self.home / "zookeeper"),
                "clientPort": str(self.controller_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            }
            file = self.home / "zookeeper.properties"
            file.write_bytes(format_properties(settings))
            program = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = self._java.command(program, str(file), heap="128M", temporary=self.home)
            with (self.home / "zookeeper.log").open("wb") as output:
                self._zookeeper = subprocess.Popen(
                    ending_with_this(command, "KILL"),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        super().launch()

    def _properties(self) -> dict[str, str]:
        given = super()._properties()
        kept = {name: value for name, value in given.items() if name not in WITHOUT_ZOOKEEPER}
        return {
            **kept,
            "listeners": given["advertised.listeners"],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "broker.id": str(self.node),
            "zookeeper.connect": f"127.0.0.1:{self.controller_port}",
        }
