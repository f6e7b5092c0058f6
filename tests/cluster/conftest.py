"""One Java and one running broker for all tests of this folder, and servers with scripted answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from testing.broker.broker import Broker, running_broker, running_cluster
from testing.broker.client import Client, let_go
from testing.broker.libraries import Java
from tests.doubles.certificates import Certificates
from tests.doubles.producing import connected
from tests.doubles.relay import Relay
from tests.doubles.servers import servers
from topicfs.cluster.engine import ClusterEngine, open_engine
from topicfs.cluster.place import ClusterAddress, Server, cluster_address


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def broker(
    java: Java, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The running broker that the tests share; each test has its own topics. Users are alice and bob."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        # Without an ACL a resource is open to everybody.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.pair("broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings |= {
            f"listener.name.{listener}.plain.sasl.jaas.config": f'{plain} required user_alice="alice-secret";',
            f"listener.name.{listener}.plain.connections.max.reauth.ms": "2000",
            f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
            f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            f"listener.name.{listener}.oauthbearer.sasl.jaas.config": f"{oauth} required;",
        }
    protocols = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
    home = tmp_path_factory.mktemp("kafka") / "node"
    with running_broker(home, java, settings, protocols=protocols) as broker:
        yield broker


@pytest.fixture(scope="session")
def three_brokers(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[int, Broker]]:
    """A cluster of three brokers, by node id; the first broker is the controller.

    All brokers run before and after each test.
    """
    with running_cluster(tmp_path_factory.mktemp("kafka") / "three", java) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    yield Client(broker.bootstrap_server)
    let_go()


@pytest.fixture(scope="session")
def address(broker: Broker) -> ClusterAddress:
    return cluster_address(f"kafka://{broker.bootstrap_server}")


@pytest.fixture
def served() -> Iterator[Callable[[Callable[[socket.socket], None]], Server]]:
    """Start servers on loopback (`tests.doubles.servers`)."""
    with servers() as start:
        yield start


@pytest.fixture
def engine(address: ClusterAddress) -> Iterator[ClusterEngine]:
    with closing(open_engine(address)) as engine:
        yield engine


@pytest.fixture
def relay(served: Callable[[Callable[[socket.socket], None]], Server]) -> Relay:
    return Relay(served)


@pytest.fixture
def relayed(address: ClusterAddress, relay: Relay) -> Iterator[ClusterEngine]:
    """An engine whose requests go through `relay`."""
    with connected(address, relay.connect) as engine:
        yield engine
