"""Tokens of OAUTHBEARER: a client asks an HTTP endpoint for them, with an id and a secret (RFC 6749 §4.4)."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlencode, urlsplit

from topicfs.cluster.errors import AuthenticationError, UnreachableError, tls_reason

ENDPOINT_SECONDS = 10.0
MAX_ANSWER_BYTES = 1 << 20
LIFETIME_SHARE = 0.8
"""Share of a token's lifetime after which the next one is asked for, before sessions that began with the old one expire."""
_REFUSED = range(400, 500)
_TOO_MANY_REQUESTS = 429


@dataclass(eq=False)
class TokenEndpoint:
    """An HTTP endpoint that issues tokens; each token serves all connections until it grows old. Safe from any thread."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    tls: ssl.SSLContext | None = None
    _token: str = field(default="", init=False, repr=False)
    _old_at: float = field(default=0.0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def token(self) -> str:
        """Return a token that is good for a while (blocking). Raises UnreachableError, AuthenticationError."""
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
        except ValueError:
            answer = None
        if status in _REFUSED and status != _TOO_MANY_REQUESTS:
            said = (
                " ".join(str(answer[one]) for one in _REASONS if one in answer)
                if isinstance(answer, dict)
                else ""
            )
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
            "Authorization": f"Basic {base64.b64encode(f'{self.client_id}:{self.secret}'.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        path = f"{where.path or '/'}{where.query and '?'}{where.query}"
        try:
            connection.request("POST", path, urlencode(fields), headers)
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_ANSWER_BYTES)
        except ssl.SSLError as error:
            raise AuthenticationError(f"{self.url}: {tls_reason(error)} (in sasl.jaas.config)") from None
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"{self.url}: no token: {getattr(error, 'strerror', None) or error}"
            ) from None
        finally:
            connection.close()


def _seconds(lifetime: object) -> float:
    """Return a token's lifetime; without one that can be read each connection asks for its own."""
    try:
        return float(str(lifetime))
    except ValueError:
        return 0.0


_REASONS = ("error", "error_description")
