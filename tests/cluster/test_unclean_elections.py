"""Tests of files that stay open during an unclean election; the new leader lacks records that were read."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import trio

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.mount_client import mounted
from tests.doubles.producing import found
from tests.doubles.relay import Lost, Relay
from tests.doubles.remote_client import Program
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import CacheSettings, ClusterEngine
from topicfs.cluster.groups import requests
from topicfs.cluster.place import cluster_address
from topicfs.fusefs.errors import FileError
from topicfs.protocol.messages import METADATA
from topicfs.storage.model import Isolation

pytestmark = pytest.mark.java

in_thread = trio.to_thread.run_sync

TOPIC = "unclean-files"
GONE = [b"gone %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(20)]


class Election:
    """A topic of two replicas: the leader has five records that the next leader, elected uncleanly, lacks."""

    def __init__(self, brokers: Mapping[int, Broker], relay: Relay) -> None:
        self._relay, self._second, self._third = relay, brokers[2], brokers[3]
        self._client = Client(brokers[1].bootstrap_server)
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        self._client.create_topic(TOPIC, replicas=(2, 3), settings=settings)
        self._client.produce(TOPIC, [Outgoing(b"a"), Outgoing(b"b")], batch=1)

    def append_to_the_last_replica(self) -> None:
        self._third.kill()
        self._client.produce(TOPIC, [Outgoing(value) for value in GONE], batch=1)

    def begin(self) -> None:
        """Stop the leader, so that the other replica is alone. Call this in the main thread: it starts a broker."""
        self._relay.always(METADATA, Lost.ANSWER)
        self._second.kill()
        self._third.launch()

    def end(self) -> None:
        """Wait for the election, then append past the old end before the engine knows the new leader."""
        self._third.wait_until_served()
        self._client.produce(TOPIC, [Outgoing(value) for value in NEW], batch=1)
        self._relay.always(METADATA, None)


@pytest.fixture
def election(three_brokers: Mapping[int, Broker], relay: Relay) -> Iterator[Election]:
    with back_again(three_brokers[2], three_brokers[3]):
        yield Election(three_brokers, relay)
    Client(three_brokers[1].bootstrap_server).delete_topics([TOPIC])


@pytest.fixture
def engine(
    election: Election, three_brokers: Mapping[int, Broker], relay: Relay, tmp_path: Path
) -> Iterator[ClusterEngine]:
    leaders = Leaders(Brokers(cluster_address(f"kafka://{three_brokers[1].bootstrap_server}"), relay.connect))
    place = CacheSettings(tmp_path / "cache", 1 << 26)
    with closing(ClusterEngine(leaders, read_only=False, cache=place)) as engine:
        yield engine


def lines(*values: bytes) -> bytes:
    return b"".join(value + b"\n" for value in values)


class Stream:
    """An open file, and the position that the kernel keeps for the file."""

    def __init__(self, program: Program, fh: int) -> None:
        self._program, self._fh, self._position = program, fh, 0

    async def read(self, least: int = 1) -> bytes:
        """Read until `least` bytes have arrived."""
        text = b""
        with trio.fail_after(TIMEOUT_SECONDS):
            while len(text) < least:
                data = bytes(await self._program.fs.read(self._fh, self._position, 1 << 16))
                self._position += len(data)
                text += data
                if not data:
                    break
        return text

    async def read_to_error(self) -> tuple[bytes, str | bytes]:
        """Read until an error or the end; return the text read, and the error's name (b"" at the end)."""
        text = b""
        while isinstance(found := await ending(self.read()), bytes) and found:
            text += found
        return text, found


async def ending(awaited: Awaitable[bytes]) -> str | bytes:
    """Return the result of a read, or the name of its error."""
    try:
        return await awaited
    except FileError as error:
        return errno.errorcode[error.number]


async def test_open_files_whose_records_are_lost_are_stale(
    election: Election, engine: ClusterEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open files get ESTALE and skip no record. Reopened files start over; a group returns to the first lost record."""
    # Elections take seconds, and a member whose session expires restarts at its committed offset.
    monkeypatch.setattr(requests, "SESSION_MS", 60_000)
    partition = await in_thread(found, engine, TOPIC)
    async with mounted(engine, None) as client:
        program = Program(client)

        async def ends_at(end: int) -> None:
            await in_thread(
                wait_until,
                lambda: end == partition.visible_end(Isolation.READ_COMMITTED),
                "the records are visible",
            )

        async def opened(path: str) -> Stream:
            return Stream(program, await program.open(path))

        await client.mkdir("@groups/g")
        expected = {"0/follow": GONE, "follow": GONE, "0/log": [b"a", b"b", *GONE], "0/4-": GONE[2:]}
        streams = {name: await opened(f"{TOPIC}/{name}") for name in ("0/follow", "follow")}
        group = await opened(f"@groups/g/{TOPIC}/log")
        await in_thread(election.append_to_the_last_replica)
        await ends_at(7)
        streams |= {name: await opened(f"{TOPIC}/{name}") for name in ("0/log", "0/4-")}
        unread = {name: await opened(f"{TOPIC}/{name}") for name in ("log", "0/log", "0/log.json")}
        record = await opened(f"{TOPIC}/0/3")
        for name, values in expected.items():
            assert lines(*values) == await streams[name].read(len(lines(*values))), name
        assert (GONE[1], lines(b"a", b"b", *GONE)) == (
            await record.read(),
            await group.read(len(lines(b"a", b"b", *GONE))),
        )

        election.begin()
        await in_thread(election.end)
        await ends_at(22)

        assert dict.fromkeys(streams, "ESTALE") == {
            name: await ending(stream.read()) for name, stream in streams.items()
        }
        for name, stream in unread.items():
            text, error = await stream.read_to_error()
            assert ("ESTALE", 2) == (error, text.count(b"\n")), (name, text)
        assert lines(*NEW) == await group.read(len(lines(*NEW)))
        for name, again in (("0/log", [b"a", b"b", *NEW]), ("0/4-", NEW[2:])):
            assert lines(*again) == await program.cat(f"{TOPIC}/{name}")
        assert NEW[1] == await program.cat(f"{TOPIC}/0/3")
        assert "reading continues at 2" in client.reports
