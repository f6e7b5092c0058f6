"""The fuzz target of a listener: the bytes that a client sends, in each state of a connection.

The first byte of an input selects the state (STATES). The client sends the other bytes in this state. The target
fails if an unexpected error is logged, or if a client that is not authenticated changes something.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

from tests.fuzz.changes import changed
from tests.listener.test_hostile_frames import SOFTWARE, head, sample
from topicfs.listener.address import Endpoint
from topicfs.listener.broker import Broker
from topicfs.listener.connection import ClientConnection
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.requests.table import REQUESTS
from topicfs.listener.security.files import ListenerSecurity, SecurityFiles
from topicfs.listener.security.users import entry
from topicfs.protocol.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from topicfs.protocol.notation import Api
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig

CORPUS = Path(__file__).parent / "frame_corpus"
LIMITS = ListenerLimits(
    max_request_bytes=1 << 20,
    max_wait_seconds=0.01,
    stall_seconds=5.0,
    authentication_seconds=5.0,
    failed_authentication_seconds=0.0,
)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def request(api: Api, version: int, **values: object) -> bytes:
    return framed(head(api, version) + api.request.write(values, version))


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request(SASL_HANDSHAKE, version, mechanism=mechanism)


def message(content: bytes) -> bytes:
    return request(SASL_AUTHENTICATE, 2, authBytes=content)


FIRST, LOGIN = b"n,,n=alice,r=abc", b"\0alice\0alice-secret"
OPEN, GUARDED, KNOWN = 0, 1, 7
STATES = (
    b"",  # A listener without users.
    b"",  # A listener with users, as in all later states.
    request(API_VERSIONS, 3, **SOFTWARE),
    handshake("PLAIN"),
    handshake("SCRAM-SHA-256") + message(FIRST),
    handshake("PLAIN", 0),
    handshake("SCRAM-SHA-512", 0) + framed(FIRST),
    handshake("PLAIN") + message(LOGIN),
)
"""For each state, the bytes that the client sends first to reach this state."""


class Target:
    """A broker in a folder, and connections to it that are served by this thread."""

    def __init__(self, broker: Broker, users: ListenerSecurity, accepting: socket.socket) -> None:
        self._broker, self._users, self._accepting = broker, users, accepting
        self.errors: list[str] = []

    def read(self, data: bytes) -> bytes:
        """Serve a client that sends the input and then leaves; return what it receives."""
        state = data[0] % len(STATES) if data else OPEN
        before = self._contents()
        with socket.create_connection(self._accepting.getsockname()) as client:
            connected, _ = self._accepting.accept()
            client.sendall(STATES[state] + data[1:])
            client.shutdown(socket.SHUT_WR)
            security = ListenerSecurity() if state == OPEN else self._users
            ClientConnection(self._broker, connected, "client", security).serve()
            answers = received(client)
        assert [] == self.errors, data
        if state not in (OPEN, KNOWN):
            assert before == self._contents(), data
        return answers

    def _contents(self) -> dict[tuple[str, int], int]:
        """Return the end of each partition, including the partitions with the positions of groups."""
        return {
            (topic.name, number): partition.offsets().log_end_offset
            for topic in self._broker.engine.topics().values()
            for number, partition in topic.partitions().items()
        }


def received(client: socket.socket) -> bytes:
    found = []
    try:
        while data := client.recv(1 << 20):
            found.append(data)
    except ConnectionResetError:  # The listener closed the connection before it had read all bytes.
        pass
    return b"".join(found)


class _Errors(logging.Handler):
    """Collects errors of the log."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(logging.Formatter().format(record))


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """Context manager: a target whose only user is alice."""
    users = folder / "users"
    users.touch(mode=0o600)
    users.write_text(entry("alice", "alice-secret"))
    with ExitStack() as stack:
        engine = stack.enter_context(closing(open_directories((folder / "data",), config=EngineConfig())))
        broker = stack.enter_context(closing(Broker(engine, Endpoint("client", 1), EngineConfig(), LIMITS)))
        accepting = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        found = Target(broker, SecurityFiles(users=users).read(), accepting)
        handler = _Errors(found.errors)
        logger = logging.getLogger("topicfs")
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        yield found


def inputs() -> list[bytes]:
    """Return the inputs of the corpus, and each request of the listener in four states of the connection.

    Some of the states do not allow the request.
    """
    found = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    for api, _ in REQUESTS.values():
        for version in sorted({api.request.versions[0], api.request.versions[-1]}):
            sent = request(api, version, **sample(api.request.fields, version))
            found += [bytes([state]) + sent for state in (OPEN, GUARDED, 3, KNOWN)]
    return found


def read_frames(folder: Path, count: int, seed: int = 20_261_128) -> None:
    """Read the corpus and `count` changed inputs. The same seed always gives the same inputs."""
    random, known = Random(seed), inputs()
    with target(folder) as reading:
        for data in known:
            reading.read(data)
        for _ in range(count):
            reading.read(changed(random, known))
