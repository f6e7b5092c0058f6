"""A connection to a broker: sends requests, and receives their answers in order.

    request   int32 size | int16 key, int16 version, int32 correlation id, string client id, tags | the request's fields
    answer    int32 size | int32 correlation id, tags | the answer's fields

Calls block, with a timeout. After a failed call the connection cannot be used. It cannot be used in a forked process
either, because both processes would share the socket.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import NamedTuple, TypeAlias

from topicfs.cluster.errors import (
    NO_TLS,
    AuthenticationError,
    MalformedAnswerError,
    NotKafkaError,
    ThrottledError,
    UnreachableError,
    UnsupportedVersionError,
    error_of,
    quoted,
    tls_reason,
)
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.sasl import Credentials
from topicfs.cluster.protocol.security import PLAINTEXT, Security
from topicfs.protocol.messages import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from topicfs.protocol.notation import Api
from topicfs.storage.codec.value_copy import begin_text
from topicfs.storage.errors import ClusterError, CorruptBatchError
from topicfs.storage.messages import reason_of
from topicfs.storage.model import Buffer
from topicfs.storage.wire import Values

CONNECT_SECONDS = 10.0
ANSWER_TIMEOUT_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 << 20
"""Size limit of an answer: enough for the metadata of a million partitions."""
MAX_FIRST_ANSWER_BYTES = 1 << 20
"""Size limit of the first answer. If an HTTP or TLS answer is parsed as Kafka's, its size field exceeds this limit."""
SLOWEST_BYTES_PER_SECOND = 128 << 10
"""Minimum speed of an answer over a slow link. If an answer arrives at this speed, it may exceed the caller's time
limit.
"""
MAX_THROTTLE_SECONDS = 600.0
"""Maximum throttle time. Without a maximum, a wrong number in an answer could stop all requests for days."""
CLIENT_ID = b"topicfs"
SESSION_SHARE = 0.85
"""Share of the session's lifetime after which the client authenticates again."""

Read: TypeAlias = Callable[[memoryview, int], Values]
"""Parses the bytes of an answer, given its version, into all or some of its fields. Raises CorruptBatchError."""

_SIZE_BYTES = 4
"""Size of the length prefix of an answer."""
_FIRST_BYTES = 4096
"""Size of the first receive call, which gets most answers completely."""
_TLS_ALERT = b"\x15\x03"
_UNSUPPORTED_VERSION = 35


class SentRequest(NamedTuple):
    """A request that was sent, and whose answer has not been received yet."""

    api: Api
    version: int
    correlation: int
    seconds: float
    """Time limit for the answer."""


class Throttle:
    """The throttle time of a broker: until it ends, no request is sent, because a quota is exhausted (KIP-219)."""

    until = 0.0
    """When the throttle time ends, by `time.monotonic`."""

    def note(self, answer: Values) -> None:
        """Apply an answer's throttle time. A shorter time never replaces a longer one."""
        seconds = min(answer.get("throttleTimeMs", 0) / 1000, MAX_THROTTLE_SECONDS)
        self.until = max(self.until, time.monotonic() + seconds)

    def left(self) -> float:
        """Return the remaining seconds."""
        return max(0.0, self.until - time.monotonic())


class Connection:
    """A connection to one broker, with the API versions that both sides support."""

    def __init__(
        self,
        server: Server,
        security: Security = PLAINTEXT,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        opened: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Connect (blocking). `opened` is called once the socket exists, so that another thread can call `break_off`.

        Raises UnreachableError, NotKafkaError, UnsupportedVersionError, AuthenticationError.
        """
        self.server = server
        self._pid = os.getpid()
        self._correlation = 0
        self.throttle = Throttle()
        """The throttle time of the broker. A pool sets the same object for all its connections."""
        self._credentials = security.credentials
        self._session_ends = float("inf")
        """When the session ends. Before its next request after this time, the client must authenticate again."""
        self._proven = security.credentials is not None
        """True once the server has answered, or if the client has credentials. While it is False, an error may mean
        that the server requires SASL, and the error's message says so.
        """
        self._versions: Mapping[int, tuple[int, int]] = {API_VERSIONS.key: (0, 0)}
        try:
            self._socket = socket.create_connection(server, timeout=connect_seconds)
        except (OSError, UnicodeError) as error:
            raise UnreachableError(f"{server}: {reason_of(error)}") from None
        self._patience = 0.0
        """The time limit that is set on the socket now, in seconds."""
        self._received = memoryview(b"")
        """Bytes received after the end of the last answer. They belong to the next answer."""
        opened(self)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if security.tls is not None:
                self._socket = self._encrypted(security.tls)
            self._versions = self._agree_on_versions()
            if self._credentials is not None:
                self._authenticate(self._credentials)
        except BaseException:
            self.close()
            raise

    @property
    def usable(self) -> bool:
        """True unless a call failed or this process was forked from the one that connected."""
        return self._socket.fileno() >= 0 and os.getpid() == self._pid

    def close(self) -> None:
        self._socket.close()

    def break_off(self) -> None:
        """Make another thread's call fail, as if the broker had closed the connection."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def version(self, api: Api) -> int:
        """Return the newest API version that both sides support. Raises UnsupportedVersionError if there is none."""
        low, high = self._versions.get(api.key, (0, -1))
        ours = api.asked_versions
        newest = min(high, ours[-1])
        if newest < max(low, ours[0]):
            if api is METADATA and high < 0:
                raise self._not_kafka()  # A Kafka controller, which does not serve clients.
            theirs = f"in versions {low} to {high}" if high >= 0 else "not at all"
            raise UnsupportedVersionError(
                f"{self.server}: supports {api.name} {theirs}, topicfs supports {ours[0]} to {ours[-1]}: "
                f"{'it needs Kafka 2.8 or newer' if high < ours[0] else 'this topicfs is too old for it'}"
            )
        return newest

    def call(
        self,
        api: Api,
        request: Values,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
        version: int | None = None,
        read: Read | None = None,
    ) -> Values:
        """Send a request, and return the answer (blocking).

        `version` replaces the newest common version. `read` replaces the default parser of the answer.

        Raises UnreachableError, NotKafkaError, MalformedAnswerError, UnsupportedVersionError; AuthenticationError if
        the client fails to authenticate again. The caller checks the error codes in the answer.
        """
        if not self.usable:
            raise UnreachableError(f"{self.server}: the connection is broken, or belongs to another process")
        version = self.version(api) if version is None else version
        asked = self._written(api, request, version)
        try:
            if self._credentials is not None and time.monotonic() >= self._session_ends:
                self._authenticate(self._credentials)
            correlation = self._send(api, version, asked, seconds)
            return self._answer(api, version, correlation, max_bytes, read)
        except BaseException:
            self.close()
            raise

    def call_all(
        self, *asked: tuple[Api, Values], seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> tuple[Values, list[Values | None]]:
        """Send several requests in one round trip (blocking). The broker handles them in order.

        Returns the first answer, and a list of the later answers. If a later answer cannot be received, or its
        throttle time is longer than `seconds`, the list has None for this answer and for all answers after it. Raises
        the errors of `call` for the first request.
        """
        if not self.usable:
            raise UnreachableError(f"{self.server}: the connection is broken, or belongs to another process")
        versions = [self.version(api) for api, _ in asked]
        requests = [
            self._written(api, request, version)
            for (api, request), version in zip(asked, versions, strict=True)
        ]
        sent: list[int] = []
        try:
            if self._credentials is not None and time.monotonic() >= self._session_ends:
                self._authenticate(self._credentials)
            for (api, _), version, request in zip(asked, versions, requests, strict=True):
                # An error in sending a later request is ignored here. Receiving an answer then fails, below.
                with suppress(UnreachableError) if sent else nullcontext():
                    sent.append(self._send(api, version, request, seconds))
            answer = self._answer(asked[0][0], versions[0], sent[0], MAX_ANSWER_BYTES)
        except BaseException:
            self.close()
            raise
        later: list[Values | None] = []
        try:
            for (api, _), version, correlation in list(zip(asked, versions, sent, strict=False))[1:]:
                if (left := self.throttle.left()) > seconds:
                    raise ThrottledError(f"{self.server}: the quota is used up")
                self._wait_at_most(seconds + left)
                later.append(self._answer(api, version, correlation, MAX_ANSWER_BYTES))
        except ClusterError:
            self.close()
        return answer, later + [None] * (len(asked) - 1 - len(later))

    @property
    def ready(self) -> bool:
        """True if a request can be sent now: the client is not throttled, and the session has not ended."""
        return self.usable and not self.throttle.left() and time.monotonic() < self._session_ends

    def begin(self, api: Api, request: Values, *, seconds: float = ANSWER_TIMEOUT_SECONDS) -> SentRequest:
        """Send a request, and do not wait for the answer, which `end` returns. Raises the errors of `call`."""
        if not self.ready:
            raise UnreachableError(f"{self.server}: the connection cannot be used now")
        version = self.version(api)
        asked = self._written(api, request, version)
        try:
            return SentRequest(api, version, self._send(api, version, asked, seconds), seconds)
        except BaseException:
            self.close()
            raise

    def end(self, sent: SentRequest) -> Values:
        """Return the answer to the oldest request, after the broker's throttle time (blocking). Raises like `call`."""
        try:
            self._wait_at_most(sent.seconds + self.throttle.left())
            return self._answer(sent.api, sent.version, sent.correlation, MAX_ANSWER_BYTES)
        except BaseException:
            self.close()
            raise

    def _encrypted(self, tls: ssl.SSLContext) -> ssl.SSLSocket:
        try:
            return tls.wrap_socket(self._socket, server_hostname=self.server.host)
        except ssl.SSLError as error:
            raise AuthenticationError(f"{self.server}: {tls_reason(error)}") from None
        except OSError as error:
            raise UnreachableError(
                f"{self.server}: TLS: {_reason(error)}; if it does not speak TLS, {NO_TLS}"
            ) from None

    def _authenticate(self, credentials: Credentials) -> None:
        """Authenticate when connecting (KIP-152) and before a session ends (KIP-368). Raises like `call`."""
        who = f"{self.server}: {credentials.mechanism} as {credentials.user}"
        self._session_ends = float("inf")
        answer = self.call(SASL_HANDSHAKE, {"mechanism": credentials.mechanism})
        if answer["errorCode"]:
            offered = ", ".join(answer["mechanisms"]) or "none"
            raise error_of(answer["errorCode"], who, f"it offers {offered}")
        exchange, lifetime_ms = credentials.exchange(), 0
        try:
            say = next(exchange)
            while True:
                answer = self.call(SASL_AUTHENTICATE, {"authBytes": say})
                if answer["errorCode"]:
                    said = quoted(answer["errorMessage"] or "", *credentials.secrets_in(say))
                    raise error_of(answer["errorCode"], who, said)
                lifetime_ms = answer["sessionLifetimeMs"]
                say = exchange.send(answer["authBytes"])
        except (
            StopIteration
        ):  # Set the time here: a time that has passed would make `call` authenticate recursively.
            if lifetime_ms > 0:
                self._session_ends = time.monotonic() + lifetime_ms * SESSION_SHARE / 1000
        except (ValueError, KeyError) as error:
            wrong = quoted(str(error))
            raise AuthenticationError(f"{who}: the broker's answer is wrong: {wrong}") from None

    def _agree_on_versions(self) -> dict[int, tuple[int, int]]:
        """Send ApiVersions in its newest version. A broker that does not know it answers in version 0 (KIP-511)."""
        newest = API_VERSIONS.request.versions[-1]
        asked = {"clientSoftwareName": "topicfs", "clientSoftwareVersion": _own_version()}
        answer = self._versions_answer(asked, newest)
        if answer["errorCode"] == _UNSUPPORTED_VERSION:
            answer = self._versions_answer({}, 0)
        if answer["errorCode"]:
            raise error_of(answer["errorCode"], str(self.server))
        self.throttle.note(answer)
        return {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}

    def _written(self, api: Api, request: Values, version: int) -> Sequence[Buffer]:
        """Return a request's bytes in pieces. Raises MalformedAnswerError for an impossible number from an answer."""
        try:
            return api.request.write_in_pieces(request, version)
        except struct.error as error:
            raise MalformedAnswerError(
                f"{self.server}: {api.name} cannot be sent: an earlier answer had an impossible number ({error})"
            ) from None

    def _versions_answer(self, request: Values, version: int) -> Values:
        self._send(
            API_VERSIONS, version, API_VERSIONS.request.write_in_pieces(request, version), CONNECT_SECONDS
        )
        try:
            frame = self._receive(MAX_FIRST_ANSWER_BYTES, API_VERSIONS)
        except MalformedAnswerError:
            raise self._not_kafka() from None
        if int.from_bytes(frame[:4], "big", signed=True) != self._correlation:
            raise self._not_kafka()
        body = frame[4:]
        # A broker that does not know the requested version answers UNSUPPORTED_VERSION in version 0.
        if version and int.from_bytes(body[:2], "big") == _UNSUPPORTED_VERSION:
            return {"errorCode": _UNSUPPORTED_VERSION}
        try:
            return API_VERSIONS.response.read(body, version)
        except CorruptBatchError:
            raise self._not_kafka() from None

    def _not_kafka(self) -> NotKafkaError:
        return NotKafkaError(
            f"{self.server}: the server there is not a Kafka broker; is it the port of a listener for clients?"
        )

    def _send(self, api: Api, version: int, body: Sequence[Buffer], seconds: float) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = struct.pack(">hhih", api.key, version, self._correlation, len(CLIENT_ID)) + CLIENT_ID
        if api.is_flexible(version):
            head += b"\0"
        size = len(head) + sum(map(len, body))
        try:
            self._wait_at_most(seconds)
            self._send_all([struct.pack(">i", size) + head, *body])
        except OSError as error:
            raise UnreachableError(f"{self.server}: {api.name}: {_reason(error)}") from None
        return self._correlation

    def _wait_at_most(self, seconds: float) -> None:
        """Limit each wait for the socket.

        Without TLS, the kernel enforces the limit: a Python timeout would add a poll(2) before each call.
        """
        if seconds == self._patience:
            return
        self._patience = seconds
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(seconds)
            return
        limit = struct.pack("@ll", int(seconds), max(1, int(seconds % 1 * 1e6)))
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _send_all(self, pieces: list[Buffer]) -> None:
        """Send pieces as one message. Record batches are copied only for encryption."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.sendall(b"".join(pieces))
            return
        sent = self._socket.sendmsg(pieces)
        for piece in pieces:
            if sent < len(piece):
                self._socket.sendall(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))

    def _answer(
        self, api: Api, version: int, correlation: int, max_bytes: int, read: Read | None = None
    ) -> Values:
        frame = self._receive(max_bytes, api)
        what = f"{self.server}: the answer to {api.name} version {version} cannot be read"
        at = 5 if api.is_flexible(version) else 4
        if len(frame) < at or int.from_bytes(frame[:4], "big") != correlation or any(frame[4:at]):
            raise MalformedAnswerError(f"{what}: it is not the answer to this request")
        try:
            answer = (read or api.response.read)(frame[at:], version)
        except CorruptBatchError as error:
            raise MalformedAnswerError(f"{what}: {error}") from None
        self._proven = True
        self.throttle.note(answer)
        return answer

    def _receive(self, max_bytes: int, api: Api) -> memoryview:
        """Receive an answer. Each answer has a new buffer, because the parsed answer refers to the buffer.

        The time limit applies to the whole answer, not to each piece. A small answer arrives together with its size.
        """
        begun = self._received
        self._received = begun[:0]
        limit, since = self._patience, time.monotonic()
        while len(begun) < _SIZE_BYTES:
            if begun:
                self._wait_for_rest(api, since + limit)
            first = memoryview(bytearray(_FIRST_BYTES))
            first[: len(begun)] = begun
            begun = first[: len(begun) + self._received_into(first[len(begun) :], api)]
        size = int.from_bytes(begun[:_SIZE_BYTES], "big", signed=True)
        if begun[:2] == _TLS_ALERT and api is API_VERSIONS:
            raise NotKafkaError(
                f"{self.server}: it speaks TLS: give --client-config FILE with security.protocol=SSL or SASL_SSL"
            )
        if not 4 <= size <= max_bytes:
            raise MalformedAnswerError(
                f"{self.server}: an answer to {api.name} of {size:,} bytes, above the limit of {max_bytes:,}"
            )
        begun, self._received = begun[_SIZE_BYTES : _SIZE_BYTES + size], begun[_SIZE_BYTES + size :]
        if len(begun) == size:
            self._wait_at_most(limit)
            return begun.toreadonly()
        frame, at = memoryview(begin_text(begun, size)), len(begun)
        while at < size:
            self._wait_for_rest(api, since + limit + at / SLOWEST_BYTES_PER_SECOND)
            at += self._received_into(frame[at:], api, whole=True)
        self._wait_at_most(limit)
        return frame.toreadonly()

    def _wait_for_rest(self, api: Api, deadline: float) -> None:
        """Set the socket's time limit for the remainder of an answer. Raises UnreachableError if no time is left."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise UnreachableError(f"{self.server}: {api.name}: no answer in time")
        self._wait_at_most(left)

    def _received_into(self, room: memoryview, api: Api, *, whole: bool = False) -> int:
        """Receive at least one byte into `room`. With `whole`, fill `room` in one call, if the socket supports this."""
        plain = not isinstance(self._socket, ssl.SSLSocket)
        try:
            received = self._socket.recv_into(room, 0, socket.MSG_WAITALL if whole and plain else 0)
        except ssl.SSLError as error:
            raise AuthenticationError(f"{self.server}: {tls_reason(error)}") from None
        except OSError as error:
            raise UnreachableError(f"{self.server}: {api.name}: {_reason(error)}") from None
        if not received:
            hint = "" if self._proven else "; if it requires SASL, give credentials: --client-config FILE"
            raise UnreachableError(f"{self.server}: {api.name}: the broker closed the connection{hint}")
        return received


def _reason(error: OSError) -> str:
    return (
        "no answer in time"
        if isinstance(error, (TimeoutError, BlockingIOError))
        else str(error.strerror or error)
    )


def _own_version() -> str:
    try:
        return version_of("topicfs")
    except PackageNotFoundError:
        return "0"
