"""SASL authentication of one connection, as a broker does it (KIP-43, KIP-152).

    ApiVersions (optional) ─► SaslHandshake ─► SaslAuthenticate, once or twice ─► any request

After SaslHandshake in version 0, each message of the SASL mechanism is a frame without a header. An authentication
never expires, so clients do not authenticate again (KIP-368).
"""

from __future__ import annotations

from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import BadRequestError
from topicfs.listener.requests.table import Handler, Served
from topicfs.listener.security.mechanisms import MECHANISMS, Exchange, LoggedIn, RefusedLoginError
from topicfs.listener.security.users import Users
from topicfs.protocol.error_codes import ErrorCode
from topicfs.protocol.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from topicfs.storage.wire import Values

MOST_USER_CHARACTERS = 64
"""Number of characters of a user name that the log shows after a failed authentication."""


class Authentication:
    """The state of a connection that is not authenticated yet."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._versions_known = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self.takes_tokens = False
        """True if the next frame is a message of the SASL mechanism, without a header."""
        self.user: str | None = None
        """The authenticated user."""
        self.failure: str | None = None
        """The reason to close the connection after the next answer; None to keep it open."""

    def handler(self, served: Served, version: int) -> Handler:
        """Return the handler of a request. Raises BadRequestError for a request not allowed before authentication."""
        key = served.api.key
        if self._exchange is not None:
            if key == SASL_AUTHENTICATE.key:
                return self._authenticate
            fields = (field for field in served.api.response.fields if field.in_version(version))
            if all(field.name != "errorCode" for field in fields):
                raise BadRequestError(f"{served.api.name} before SaslAuthenticate")
            return lambda *_: self._refused(
                ErrorCode.ILLEGAL_SASL_STATE, f"{served.api.name} before SaslAuthenticate"
            )
        if key == SASL_HANDSHAKE.key:
            return self._handshake
        if key != API_VERSIONS.key or self._versions_known:
            raise BadRequestError(f"{served.api.name} before SaslHandshake; does the client use SASL?")
        return lambda broker, request: self._versions(served.handle(broker, request))

    def token(self, message: bytes) -> bytes:
        """Return the answer to a message of the SASL mechanism that came without a header. Raises BadRequestError."""
        try:
            return self._step(message)
        except (RefusedLoginError, ValueError) as error:
            raise BadRequestError(self._failed(error)) from None

    def _versions(self, answer: Values | None) -> Values | None:
        self._versions_known = answer is not None and answer["errorCode"] == ErrorCode.NONE
        return answer

    def _handshake(self, broker: Broker, request: Request) -> Values:
        del broker
        self._mechanism = request.values["mechanism"]
        offered = {"mechanisms": list(MECHANISMS)}
        if self._mechanism not in MECHANISMS:
            message = f"SASL mechanism {self._mechanism!r} is not supported"
            return offered | self._refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
        self._exchange = MECHANISMS[self._mechanism](self._users)
        next(self._exchange)
        self.takes_tokens = request.version == 0
        return {**offered, "errorCode": ErrorCode.NONE}

    def _authenticate(self, broker: Broker, request: Request) -> Values:
        try:
            with broker.rest():  # Checking a password takes milliseconds: handle other requests meanwhile.
                answer = self._step(request.values["authBytes"])
        except (RefusedLoginError, ValueError) as error:
            message = str(error) if isinstance(error, RefusedLoginError) else ""
            message = message or (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism
            )
            refused = self._refused(ErrorCode.SASL_AUTHENTICATION_FAILED, self._failed(error))
            return {**refused, "errorMessage": message, "authBytes": b""}
        return {"errorCode": ErrorCode.NONE, "errorMessage": "", "authBytes": answer}

    def _step(self, message: bytes) -> bytes:
        """Return the mechanism's answer to a message. Raises RefusedLoginError, ValueError."""
        assert self._exchange is not None
        try:
            return self._exchange.send(bytes(message))
        except StopIteration as end:
            done: LoggedIn = end.value
            self.user, self.takes_tokens = done.user, False
            return done.answer

    def _refused(self, code: ErrorCode, failure: str) -> Values:
        self.failure = failure
        return {"errorCode": code}

    def _failed(self, error: Exception) -> str:
        why = (
            "a malformed message" if isinstance(error, ValueError) else str(error) or "wrong user or password"
        )
        user = error.user[:MOST_USER_CHARACTERS] if isinstance(error, RefusedLoginError) else ""
        return f"SASL {self._mechanism}{f' as {user!r}' if user else ''}: {why}"
