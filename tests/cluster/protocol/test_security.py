"""Tests of TLS and SASL with a real broker, and of the errors if TLS or SASL fails."""

from __future__ import annotations

import ssl
import time
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from testing.broker.client import TIMEOUT_SECONDS
from tests.doubles.token_endpoint import token_endpoint
from tests.doubles.waiting import wait_until
from topicfs.cluster.errors import AuthenticationError, NotKafkaError, UnreachableError, tls_reason
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.sasl import Credentials, oauthbearer, scram
from topicfs.cluster.protocol.security import PLAINTEXT, Security, read_security
from topicfs.protocol.messages import METADATA
from topicfs.storage.errors import InvalidConfigError

EVERYTHING = {"topics": None, "allowAutoTopicCreation": False}
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture
def security(tmp_path):
    """Returns a function that reads settings as from a file."""

    def read(**settings):
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
        return read_security(path)

    return read


@pytest.fixture(scope="module")
def scram_users(broker, client):
    """Create bob's SCRAM credentials for both mechanisms, and wait until the broker accepts them."""
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertion = UserScramCredentialUpsertion("bob", ScramCredentialInfo(kind, 4096), b"bob-secret")
        client.admin.alter_user_scram_credentials([upsertion])["bob"].result(TIMEOUT_SECONDS)
    for name, digest in (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")):
        bob = Credentials(name, "bob", partial(scram, digest, "bob", "bob-secret"))
        wait_until(partial(lets_in, broker, bob), "bob is known")


def lets_in(broker, credentials):
    try:
        asked(broker, "SASL_PLAINTEXT", Security(credentials=credentials))
    except AuthenticationError:
        return False
    return True


def jaas(user, password):
    return f'{MODULE} required username="{user}" password="{password}";'


def asked(broker, protocol, security):
    """Connect to a listener of the broker, send a Metadata request, and return the ports that the answer has."""
    with closing(Connection(Server("localhost", broker.ports[protocol]), security)) as connection:
        return [one["port"] for one in connection.call(METADATA, EVERYTHING)["brokers"]]


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.usefixtures("scram_users")
def test_users_and_passwords(broker, security, certificates, mechanism, protocol):
    """Correct credentials are accepted; for wrong ones the error names the user and not the password."""
    user = "alice" if mechanism == "PLAIN" else "bob"
    settings = {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "ssl_truststore_location": certificates.authority,
    }
    right = security(**settings, sasl_jaas_config=jaas(user, f"{user}-secret"))
    assert [broker.ports[protocol]] == asked(broker, protocol, right)
    with pytest.raises(AuthenticationError) as caught:
        asked(broker, protocol, security(**settings, sasl_jaas_config=jaas(user, "hunter2")))
    assert f"{mechanism} as {user}: the cluster answers SASL_AUTHENTICATION_FAILED" in str(caught.value)
    assert "check user and password" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(right) + repr(right.credentials)


@pytest.mark.java
def test_a_session_continues_over_the_same_connection(broker, security, monkeypatch):
    """The client reauthenticates before the broker's two-second session ends; a broker disconnects late clients."""
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    known = security(**settings, sasl_jaas_config=jaas("alice", "alice-secret"))
    server = Server("localhost", broker.ports["SASL_PLAINTEXT"])
    with closing(Connection(server, known)) as going_on, closing(Connection(server, known)) as silent:
        silent._session_ends = float("inf")
        begun = going_on._session_ends
        assert begun < time.monotonic() + 2

        def goes_on():
            going_on.call(METADATA, EVERYTHING)
            return begun < going_on._session_ends < float("inf")

        wait_until(goes_on, "the client reauthenticates")
        with pytest.raises(UnreachableError, match="the broker closed the connection"):
            wait_until(lambda: silent.call(METADATA, EVERYTHING) is None, "the session has expired")
        going_on.call(METADATA, EVERYTHING)


@pytest.mark.java
def test_a_session_that_is_refused_ends_the_connection(broker, security):
    """If reauthentication fails, for example after the password changed, the connection ends."""
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    known = security(**settings, sasl_jaas_config=jaas("alice", "alice-secret"))
    connection = Connection(Server("localhost", broker.ports["SASL_PLAINTEXT"]), known)
    connection._credentials = security(**settings, sasl_jaas_config=jaas("alice", "old")).credentials
    time.sleep(1.1)  # A broker refuses to reauthenticate within a second.
    connection._session_ends = 0
    with pytest.raises(
        AuthenticationError, match="PLAIN as alice: the cluster answers SASL_AUTHENTICATION_FAILED"
    ):
        connection.call(METADATA, EVERYTHING)
    assert not connection.usable


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_tokens(broker, security, certificates, protocol):
    """Tokens come from an endpoint with separate TLS settings; an expired token is replaced within the session."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.pair("endpoint"))
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    with token_endpoint(tls) as endpoint:
        known = security(
            security_protocol=protocol,
            ssl_truststore_location=certificates.authority,
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
            sasl_jaas_config=f'{module} required clientId="carol" clientSecret="s" scope="kafka" '
            f'ssl.truststore.location="{certificates.authority}";',
        )
        assert [broker.ports[protocol]] == asked(broker, protocol, known)
        assert [("carol:s", ["kafka"])] == [(who, fields["scope"]) for _, who, fields in endpoint.asked]
        assert () == known.ignored
    with token_endpoint() as endpoint:
        endpoint.lifetime = 5  # Long enough that a slow broker still accepts the token.
        settings = {
            "security_protocol": protocol,
            "ssl_truststore_location": certificates.authority,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": endpoint.url,
            "sasl_oauthbearer_client_credentials_client_id": "carol",
            "sasl_oauthbearer_client_credentials_client_secret": "s",
        }
        server = Server("localhost", broker.ports[protocol])
        with closing(Connection(server, security(**settings))) as connection:

            def has_asked_again():
                connection.call(METADATA, EVERYTHING)
                return 2 == len(endpoint.asked)

            wait_until(has_asked_again, "the next token is asked for")
        endpoint.answer = 200, b'{"access_token": "rubbish"}'
        with pytest.raises(
            AuthenticationError, match="OAUTHBEARER as carol: .*AUTHENTICATION_FAILED.*or the token"
        ):
            asked(broker, protocol, security(**settings))


@pytest.mark.java
def test_a_clients_certificate(broker, security, certificates):
    """A client certificate may have an encrypted key; a missing key or a wrong password gives an error that says so."""
    common = {"security_protocol": "SSL", "ssl_truststore_location": certificates.authority}
    pair = certificates.pair("client", password="key-secret")
    known = security(**common, ssl_keystore_location=pair, ssl_key_password="key-secret")
    assert [broker.ports["SSL"]] == asked(broker, "SSL", known)
    with pytest.raises(AuthenticationError, match="rejects this client's certificate.*ssl.keystore.location"):
        asked(broker, "SSL", security(**common))
    with pytest.raises(InvalidConfigError, match="no PEM key and certificate, or a wrong ssl.key.password"):
        security(**common, ssl_keystore_location=pair, ssl_key_password="wrong")


@pytest.mark.java
def test_a_certificate_and_a_password(broker, security, certificates):
    """A listener may require TLS and SASL; TLS comes first, so an expired certificate fails with any password."""
    settings = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": certificates.authority,
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": jaas("alice", "alice-secret"),
    }
    good = security(**settings, ssl_keystore_location=certificates.pair("both"))
    assert [broker.ports["SASL_SSL"]] == asked(broker, "SASL_SSL", good)
    old = security(**settings, ssl_keystore_location=certificates.pair("both-old", expired=True))
    with pytest.raises(AuthenticationError, match="rejects this client's certificate.*ssl.keystore.location"):
        asked(broker, "SASL_SSL", old)


@pytest.mark.java
def test_certificates_of_a_broker_and_of_its_client(broker, security, certificates):
    """A certificate that the broker or the client rejects gives an error with the remedy."""
    tls = {"security_protocol": "SSL"}
    with pytest.raises(
        AuthenticationError, match="set ssl.truststore.location to a file with the CA that signed it"
    ):
        asked(broker, "SASL_SSL", security(**tls, ssl_truststore_location=certificates.stranger))
    known = security(**tls, ssl_truststore_location=certificates.authority)
    with pytest.raises(AuthenticationError, match="connect by a name that it contains"):
        Connection(Server("127.0.0.1", broker.ports["SASL_SSL"]), known)
    old = certificates.pair("old", expired=True)
    known = security(**tls, ssl_truststore_location=certificates.authority, ssl_keystore_location=old)
    with pytest.raises(AuthenticationError, match="rejects this client's certificate.*ssl.keystore.location"):
        asked(broker, "SSL", known)


@pytest.mark.java
def test_listeners_that_want_something_else(broker, security, certificates):
    """If only one side uses SASL or TLS, the error says what to set."""
    plain = Server("127.0.0.1", int(broker.bootstrap_server.rpartition(":")[2]))
    sasl = security(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=jaas("alice", "alice-secret"),
    )
    with pytest.raises(
        AuthenticationError, match="ILLEGAL_SASL_STATE.*set security.protocol to that of the listener"
    ):
        Connection(plain, sasl)
    with pytest.raises(UnreachableError, match="if it requires SASL, give credentials: --client-config FILE"):
        asked(broker, "SASL_PLAINTEXT", PLAINTEXT)
    with pytest.raises(NotKafkaError, match="it speaks TLS: give --client-config FILE"):
        asked(broker, "SASL_SSL", PLAINTEXT)
    tls = security(security_protocol="SSL", ssl_truststore_location=certificates.authority)
    with pytest.raises((AuthenticationError, UnreachableError), match="set security.protocol to PLAINTEXT"):
        Connection(plain, tls)


@pytest.mark.parametrize(
    "error",
    [
        ssl.SSLEOFError(
            8, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)"
        ),
        ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF) (_ssl.c:992)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_listener_that_ends_the_handshake(error):
    """Whichever error a build of Python raises if the peer closes the connection, the remedy is named."""
    assert (
        "it closed the connection; if it does not speak TLS, set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        == tls_reason(error)
    )


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ({"expired": True}, "certificate has expired; its owner has to renew it"),
        ({"signed": False}, "set ssl.truststore.location to a file with the CA that signed it"),
        ({"host": "elsewhere.example"}, "connect by a name that it contains"),
    ],
)
def test_certificates_that_are_refused(served, security, certificates, pair, said):
    """An expired certificate, an unknown CA and another host's certificate each give an error with a remedy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted = certificates.authority if pair.pop("signed", True) else certificates.stranger
    context.load_cert_chain(certificates.pair("server", **pair))
    port = served(lambda connection: context.wrap_socket(connection, server_side=True).close()).port
    known = security(security_protocol="SSL", ssl_truststore_location=trusted)
    with pytest.raises(AuthenticationError) as caught:
        Connection(Server("localhost", port), known)
    assert "its certificate is rejected: " in str(caught.value)
    assert said in str(caught.value)


def test_host_name_checks_can_be_turned_off(served, security, certificates):
    """An empty ssl.endpoint.identification.algorithm turns host name checks off, as for Java clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pair("other", host="elsewhere.example"))
    server = served(lambda connection: context.wrap_socket(connection, server_side=True).close())
    settings = {"security_protocol": "SSL", "ssl_truststore_location": certificates.authority}
    with pytest.raises(UnreachableError):
        Connection(server, security(**settings, ssl_endpoint_identification_algorithm=""))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security_protocol": "TLS"}, "security.protocol=TLS: expected one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI: topicfs supports PLAIN, SCRAM-SHA-256"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config: expected"),
        (
            {"security_protocol": "SSL", "ssl_truststore_type": "JKS"},
            "ssl.truststore.type=JKS: only PEM is supported",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_location": "/no/where"}, "/no/where: No such file"),
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "/bin/true"},
            "only PEM is supported; convert it",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url=: expected the URL of a token endpoint",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "http://localhost/token",
            },
            "or clientId and clientSecret in sasl.jaas.config",
        ),
        ({"security_protocol": "${env:NO_SUCH_NAME}"}, "no NO_SUCH_NAME in the environment"),
        ({"security_protocol": "${file:/no/where:name}"}, "no name in /no/where"),
    ],
)
def test_settings_that_cannot_be_used(security, settings, said):
    """The error for an unusable setting has the file, the setting's name and what was expected."""
    with pytest.raises(InvalidConfigError) as caught:
        security(**settings)
    assert said in str(caught.value)
    assert "client.properties: " in str(caught.value)


def test_passwords_come_from_elsewhere(security, tmp_path, monkeypatch):
    """A password may be read from the environment or from another file. Unused settings are listed."""
    monkeypatch.setenv("REPORTS_PASSWORD", 'a"b')
    (tmp_path / "secrets").write_text("one=from a file\n")
    monkeypatch.setenv("EVERYTHING", jaas("u", "of everything"))
    settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "client_id": "x",
        "ssl_cipher_suites": "x",
    }
    found = security(
        **settings,
        sasl_jaas_config=jaas("u", "${env:REPORTS_PASSWORD}"),
    )
    assert (b'\0u\0a"b', ("ssl.cipher.suites",)) == (next(found.credentials.exchange()), found.ignored)
    found = security(**settings, sasl_jaas_config=jaas("u", f"${{file:{tmp_path}/secrets:one}}"))
    assert b"\0u\0from a file" == next(found.credentials.exchange())
    found = security(**settings, sasl_jaas_config="${env:EVERYTHING}")
    assert b"\0u\0of everything" == next(found.credentials.exchange())


def test_scram_is_that_of_the_standard():
    """The client sends the messages of the example in RFC 7677."""
    exchange = scram("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == next(exchange)
    proof = exchange.send(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        == proof
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=ours1,s=c2FsdA==,i=1",
        b"r=ours1,s=c2FsdA==,i=99999999",
        b"r=ours1,s=!,i=4096",
    ],
)
def test_a_false_challenge_is_refused(challenge):
    """A challenge with another nonce, too few or too many iterations, or garbage is refused."""
    exchange = scram("sha256", "user", "pencil", "ours")
    next(exchange)
    with pytest.raises((ValueError, KeyError)):
        exchange.send(challenge)


def test_a_broker_that_does_not_know_the_password_is_refused():
    """A broker that cannot prove it knows the password is refused, because it could be anyone."""
    exchange = scram("sha512", "user", "pencil", "ours")
    next(exchange)
    exchange.send(b"r=ours1,s=c2FsdA==,i=4096")
    with pytest.raises(ValueError, match="cannot prove that it knows the password"):
        exchange.send(b"v=" + b"A" * 88)


def test_a_token_is_sent_with_its_extensions():
    """A token is sent with its extensions; the client answers a refusal with the byte 1, as RFC 7628 demands."""
    exchange = oauthbearer(lambda: "t", {"logicalCluster": "lkc-1"})
    assert b"n,,\1auth=Bearer t\1logicalCluster=lkc-1\1\1" == next(exchange)
    assert b"\1" == exchange.send(b'{"status":"invalid_token"}')
    exchange = oauthbearer(lambda: "t", {})
    assert b"n,,\1auth=Bearer t\1\1" == next(exchange)
    with pytest.raises(StopIteration):
        exchange.send(b"")
