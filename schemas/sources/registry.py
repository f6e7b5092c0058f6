"""A schema registry, queried over HTTP like Confluent's clients do.

    GET /schemas/ids/12?subject=NAME        {"schema":"…","schemaType":"PROTOBUF","references":[…]}; no schemaType is Avro
    GET /schemas/guids/GUID                 the same
    GET /subjects/NAME/versions/3           {"subject":…,"version":3,"id":12,"schema":…,…}; `latest` for 3: the newest one

(https://docs.confluent.io/platform/current/schema-registry/develop/api.html). The time for an answer is bounded,
however slowly its bytes come. A registry that did not answer, or answered nonsense, is not queried for a while: its
schemas are unknown meanwhile. A schema that it does not have is not requested again for a while, either.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from http.client import HTTPException
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from topicfs.schemas import schema
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import printable

REGISTRY_TIMEOUT_SECONDS = 5.0
REST_SECONDS = 30.0
"""How long a failed registry is not queried, and a missing schema is not requested again."""
MAX_REGISTRY_ANSWER_BYTES = 4 * schema.MAX_SCHEMA_BYTES
MAX_MISSING = 10_000
_OK, _NOT_FOUND, _TOO_MANY_REQUESTS, _ITS_FAULT = 200, 404, 429, 500
_NO_REGISTRY = "; give the URL of the schema registry itself"

_LOGGER = logging.getLogger("topicfs")


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects, so that only the configured registry gets the password."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class RegistryUnavailableError(schema.UnavailableSchemaError):
    """The registry did not answer, or its answer is invalid."""


class RegistrySource:
    """The schemas of a registry. See `SchemaSource`."""

    def __init__(
        self, url: str, credentials: str | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare to query `url`, with basic authentication by `USER:PASSWORD` if given. Raises InvalidConfigError."""
        self.url = checked_url(url)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if credentials is not None:
            encoded = base64.b64encode(credentials.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self._opener = build_opener(_NoRedirects)
        self._clock = clock
        self._turn = threading.Lock()
        self._asked_again_at = float("-inf")
        self._asking: Future[tuple[int, bytes]] | None = None
        """The pending or completed answer to the last request."""
        self._missing: dict[str, float] = {}

    def stamp(self) -> Hashable:
        """Return a value that changes every REST_SECONDS, because unknown schemas may be found at that time."""
        return int(self._clock() / REST_SECONDS)

    def by_id(self, schema_id: schema.SchemaId, subject: str = "") -> schema.PayloadSchema | None:
        if isinstance(schema_id, int):
            asked = f"?subject={quote(subject, safe='')}" if subject else ""
            return self._schema(f"/schemas/ids/{schema_id}{asked}", number=schema_id)
        return self._schema(f"/schemas/guids/{schema_id}")

    def referenced(self, reference: schema.SchemaReference) -> schema.PayloadSchema | None:
        return self._schema(f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}")

    def newest(self, subject: str) -> schema.PayloadSchema | None:
        """See `SchemaSource`. Each call queries the registry. Raises RegistryUnavailableError, unlike `by_id`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        with self._turn:
            answer = self._answer(path)
        return None if answer is None else schema.schema_of(answer)

    def _schema(self, path: str, *, number: int | None = None) -> schema.PayloadSchema | None:
        with self._turn:  # Send one request at a time, so that a registry that hangs blocks a single thread instead of a thread for each request.
            now = self._clock()
            if now < self._missing.get(path, now):
                return None
            try:
                answer = self._answer(path)
            except RegistryUnavailableError:
                return None
            if answer is None:
                if len(self._missing) >= MAX_MISSING:
                    self._missing.clear()
                self._missing[path] = now + REST_SECONDS
                return None
        return schema.schema_of(answer, number=number)

    def _answer(self, path: str) -> dict[str, Any] | None:
        """Request a JSON object; None if the registry does not have the object. Raises RegistryUnavailableError."""
        if self._clock() < self._asked_again_at:
            raise RegistryUnavailableError(
                f"{self.url} failed recently, and is not queried for {REST_SECONDS:.0f} s"
            )
        if self._asking is not None and not self._asking.done():
            # The registry is still sending the answer to the last request, so its thread still waits. Do not
            # start a second waiting thread.
            self._fail(f"{path}: the answer to an earlier request is still arriving")
        try:
            status, body = self._in_time(path, REGISTRY_TIMEOUT_SECONDS)
        except (OSError, ValueError) as error:
            self._fail(f"{path}: {_reason(error)}")
        except HTTPException as error:
            said = printable(str(error))[:100]
            self._fail(f"{path}: {type(error).__name__}: {said}{_NO_REGISTRY}")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status == _NOT_FOUND and isinstance(answer, dict):
            return None
        if status != _OK:
            self._fail(f"{path}: status {status}{_remedy(status)}")
        if not isinstance(answer, dict):
            self._fail(f"{path}: the answer is not a JSON object{_NO_REGISTRY}")
        return answer

    def _fail(self, reason: str) -> NoReturn:
        self._asked_again_at = self._clock() + REST_SECONDS
        _LOGGER.warning("schema registry %s: %s", self.url, reason)
        raise RegistryUnavailableError(f"{self.url}{reason}")

    def _in_time(self, path: str, seconds: float) -> tuple[int, bytes]:
        """Call `_get` in a thread; return its answer or raise its error. Raises TimeoutError after `seconds`."""
        asking: Future[tuple[int, bytes]] = Future()

        def run() -> None:
            try:
                asking.set_result(self._get(path))
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                asking.set_exception(error)

        threading.Thread(target=run, name="schema registry", daemon=True).start()
        self._asking = asking
        try:
            return asking.result(seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:.0f} s") from None

    def _get(self, path: str) -> tuple[int, bytes]:
        request = Request(self.url + path, headers=self._headers)  # noqa: S310 - `checked_url` lets http and https in
        try:
            answer = self._opener.open(request, timeout=REGISTRY_TIMEOUT_SECONDS)
        except HTTPError as error:
            answer = error  # An HTTP error is also an answer.
        with answer:
            return answer.status, answer.read(MAX_REGISTRY_ANSWER_BYTES + 1)


def _reason(error: Exception) -> str:
    """Return why there was no answer; for a TLS error, including the remedy."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {cause.verify_message.rstrip('.')}; it must be made for this host, be in "
            "date, and be signed by an authority of the system or of the file that SSL_CERT_FILE names"
        )
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {cause.reason or cause}; if it does not use TLS, give a URL with http://"
    return printable(str(getattr(cause, "strerror", None) or cause))


def _remedy(status: int) -> str:
    """Return the remedy for an HTTP status, after a semicolon; empty if no remedy is known."""
    if status in (401, 403):
        return "; check its user and password: --schema-registry-auth FILE"
    if status == _TOO_MANY_REQUESTS or status >= _ITS_FAULT:
        return f"; it is queried again after {REST_SECONDS:.0f} s"
    return _NO_REGISTRY


def checked_url(url: str) -> str:
    """Return the URL of a registry without a trailing slash. Raises InvalidConfigError."""
    try:
        parts = urlsplit(url)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment
        secret = parts.username is not None or parts.password is not None
        _ = parts.port
    except ValueError:
        bad, secret = True, False
    if secret:
        raise InvalidConfigError(
            "the URL of a schema registry is visible in process lists: put its user and password into a file or a variable"
        )
    if bad:
        raise InvalidConfigError(f"{url}: not the URL of a schema registry, such as http://host:8081")
    return url.rstrip("/")
