r"""Encryption and authentication of connections, configured by a file in the format of Kafka's Java clients.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-256
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
        username="reports" password="${env:REPORTS_PASSWORD}";
    ssl.truststore.location=/etc/kafka/ca.pem

Keys and certificates are PEM, in separate files or as values of settings. A value may refer to an environment variable,
`${env:NAME}`, or to a setting in another file, `${file:PATH:NAME}`, so that the file need not contain passwords.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from topicfs.cluster.protocol.sasl import PASSWORD_MECHANISMS, Credentials, oauthbearer
from topicfs.cluster.protocol.tokens import TokenEndpoint
from topicfs.storage.config.properties import PropertiesError, parse_properties
from topicfs.storage.errors import InvalidConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

JAAS = "sasl.jaas.config"
_OAUTHBEARER = "OAUTHBEARER"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 (a name)
_SCOPE = "sasl.oauthbearer.scope"
_EXTENSION = "extension_"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
KNOWN = {
    "security.protocol",
    "sasl.mechanism",
    JAAS,
    _ENDPOINT,
    _CLIENT_ID,
    _CLIENT_SECRET,
    _SCOPE,
    # Only the retriever for client credentials is supported.
    "sasl.login.callback.handler.class",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
}


_OTHERS = (
    "acks allow auto batch bootstrap buffer check client compression config connections default delivery enable "
    "exclude fetch group heartbeat interceptor isolation key linger max message metadata metric metrics partition "
    "partitioner receive reconnect request retries retry send session share socket transaction transactional value"
)
"""First words of Kafka client settings that do not concern security."""


@dataclass(frozen=True, slots=True)
class Security:
    """How a client's connections are encrypted and authenticated."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    ignored: tuple[str, ...] = ()
    """Settings in the file that topicfs does not know. Settings that only other clients need are not in this list."""


PLAINTEXT = Security()


def read_security(path: Path) -> Security:
    """Read a file of settings. Raises OSError, and InvalidConfigError, whose message never contains a password."""
    try:
        return security_of(read_settings(path))
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{path}: {error}") from None


def security_of(settings: Mapping[str, str]) -> Security:
    """Return the security that settings define. Raises OSError, and InvalidConfigError, which shows no password."""
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise InvalidConfigError(f"security.protocol={protocol}: expected one of {', '.join(PROTOCOLS)}")
    return Security(
        tls=_tls(settings) if protocol.endswith("SSL") else None,
        credentials=_credentials(settings) if protocol.startswith("SASL") else None,
        ignored=tuple(
            name for name in settings if name not in KNOWN and name.split(".")[0] not in _OTHERS.split()
        ),
    )


def read_settings(path: Path) -> dict[str, str]:
    """Return a file's settings; replace references, except within a JAAS login. Raises InvalidConfigError, OSError."""
    try:
        given = parse_properties(path.read_bytes())
    except PropertiesError as error:
        raise InvalidConfigError(str(error)) from None
    return {
        name: value if name == JAAS and not _REFERENCE.fullmatch(value) else _resolved(value, name)
        for name, value in given.items()
    }


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a JAAS login, with references replaced by their values. Raises InvalidConfigError."""
    # Replace references after parsing: a password may contain quotation marks.
    return {
        name: _resolved(re.sub(r"\\(.)", r"\1", quoted) if plain is None else plain, JAAS)
        for name, quoted, plain in ((match[1], match[2], match[3]) for match in _JAAS_OPTION.finditer(text))
    }


def _resolved(value: str, name: str) -> str:
    """Return `value` with its references replaced by their values."""

    def found(match: re.Match[str]) -> str:
        kind, where = match.groups()
        if kind == "env":
            if where not in os.environ:
                raise InvalidConfigError(f"{name}: no {where} in the environment")
            return os.environ[where]
        file, _, key = where.rpartition(":")
        try:
            return parse_properties(Path(file).read_bytes())[key]
        except (OSError, KeyError) as error:
            raise InvalidConfigError(f"{name}: no {key} in {file or where} ({error})") from None

    return _REFERENCE.sub(found, value)


def _credentials(settings: Mapping[str, str]) -> Credentials:
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    options = jaas_options(settings.get(JAAS, ""))
    if mechanism == _OAUTHBEARER:
        return _token_credentials(settings, options)
    if mechanism not in PASSWORD_MECHANISMS:
        known = ", ".join((*PASSWORD_MECHANISMS, _OAUTHBEARER))
        raise InvalidConfigError(f"sasl.mechanism={mechanism}: topicfs supports {known}")
    if not (options.get("username") and "password" in options):
        raise InvalidConfigError(
            'sasl.jaas.config: expected `… required username="…" password="…";`; a password may be ${env:NAME}'
        )
    user = options["username"]
    return Credentials(mechanism, user, partial(PASSWORD_MECHANISMS[mechanism], user, options["password"]))


def _token_credentials(settings: Mapping[str, str], options: Mapping[str, str]) -> Credentials:
    url = settings.get(_ENDPOINT, "")
    where = urlsplit(url)
    if where.scheme not in {"http", "https"} or not where.hostname:
        raise InvalidConfigError(f"{_ENDPOINT}={url}: expected the URL of a token endpoint, https://…")
    client_id = settings.get(_CLIENT_ID) or options.get("clientId", "")
    secret = settings.get(_CLIENT_SECRET) or options.get("clientSecret", "")
    if not client_id or not secret:
        raise InvalidConfigError(
            f"expected {_CLIENT_ID} and …client.secret, or clientId and clientSecret in {JAAS}; "
            "a secret may be ${env:NAME}"
        )
    scope = settings.get(_SCOPE) or options.get("scope", "")
    tls = _tls(options) if where.scheme == "https" else None
    endpoint = TokenEndpoint(url, client_id, secret, scope, tls)
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    return Credentials(_OAUTHBEARER, client_id, partial(oauthbearer, endpoint.token, extensions))


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = settings.get(f"{store}.type", "PEM").upper()
        if kind != "PEM":
            raise InvalidConfigError(f"{store}.type={kind}: {_CONVERT}")
    context = ssl.create_default_context()
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
    _trust(context, settings)
    _identify(context, settings)
    return context


_CONVERT = (
    "only PEM is supported; convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12, then "
    "openssl pkcs12 -in FILE.p12 -out FILE.pem"
)


def _trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    location, inline = settings.get("ssl.truststore.location"), settings.get("ssl.truststore.certificates")
    if not location and not inline:
        return
    text = inline or _pem(location or "", "ssl.truststore.location")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfigError(f"ssl.truststore: no PEM certificates ({error})") from None


def _identify(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Load the client's certificate and key for mutual TLS."""
    location, key = settings.get("ssl.keystore.location"), settings.get("ssl.keystore.key")
    if not location and not key:
        return
    text = (
        _pem(location, "ssl.keystore.location")
        if location
        else f"{key}\n{settings.get('ssl.keystore.certificate.chain', '')}"
    )
    password = settings.get("ssl.key.password", "")
    # The ssl module reads only files: write a file that only its owner can read, and delete it right after.
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise InvalidConfigError(
                f"ssl.keystore: no PEM key and certificate, or a wrong ssl.key.password ({error})"
            ) from None


def _pem(location: str, name: str) -> str:
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise InvalidConfigError(f"{name}={location}: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        raise InvalidConfigError(f"{name}={location}: {_CONVERT}")
    return data.decode("ascii", errors="replace")
