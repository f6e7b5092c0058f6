"""Converts a file of client settings for other clients: Kafka's Java client, which Spark uses, and librdkafka.

References in the file are replaced by their values, so no command line needs a secret. The results contain the secrets.
"""

from __future__ import annotations

import re
from pathlib import Path

from topicfs.cluster.protocol.security import JAAS, KNOWN, jaas_options, read_security, read_settings

_STORES = ("ssl.truststore", "ssl.keystore")
_LIBRDKAFKA = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.key.password": "ssl.key.password",
}
"""librdkafka's names for settings of the Java client."""
_LIBRDKAFKA_OF_LOGIN = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_LOCATIONS = ("ssl.truststore.location", "ssl.keystore.location")


def for_java(path: Path) -> dict[str, str]:
    """Return the settings for a Java client, with absolute paths. Raises InvalidConfigError, OSError."""
    settings = _checked(path)
    for store in _STORES:
        if any(name.startswith(f"{store}.") for name in settings):
            settings.setdefault(f"{store}.type", "PEM")  # Java assumes its own format if no type is set.
    if settings.get(JAAS, "").strip():
        module = settings[JAAS].split()[0]
        login = (f"{name}={_quoted(value)}" for name, value in jaas_options(settings[JAAS]).items())
        settings[JAAS] = " ".join((module, "required", *login)) + ";"
    return settings


def for_librdkafka(path: Path) -> dict[str, str]:
    """Return the settings for a librdkafka client. Raises InvalidConfigError, OSError."""
    settings = _checked(path)
    found = {_LIBRDKAFKA[name]: value for name, value in settings.items() if name in _LIBRDKAFKA}
    login = jaas_options(settings.get(JAAS, ""))
    found |= {
        _LIBRDKAFKA_OF_LOGIN[name]: value for name, value in login.items() if name in _LIBRDKAFKA_OF_LOGIN
    }
    if settings.get("sasl.mechanism") == "OAUTHBEARER":
        found["sasl.oauthbearer.method"] = "oidc"
    keystore = settings.get("ssl.keystore.location")
    if keystore:  # The PEM file contains the certificate and the key.
        found |= {"ssl.certificate.location": keystore, "ssl.key.location": keystore}
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _checked(path: Path) -> dict[str, str]:
    """Return the security settings after checking that they are valid."""
    read_security(path)
    settings = {name: value for name, value in read_settings(path).items() if name in KNOWN}
    return settings | {
        name: str(Path(settings[name]).absolute()) for name in _LOCATIONS if settings.get(name)
    }


def _quoted(value: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"'
