"""One client connection, whose thread answers the client's requests one by one, in order."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from topicfs.listener.broker import Broker, Client, Request
from topicfs.listener.counts import UNAUTHENTICATED, ClientName, RequestNote, client_name, first_error
from topicfs.listener.errors import BadRequestError
from topicfs.listener.file_piece import Piece
from topicfs.listener.frames import SIZE, Head, head_of_answer, pass_tags, read_head, receive, send
from topicfs.listener.requests.table import REQUESTS, unsupported_version
from topicfs.listener.security.files import ListenerSecurity
from topicfs.protocol.messages import API_VERSIONS
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.wire import Values

if TYPE_CHECKING:
    import ssl

    from topicfs.listener.authentication import Authentication

_LOGGER = logging.getLogger("topicfs")
_DISCONNECTED = getattr(select, "POLLRDHUP", select.POLLHUP)
"""The event of a connection that the client has closed. Systems other than Linux notice only a broken connection."""


class ClientConnection:
    """A client's connection."""

    def __init__(
        self, broker: Broker, connected: socket.socket, host: str, security: ListenerSecurity
    ) -> None:
        self.host = host
        self._broker = broker
        self._socket = connected
        self._tls = security.tls
        self._sasl: Authentication | None = None
        """The authentication of the client; None once the client is authenticated."""
        if security.users is not None:
            from topicfs.listener.authentication import Authentication

            self._sasl = Authentication(security.users)
        self._deadline = time.monotonic() + broker.limits.authentication_seconds
        """Time by which the client must be authenticated."""
        self._event = threading.Event()
        self._ended = False
        self._client = Client(host, self, {})
        self._software = ""
        self._name: ClientName | None = None
        """The name under which the connection is counted; None before the client's first request."""

    def serve(self) -> None:
        """Answer requests until the client disconnects or violates the protocol. Blocks."""
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._encrypt(self._tls)
            while self._serve_one():
                pass
        except (BadRequestError, CorruptBatchError) as error:
            _LOGGER.warning("%s: connection closed: %s", self._client.host, error)
        except OSError as error:
            _LOGGER.debug("%s: connection closed: %s", self._client.host, error)
        except Exception:  # A bug in a request's handler ends only this connection.
            _LOGGER.exception("%s: connection closed", self._client.host)
        finally:
            self.cut()
            self._socket.close()
            self._broker.counts.move(self._name, None)

    def end(self) -> None:
        """End the connection after the request in progress, whose waits end now. Safe from any thread."""
        self._end(socket.SHUT_RD)

    def cut(self) -> None:
        """Close the connection immediately, even while an answer is being sent. Safe from any thread."""
        self._end(socket.SHUT_RDWR)

    def _end(self, how: int) -> None:
        self._ended = True
        self._event.set()
        with suppress(OSError):
            # The method of SSLSocket would also forget the keys, and an answer in progress would be sent unencrypted.
            socket.socket.shutdown(self._socket, how)

    # The methods of `Waiter`, for requests.

    def arm(self) -> None:
        self._event.clear()
        if self._ended:
            self._event.set()

    def wake(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> bool:
        self._event.wait(seconds)
        return not self._ended

    def is_connected(self) -> bool:
        if self._tls is not None:  # The closing message of TLS is data, but no request.
            poll = select.poll()
            poll.register(self._socket, _DISCONNECTED)
            return not poll.poll(0)
        self._socket.setblocking(False)  # `receive` and `send` set their timeouts later.
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _encrypt(self, tls: ssl.SSLContext) -> None:
        """Do the TLS handshake, in which `end` and `cut` may be called. Raises BadRequestError, OSError."""
        import ssl

        self._socket = tls.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        if self._ended:
            raise ConnectionAbortedError("the listener is closing")
        self._socket.settimeout(self._broker.limits.authentication_seconds)
        try:
            self._socket.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            raise BadRequestError(f"no TLS handshake: {(error.reason or str(error)).lower()}") from None

    def _within(self, seconds: float) -> float:
        """Return how long to wait for the client: `seconds`, or until the deadline for authentication."""
        return seconds if self._sasl is None else min(seconds, self._deadline - time.monotonic())

    def _serve_one(self) -> bool:
        limits = self._broker.limits
        size_bytes = receive(self._socket, SIZE.size, self._within(limits.idle_seconds))
        if size_bytes is None or self._ended:
            return False
        (size,) = SIZE.unpack(size_bytes)
        # A client that is not authenticated cannot use the memory for large requests.
        most = limits.max_request_bytes if self._sasl is None else limits.small_bytes
        if not 0 < size <= most:
            raise BadRequestError(
                f"a request of {size} bytes, the limit is {most}; does the client speak Kafka's protocol, "
                f"{'without' if self._tls is None else 'over'} TLS?"
            )
        with ExitStack() as held:
            with ExitStack() as lent:
                lent.enter_context(self._broker.memory.lent(size))
                seconds = limits.stall_seconds + size / limits.slowest_bytes
                frame = receive(self._socket, size, self._within(seconds))
                if frame is None:
                    return False
                pieces = self._answer(frame, held, lent)
            failure = None if self._sasl is None else self._sasl.failure
            if failure is not None:
                self._event.wait(limits.failed_authentication_seconds)
            if pieces:
                self._socket.settimeout(limits.stall_seconds)
                send(self._socket, pieces)
        if failure is not None:
            raise BadRequestError(failure)
        if self._sasl is not None and self._sasl.user is not None:
            _LOGGER.debug("%s: authenticated as %s", self._client.host, self._sasl.user)
            self._sasl = None
        return True

    def _answer(self, frame: memoryview, held: ExitStack, lent: ExitStack) -> list[Piece]:
        """Return the pieces of the answer; empty if the client wants no answer. `lent` is the memory of `frame`."""
        if self._sasl is not None and self._sasl.takes_tokens:
            return [self._sasl.token(bytes(frame))]
        head = read_head(frame)
        served = REQUESTS.get(head.key)
        if served is None:
            raise BadRequestError(f"request {head.key} is not supported")
        api, handle = (
            served.api,
            served.handle if self._sasl is None else self._sasl.handler(served, head.version),
        )
        if head.version not in api.request.versions:
            if api.key != API_VERSIONS.key:
                raise BadRequestError(f"{api.name} is not supported in version {head.version}")
            return self._pieces(head, 0, unsupported_version())
        at = pass_tags(frame, head.size) if api.is_flexible(head.version) else head.size
        most, size, begun = self._broker.limits.max_structures, len(frame), time.monotonic_ns()
        with self._broker.turn():
            if self._ended:
                raise ConnectionAbortedError("the listener is closing")
            # Like a broker, ignore further bytes, because some versions of librdkafka send a few.
            values = api.request.read(frame[at:], head.version, max_structures=most, lenient=True)

            def forget() -> None:
                values.clear()
                frame.release()
                lent.close()

            request = Request(api, head.version, values, head.client_id, self._client, held, forget)
            if api.key == API_VERSIONS.key:
                self._software = values.get("clientSoftwareName", "")
            answer = handle(self._broker, request)
            pieces = [] if answer is None else self._pieces(head, head.version, answer)
        sent = SIZE.size + sum(map(len, pieces)) if pieces else 0
        elapsed = time.monotonic_ns() - begun
        error = 0 if answer is None else first_error(answer)
        self._count(head, RequestNote(api.name, elapsed, SIZE.size + size, sent, error))
        return pieces

    def _count(self, head: Head, note: RequestNote) -> None:
        counts, name = self._broker.counts, UNAUTHENTICATED
        if self._sasl is None:
            name = client_name(head.client_id, self._software)
        if name != self._name:
            counts.move(self._name, name)
            self._name = name
        counts.note(name, note)

    def _pieces(self, head: Head, version: int, answer: Values) -> list[Piece]:
        api = REQUESTS[head.key].api
        fields = api.response.write_in_pieces(answer, version)
        return [head_of_answer(api, version, head.correlation), *fields]
