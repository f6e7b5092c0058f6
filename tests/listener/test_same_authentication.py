"""A real broker and a listener give the same answers before and during authentication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.libraries import Java
from tests.listener.serving import RawClient, Served
from tests.listener.test_hostile_frames import SOFTWARE
from topicfs.protocol.group_messages import LIST_GROUPS
from topicfs.protocol.messages import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from topicfs.protocol.notation import Api

pytestmark = pytest.mark.java

Step = tuple[Api, dict[str, Any], int]
VERSIONS: Step = (API_VERSIONS, SOFTWARE, 3)
EVERYTHING: Step = (METADATA, {"topics": []}, 12)


def handshake(mechanism: str, version: int = 1) -> Step:
    return (SASL_HANDSHAKE, {"mechanism": mechanism}, version)


def message(content: bytes, version: int = 2) -> Step:
    return (SASL_AUTHENTICATE, {"authBytes": content}, version)


RIGHT = message(b"\0alice\0alice-secret")
CONVERSATIONS: tuple[tuple[Step, ...], ...] = (
    (VERSIONS, handshake("PLAIN"), RIGHT, EVERYTHING),
    (handshake("PLAIN"), message(RIGHT[1]["authBytes"], 0), EVERYTHING),
    (handshake("PLAIN"), message(RIGHT[1]["authBytes"], 1), EVERYTHING),
    (handshake("PLAIN"), RIGHT, RIGHT, EVERYTHING),
    (handshake("PLAIN"), RIGHT, VERSIONS, EVERYTHING),
    (VERSIONS, VERSIONS),
    ((API_VERSIONS, {**SOFTWARE, "clientSoftwareName": "-"}, 3), VERSIONS, handshake("PLAIN")),
    (EVERYTHING,),
    (RIGHT,),
    ((FETCH, {}, 12),),
    (VERSIONS, EVERYTHING),
    (handshake("GSSAPI"), handshake("PLAIN")),
    (handshake(""),),
    (handshake("plain", 0),),
    (handshake("PLAIN"), handshake("PLAIN")),
    (handshake("PLAIN"), VERSIONS),
    (handshake("PLAIN"), (DESCRIBE_CLUSTER, {}, 1)),
    (handshake("PLAIN"), (INIT_PRODUCER_ID, {"transactionalId": None}, 4)),
    (handshake("PLAIN"), (LIST_GROUPS, {}, 4)),
    *((handshake("PLAIN"), message(one)) for one in (
        b"", b"\0alice", b"\0alice\0", b"\0\0x", b"\0alice\0wrong", b"\0nobody\0wrong", b"\0alice\0alice-secret\0", b"\0\0\0\0\0",
                b"bob\0alice\0alice-secret", b"alice\0alice\0alice-secret",
    )),
    *((handshake("SCRAM-SHA-256"), message(one)) for one in (
        b"", b"n=alice,r=abc", b"y,,n=alice,r=abc", b"n,,n=,r=abc", b"n,,n=alice,r=", b"n,,n=al=2xice,r=abc",
    )),
)  # fmt: skip


@pytest.fixture(scope="module")
def guarded_broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker with a listener for alice."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    of_listener = "listener.name.sasl_plaintext"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{of_listener}.plain.sasl.jaas.config": f'{plain} required user_alice="alice-secret";',
        f"{of_listener}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
        f"{of_listener}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
    }
    home = tmp_path_factory.mktemp("kafka") / "node"
    with running_broker(home, java, settings, protocols=("SASL_PLAINTEXT",)) as broker:
        yield broker


def told(address: str, conversation: tuple[Step, ...]) -> list[Any]:
    """Return a server's answers until the connection ends.

    If a request other than SaslHandshake and SaslAuthenticate is refused, return only its error code.
    """
    client = RawClient(address)
    found: list[Any] = []
    try:
        with suppress(EOFError, ConnectionError):
            for api, values, version in conversation:
                answer = client.ask(api, values, version)
                if api not in (SASL_HANDSHAKE, SASL_AUTHENTICATE) and answer.get("errorCode"):
                    answer = {"errorCode": answer["errorCode"]}
                found.append({name: shown(name, value) for name, value in answer.items() if name not in FREE})
            return [*found, "open"]
        return [*found, "closed"]
    finally:
        client.close()


FEATURES = {"finalizedFeatures", "finalizedFeaturesEpoch", "supportedFeatures"}
"""Fields that test_same_transactions.py compares: the listener has one feature of a broker, `transaction.version`."""
FREE = {"apiKeys", "brokers", "clusterId", "controllerId", "throttleTimeMs", *FEATURES}
"""Fields that are not compared: FEATURES, and the fields that differ between any two brokers."""


def shown(name: str, value: Any) -> Any:
    if name == "mechanisms":
        return sorted(value)
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
def test_conversations(guarded_broker: Broker, guarded: Served, number: int) -> None:
    """In each conversation the answers agree, and both servers end the connection at the same point."""
    theirs = told(f"localhost:{guarded_broker.ports['SASL_PLAINTEXT']}", CONVERSATIONS[number])
    assert theirs == told(guarded.address, CONVERSATIONS[number])
