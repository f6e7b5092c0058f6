"""The place of a job's topics: data directories on this machine, or a Kafka cluster.

    /srv/topics    /srv/a,/srv/b    /srv/*/data         data directories, as `pipeline.places.paths` takes them
    kafka://host:9092    kafka://one:9092,two:9092      brokers of one cluster

Both kinds of places take the same options, except those that name the place. So a job's code works for both:

    spark.read.format(place.format).options(**place.options, subscribe="orders")
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from topicfs.cluster.place import EXAMPLE, SCHEME, cluster_address, is_cluster
from topicfs.cluster.protocol.java_client import for_java
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.paths import absolute, data_directories
from topicfs.storage.messages import reason_of

_ANY_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class SparkPlace:
    path: str | None = None
    """Data directories, as in the format's option `path`; None for a cluster."""
    bootstrap_servers: str | None = None
    """Brokers as `host:port`, separated by commas; None for data directories."""
    client_config: Path | None = None
    """File with the settings of connections to the cluster, under the names of Kafka's Java clients."""
    without: str = ""
    """The option `without` of `format("topicfs")`: lost replica directories, separated by commas."""
    settings: Mapping[str, str] | None = field(default=None, repr=False)
    """The settings in `client_config`, with their secrets. `resolved` sets this field for tasks."""

    @property
    def is_kafka(self) -> bool:
        return self.bootstrap_servers is not None

    @property
    def format(self) -> str:
        return "kafka" if self.is_kafka else "topicfs"

    @property
    def left_out(self) -> tuple[Path, ...]:
        """The directories in `without`, absolute."""
        return absolute(self.without)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The data directories that are not in `without`, absolute. Raises PipelineError if a name matches none."""
        return data_directories(self.path or "", self.left_out)

    @property
    def options(self) -> dict[str, str]:
        """The format's options for the place and its connections. Raises InvalidConfigError, OSError."""
        if self.bootstrap_servers is not None:
            settings = {} if self.client_config is None else for_java(self.client_config)
            settings = {"bootstrap.servers": self.bootstrap_servers, **settings}
            return {f"kafka.{name}": value for name, value in settings.items()}
        return {"path": self.path or "", **({"without": self.without} if self.without else {})}

    def resolved(self) -> SparkPlace:
        """Return a copy that contains the secrets, because the environment of a task may lack them.

        Raises InvalidConfigError, OSError.
        """
        return self if self.client_config is None else replace(self, settings=for_java(self.client_config))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap_servers}" if self.is_kafka else self.path or ""


def place_of(text: str | SparkPlace) -> SparkPlace:
    """Return the place that `text` names, whether or not it exists; return a SparkPlace unchanged.

    Raises PipelineError, AddressError.
    """
    if isinstance(text, SparkPlace):
        return text
    text = text.strip()
    if not text:
        raise PipelineError(f"a place is a data directory, or a cluster: {EXAMPLE}")
    if is_cluster(text):
        return SparkPlace(bootstrap_servers=cluster_address(text).bootstrap_servers)
    for name in text.split(","):
        scheme = _ANY_SCHEME.match(name.strip())
        if scheme is not None and scheme[0].lower() != "file://":
            unfit = f"places of the kind {scheme[0]} are not supported"
            if scheme[0].lower() == SCHEME:
                unfit = "a cluster and a directory are not one place"
            raise PipelineError(f"{text}: {unfit}; name data directories, or a cluster: {EXAMPLE}")
    return SparkPlace(path=text)


BROKER_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for each broker in the place."""


def require_reachable(place: SparkPlace) -> None:
    """Return when one of the place's brokers accepts a connection (blocking). Raises PipelineError if none does."""
    reasons = []
    for server in cluster_address(str(place)).servers:
        try:
            socket.create_connection(server, timeout=BROKER_TIMEOUT_SECONDS).close()
        except (OSError, UnicodeError) as error:
            reasons.append(f"{server}: {reason_of(error)}")
        else:
            return
    raise PipelineError(f"{place}: no broker can be reached ({'; '.join(reasons)})")
