"""A listener in this process, and a client that sends any request in any version and returns the raw answer."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from topicfs.listener.address import Endpoint
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.listener.security.files import SecurityFiles
from topicfs.protocol.messages import API_VERSIONS, FETCH, METADATA, PRODUCE
from topicfs.protocol.notation import Api
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig

ANSWER_SECONDS = 60.0


class Served:
    """An engine over data directories, and its listener."""

    def __init__(
        self,
        directories: Sequence[Path],
        limits: ListenerLimits | None,
        config: EngineConfig,
        *,
        read_only: bool = False,
        security: SecurityFiles | None = None,
    ) -> None:
        self.engine = open_directories(
            directories, read_only=read_only, config=config, replicated=config.replication_factor > 1
        )
        options = ListenerOptions(
            endpoint=Endpoint("localhost" if security else "127.0.0.1", 0),
            limits=limits,
            security=security or SecurityFiles(),
        )
        self.listener = Listener(options)
        self.listener.serve(self.engine, config)
        self._clients: list[RawClient] = []

    @property
    def address(self) -> str:
        return str(self.listener.endpoint)

    def client(self, tls: ssl.SSLContext | None = None) -> RawClient:
        self._clients.append(RawClient(self.address, tls))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.listener.close()
        self.engine.close()


def serve(
    directories: Sequence[Path],
    *,
    limits: ListenerLimits | None = None,
    security: SecurityFiles | None = None,
    **settings: Any,
) -> Served:
    return Served(directories, limits, EngineConfig(**settings), security=security)


class RawClient:
    """A connection that can send any request, even one that the listener refuses."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._correlation = 0

    def close(self) -> None:
        self.socket.close()

    def ask(self, api: Api, values: Mapping[str, Any], version: int | None = None) -> dict[str, Any]:
        """Send a request, and return the fields of its answer."""
        version = api.request.versions[-1] if version is None else version
        self.send(api, values, version)
        return api.response.read(self.receive(api, version), version)

    def send(self, api: Api, values: Mapping[str, Any], version: int) -> None:
        self._correlation += 1
        head = struct.pack(">hhih", api.key, version, self._correlation, 4) + b"test"
        self.frame(head + (b"\0" if api.is_flexible(version) else b"") + api.request.write(values, version))

    def frame(self, content: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def receive(self, api: Api, version: int) -> bytes:
        """Return an answer's bytes that follow its header."""
        answer = self.receive_frame()
        assert self._correlation == struct.unpack_from(">i", answer)[0]
        if api.key == API_VERSIONS.key or not api.is_flexible(version):
            return answer[4:]
        assert 0 == answer[4]
        return answer[5:]

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Wait until the server closes the connection. Return False if the server sends a byte instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    # Requests that many tests send.

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic's metadata; create the topic if it is missing."""
        asked = {"topics": [{"name": name}], "allowAutoTopicCreation": True}
        (found,) = self.ask(METADATA, asked, 12)["topics"]
        return found

    def produce(self, topic: str, records: Any, *, acks: int = -1, version: int = 9, index: int = 0) -> Any:
        data = {"partitionData": [{"index": index, "records": records}]}
        data |= {"topicId": UUID(bytes=bytes(16))} if version >= 13 else {}
        asked = {
            "acks": acks,
            "timeoutMs": 5000,
            "topicData": [{"name": topic, **data}],
            "transactionalId": None,
        }
        (answered,) = self.ask(PRODUCE, asked, version)["responses"]
        return answered["partitionResponses"][0]

    def fetch(self, topic: str, offset: int = 0, *, version: int = 12, **how: Any) -> dict[str, Any]:
        """Fetch from one partition and return its part of the answer."""
        (found,) = self.ask(FETCH, fetching(topic, offset, **how), version)["responses"]
        return found["partitions"][0]


def fetching(topic: str, offset: int = 0, **how: Any) -> dict[str, Any]:
    """Return the fields of a Fetch request for one partition, outside of a session."""
    partition = {"partition": 0, "currentLeaderEpoch": -1, "fetchOffset": offset, "lastFetchedEpoch": -1}
    partition |= {"logStartOffset": -1, "partitionMaxBytes": 1 << 20}
    partition |= {name: how.pop(name) for name in list(how) if name in partition}
    asked = {"replicaId": -1, "maxWaitMs": 0, "minBytes": 1, "maxBytes": 1 << 20, "isolationLevel": 0}
    asked |= {"sessionId": 0, "sessionEpoch": -1, "forgottenTopicsData": [], "rackId": ""}
    return {**asked, "topics": [{"topic": topic, "partitions": [partition]}], **how}
