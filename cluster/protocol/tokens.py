"""OAUTHBEARER tokens, which a client requests from an HTTP endpoint with an id and a secret (RFC 6749 §4.4)."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from topicfs.cluster.errors import AuthenticationError, UnreachableError, quoted, tls_reason

ENDPOINT_SECONDS = 10.0
MAX_TOKEN_ANSWER_BYTES = 1 << 20
LIFETIME_SHARE = 0.8
"""Share of a token's lifetime after which a new token is requested. It is below 1, so that the old token does not
expire while sessions still use it.
"""
LONGEST_LIFETIME_SECONDS = 86_400.0
"""Maximum time that a token is used. An endpoint that reports a wrong lifetime cannot make it be used forever."""
_REFUSED = range(400, 500)
_TOO_MANY_REQUESTS = 429


@dataclass(eq=False)
class TokenEndpoint:
    """An HTTP endpoint that issues tokens. All connections share a token until it nears expiry. Thread-safe."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    tls: ssl.SSLContext | None = None
    _token: str = field(default="", init=False, repr=False)
    _old_at: float = field(default=0.0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def token(self) -> str:
        """Return a token that remains valid for a while (blocking). Raises UnreachableError, AuthenticationError."""
        with self._lock:
            if time.monotonic() >= self._old_at:
                asked_at = time.monotonic()
                answer = self._ask()
                self._token = str(answer["access_token"])
                self._old_at = asked_at + _seconds(answer.get("expires_in")) * LIFETIME_SHARE
            return self._token

    def _ask(self) -> dict[str, object]:
        status, body = self._post()
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status in _REFUSED and status != _TOO_MANY_REQUESTS:
            said = (
                " ".join(str(answer[one]) for one in _REASONS if one in answer)
                if isinstance(answer, dict)
                else ""
            )
            said = quoted(said, self._basic, self.secret)
            raise AuthenticationError(
                f"{self.url}: no token for {self.client_id}: HTTP {status}{said and ' '}{said}; check clientId and clientSecret"
            )
        if status >= _REFUSED.stop or status == _TOO_MANY_REQUESTS:
            raise UnreachableError(f"{self.url}: no token for {self.client_id}: HTTP {status}")
        if not (isinstance(answer, dict) and answer.get("access_token")):
            raise AuthenticationError(
                f"{self.url}: HTTP {status} without an access_token; check sasl.oauthbearer.token.endpoint.url"
            )
        return answer

    def _post(self) -> tuple[int, bytes]:
        where = urlsplit(self.url)
        assert where.hostname is not None
        connection = (
            HTTPSConnection(where.hostname, where.port, timeout=ENDPOINT_SECONDS, context=self.tls)
            if where.scheme == "https"
            else HTTPConnection(where.hostname, where.port, timeout=ENDPOINT_SECONDS)
        )
        fields = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {self._basic}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        path = f"{where.path or '/'}{where.query and '?'}{where.query}"
        late = threading.Event()
        try:
            connection.connect()
            with _broken_off_after(ENDPOINT_SECONDS, connection.sock, late):
                connection.request("POST", path, urlencode(fields), headers)
                answer = connection.getresponse()
                body = answer.read(MAX_TOKEN_ANSWER_BYTES)
        except (OSError, HTTPException) as error:
            if isinstance(error, ssl.SSLError) and not late.is_set():
                raise AuthenticationError(f"{self.url}: {tls_reason(error)} (in sasl.jaas.config)") from None
            reason = getattr(error, "strerror", None) or quoted(str(error))
        else:
            if not late.is_set():
                return answer.status, body
        finally:
            connection.close()
        if late.is_set():
            reason = f"no answer within {ENDPOINT_SECONDS:g} s"
        raise UnreachableError(f"{self.url}: no token: {reason}")

    @property
    def _basic(self) -> str:
        return base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()


@contextmanager
def _broken_off_after(seconds: float, connected: socket.socket, late: threading.Event) -> Iterator[None]:
    """Context manager: shut down the connection `connected` after `seconds`, and set `late`.

    The connection's own timeout limits only single reads, so a server that sends a byte now and then never exceeds
    it.
    """

    def break_off() -> None:
        late.set()
        with suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, break_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds(lifetime: object) -> float:
    """Return a token's lifetime. An invalid lifetime counts as 0, so that each connection requests its own token."""
    try:
        return min(
            max(0.0, float(str(lifetime))), LONGEST_LIFETIME_SECONDS
        )  # With this order of arguments, max turns NaN into 0.
    except ValueError:
        return 0.0


_REASONS = ("error", "error_description")
