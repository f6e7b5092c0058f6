"""Real clients over TLS and with SASL: who is served, and who is refused."""

from __future__ import annotations

import signal
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.doubles.certificates import Certificates
from tests.doubles.kafka_tools import console_consume, console_produce, run_tool
from tests.doubles.waiting import wait_until
from tests.listener.daemon import PROGRAM, Daemon, mounted
from tests.listener.serving import Served
from tests.listener.test_clients import TIMEOUT_SECONDS, kcat, values
from tests.listener.test_hostile_frames import SOFTWARE
from topicfs.listener.security.files import SecurityFiles
from topicfs.listener.security.users import entry
from topicfs.protocol.messages import API_VERSIONS

PASSWORD = "a=secret, “quoted”\\"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LINES = ["first", "second"]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of users: alice, and a user whose name SCRAM has to escape."""
    path = tmp_path / "users.txt"
    path.write_text(f"# people\n{entry('alice', PASSWORD)}\n\n{entry('b=o,b: c', 'x')}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def secured(start: Any, certificates: Certificates, users: Path) -> Served:
    """A served directory that requires TLS and a password."""
    files = SecurityFiles(certificate=certificates.pair("listener"), users=users)
    served: Served = start(security=files)
    return served


def login(
    certificates: Certificates, mechanism: str = "PLAIN", user: str = "alice", password: str = PASSWORD
) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.authority),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def refusal(address: str, settings: dict[str, str], *codes: int) -> str:
    """Return the text of the first error that a librdkafka client gets and that has one of `codes`."""
    found: list[KafkaError] = []
    client = Producer({"bootstrap.servers": address, "log_level": 0, "error_cb": found.append, **settings})

    def is_refused() -> bool:
        client.poll(0.1)
        return any(error.code() in codes for error in found)

    wait_until(is_refused, f"the client gets an error with one of the codes {codes}")
    return next(error.str() for error in found if error.code() in codes)


def lists(address: str, settings: dict[str, str]) -> bool:
    """Return whether kcat gets the list of topics."""
    options = [f"-X{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        ["kcat", "-L", "-m", "2", "-b", address, *options],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_with_a_password(secured: Served, certificates: Certificates, mechanism: str) -> None:
    """kcat produces and consumes over TLS with each mechanism."""
    options = [f"-X{name}={value}" for name, value in login(certificates, mechanism).items()]
    kcat("-P", "-b", secured.address, "-t", "t", *options, lines=LINES)
    assert [line.encode() for line in LINES] == values(secured, "t")
    assert LINES == kcat("-C", "-b", secured.address, "-t", "t", "-e", "-q", *options).splitlines()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("tls", [True, False])
def test_librdkafka_with_a_password(
    start: Any, certificates: Certificates, users: Path, mechanism: str, tls: bool
) -> None:
    """librdkafka for Python authenticates each user with each mechanism, with and without TLS."""
    certificate = certificates.pair("listener") if tls else None
    served = start(security=SecurityFiles(certificate=certificate, users=users))
    for user, password in (("alice", PASSWORD), ("b=o,b: c", "x")):
        settings = login(certificates, mechanism, user, password)
        settings |= {} if tls else {"security.protocol": "SASL_PLAINTEXT"}
        producer = Producer({"bootstrap.servers": served.address, **settings})
        producer.produce("t", user.encode(), partition=0)
        assert 0 == producer.flush(TIMEOUT_SECONDS)
    assert [b"alice", b"b=o,b: c"] == values(served, "t")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user(
    secured: Served, certificates: Certificates, mechanism: str
) -> None:
    """A wrong password and an unknown user get the same error."""
    told = {
        refusal(
            secured.address,
            login(certificates, mechanism, user, "wrong"),
            KafkaError._AUTHENTICATION,
        ).partition(": ")[2].partition(" (after")[0]
        for user in ("alice", "nobody")
    }  # fmt: skip
    [text] = told
    assert "Authentication failed" in text


@pytest.mark.parametrize("kind", ["expired", "self-signed"])
def test_certificates_that_clients_refuse(
    start: Any, certificates: Certificates, users: Path, kind: str
) -> None:
    """Clients refuse an expired certificate and a certificate of an unknown authority.

    Other connections are not affected.
    """
    expired = kind == "expired"
    served = start(security=SecurityFiles(certificate=certificates.pair(kind, expired=expired), users=users))
    settings = login(certificates) | ({} if expired else {"ssl.ca.location": str(certificates.stranger)})
    assert "certificate verify failed" in refusal(served.address, settings, KafkaError._SSL)
    trusting = {**login(certificates), "enable.ssl.certificate.verification": "false"}
    assert (
        {}
        == AdminClient({"bootstrap.servers": served.address, **trusting})
        .list_topics(timeout=TIMEOUT_SECONDS)
        .topics
    )


def test_a_client_without_tls(secured: Served, certificates: Certificates) -> None:
    """A client that does not use TLS is disconnected without an answer."""
    settings = {**login(certificates), "security.protocol": "SASL_PLAINTEXT"}
    assert not lists(
        secured.address, {name: settings[name] for name in settings if not name.startswith("ssl.")}
    )
    client = secured.client()
    client.send(API_VERSIONS, SOFTWARE, 3)
    assert client.is_closed()


def test_a_client_with_tls_where_there_is_none(served: Served, certificates: Certificates) -> None:
    """A client that speaks TLS is disconnected by a listener without TLS."""
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.authority)}
    assert not lists(served.address, settings)
    with pytest.raises(OSError, match="SSL|reset"):
        served.client(ssl.create_default_context(cafile=certificates.authority))
    assert lists(served.address, {})


def test_certificates_of_clients(start: Any, certificates: Certificates) -> None:
    """If a listener has an authority for client certificates, clients need a valid certificate of this authority."""
    authority = certificates.authority
    served = start(
        security=SecurityFiles(certificate=certificates.pair("listener"), client_authority=authority)
    )
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority)}

    def own(path: Path) -> dict[str, str]:
        return {**settings, "ssl.certificate.location": str(path), "ssl.key.location": str(path)}

    assert lists(served.address, own(certificates.pair("client")))
    for bad in (settings, own(certificates.pair("old", expired=True))):
        assert not lists(served.address, bad)


@pytest.mark.java
def test_console_tools(java: Any, secured: Served, certificates: Certificates, tmp_path: Path) -> None:
    """The Java console tools create topics, produce and consume over TLS. Each of them uses another mechanism."""

    def flags(mechanism: str) -> tuple[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        config = tmp_path / f"{mechanism}.properties"
        config.write_text(
            "security.protocol=SASL_SSL\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.authority}\n"
            f"sasl.mechanism={mechanism}\nsasl.jaas.config=org.apache.kafka.common.security.{module} required "
            'username="b=o,b: c" password="x";\n'
        )
        return "--command-config", str(config)

    create = ("--bootstrap-server", secured.address, "--create", "--topic", "t")
    run_tool(java, "org.apache.kafka.tools.TopicCommand", *create, *flags("PLAIN"))
    console_produce(java, secured.address, "t", *flags("SCRAM-SHA-256"), lines=LINES)
    consumed = console_consume(java, secured.address, "t", *flags("SCRAM-SHA-512"), count=len(LINES))
    assert LINES == consumed


@pytest.fixture
def prepared(tmp_path: Path, certificates: Certificates) -> list[str]:
    """The options of a secured listener, whose file of users has a line for alice.

    The command `listener-user` has written this line.
    """
    [key, certificate] = certificates.pair("listener").read_text().split("-----BEGIN CERTIFICATE-----")
    (tmp_path / "key.pem").touch(mode=0o600)
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "certificate.pem").write_text("-----BEGIN CERTIFICATE-----" + certificate)
    made = subprocess.run(
        [PROGRAM, "listener-user", "alice"],
        input=f"{PASSWORD}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "users").touch(mode=0o600)
    (tmp_path / "users").write_text(made.stdout)
    (tmp_path / "server.properties").touch()
    return [
        *("--listen-users", "users", "--config", "server.properties"),
        *("--tls-certificate", "certificate.pem", "--tls-key", "key.pem"),
    ]


def test_serve(
    daemon: Callable[..., Daemon], tmp_path: Path, certificates: Certificates, prepared: list[str]
) -> None:
    """`serve` accepts the users of the file, and reads the file again after SIGHUP."""
    server = daemon(*prepared, address="localhost:0")
    assert lists(server.address, login(certificates))
    (tmp_path / "users").write_text(entry("bob", "x"))
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: lists(server.address, login(certificates, user="bob", password="x")), "bob is known")
    assert not lists(server.address, login(certificates))
    assert 0 == server.end()


@pytest.mark.fuse
def test_mount(tmp_path: Path, certificates: Certificates, prepared: list[str]) -> None:
    """A mount in the background accepts the users of the file."""
    with mounted(tmp_path, *prepared, "--listen", "localhost:0") as address:
        assert lists(address, login(certificates, "SCRAM-SHA-512"))
        assert not lists(address, {})
