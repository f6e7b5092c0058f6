"""Tests of readers that wait at a mount of a cluster while no broker answers any of their requests."""

from __future__ import annotations

from contextlib import closing

import pytest
import trio

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.mount_client import mounted, refused
from tests.doubles.producing import found, impatient
from tests.doubles.remote_client import Program
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.place import ClusterAddress
from topicfs.storage.model import Isolation

pytestmark = pytest.mark.java

in_thread = trio.to_thread.run_sync

TOPIC = "brokers-away"
ATTEMPTS = 6
"""Number of requests to the leader that get no answer while the readers wait."""


def holds(engine: ClusterEngine) -> bool:
    return any(one.held().partitions for members in engine.groups._members.values() for one in members)


@pytest.mark.parametrize("name", ["0/follow", "follow", "log", "drain"])
async def test_a_reader_that_waits_continues_when_brokers_are_back(
    broker: Broker, address: ClusterAddress, client: Client, name: str
) -> None:
    """A waiting reader gets new records when the brokers are back.

    A group member keeps its position while the brokers are away, and commits it afterwards.
    """
    topic = f"{TOPIC}-{name.replace('/', '-')}"
    client.create_topic(topic)
    client.produce(topic, [Outgoing(b"a")])
    with closing(ClusterEngine(Leaders(Brokers(address)), read_only=False)) as engine:
        partition = await in_thread(found, engine, topic)
        async with mounted(engine, None) as mount:
            program, text, seen = Program(mount), b"", set[float]()
            in_group = name in {"log", "drain"}
            await mount.mkdir(f"@groups/{topic}")
            follow = await program.open(f"{topic}/0/follow")
            client.produce(topic, [Outgoing(b"b")])
            await in_thread(wait_until, lambda: 2 == partition.visible_end(Isolation.READ_COMMITTED), "seen")
            fh = await program.open(f"@groups/{topic}/{topic}/{name}") if in_group else follow
            if in_group:
                await in_thread(wait_until, lambda: holds(engine), "it holds its partition")

            def asked_again() -> bool:
                partition._reader.forget()
                seen.update(one.since for one in list(engine.leaders._asking.values()))
                return len(seen) >= ATTEMPTS

            async def read() -> None:
                nonlocal text
                text = bytes(await program.fs.read(fh, 0, 100))

            with back_again(broker), impatient(engine, 0.2), trio.fail_after(3 * TIMEOUT_SECONDS):
                broker.kill()
                engine.groups._coordinators._timeout_seconds = 0.2
                partition._reader.forget()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    await in_thread(wait_until, asked_again, "the leader is asked again and again")
                    broker.launch()
                    await in_thread(broker.wait_until_served)
            assert (b"a\nb\n" if in_group else b"b\n") == text


@pytest.mark.parametrize("given", [b"", b"a\n"], ids=["nothing-given", "given"])
async def test_a_run_ends_at_its_time_while_no_broker_answers(
    broker: Broker, address: ClusterAddress, client: Client, given: bytes
) -> None:
    """While no leader answers, `next-5s` still ends after five seconds.

    If the group cannot commit the records that a program has read, the last read fails with EIO.
    """
    topic = f"{TOPIC}-next-{len(given)}"
    client.create_topic(topic)
    client.produce(topic, [Outgoing(b"a")])
    with closing(ClusterEngine(Leaders(Brokers(address)), read_only=False)) as engine:
        partition = await in_thread(found, engine, topic)
        async with mounted(engine, None) as mount:
            program = Program(mount)
            await mount.mkdir(f"@groups/{topic}")
            fh = await program.open(f"@groups/{topic}/{topic}/next-5s")
            await in_thread(wait_until, lambda: holds(engine), "it holds its partition")
            with (
                back_again(broker),
                impatient(engine, 10 * TIMEOUT_SECONDS),
                trio.fail_after(TIMEOUT_SECONDS),
            ):
                if given:
                    assert given == await program.fs.read(fh, 0, 100)
                broker.kill()
                partition._reader.forget()
                if given:
                    with refused("EIO"):
                        await program.fs.read(fh, len(given), 100)
                else:
                    assert b"" == await program.fs.read(fh, 0, 100)
                broker.launch()
                await in_thread(broker.wait_until_served)
            await program.fs.release(fh)
