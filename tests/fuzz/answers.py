"""A server that answers Kafka requests with nonsense: valid structures with arbitrary values, or changed bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from topicfs.cluster.errors import ERRORS
from topicfs.cluster.place import Server
from topicfs.protocol.messages import API_VERSIONS, APIS, METADATA
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp
from topicfs.storage.wire import Field

TOPIC, TOPIC_ID = "t", UUID(int=56)
"""The topic in most answers, which has a partition 0."""

PAUSE = "throttleTimeMs"
SOUND = 0.95
"""Share of the fields that get a value that a broker could send. Clients would immediately refuse pure nonsense."""

_APIS = {one.key: one for one in APIS}
_EXTREMES = {
    "int8": (-128, -1, 1, 127),
    "int16": (-32768, -1, 1, 32767),
    "int32": (-(2**31), -1, 1, 7, 2**31 - 1),
    "int64": (-(2**63), -1, 1, 7, 2**40, 2**63 - 1),
}


_ENDS = {"offset", "highWatermark", "lastStableOffset"}
"""Fields whose value is usually an offset at which a log of three records may begin or end."""


class Nonsense:
    """Serves one connection after another (`tests.doubles.servers`), with answers drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.server = Server("127.0.0.1", 0)
        """The address on which the server listens, and which its answers give as the broker's address."""
        self.answers = 0

    def serve(self, connection: socket.socket) -> None:
        """Answer requests until the client closes the connection."""
        while True:
            head = connection.recv(4, socket.MSG_WAITALL)
            (size,) = struct.unpack(">i", head)
            request = connection.recv(size, socket.MSG_WAITALL)
            key, version, correlation = struct.unpack_from(">hhi", request)
            answer = struct.pack(">i", correlation) + self._answer(key, version)
            connection.sendall(struct.pack(">i", len(answer)) + answer)
            self.answers += 1

    def _answer(self, key: int, version: int) -> bytes:
        if key == API_VERSIONS.key:
            known = [
                {"apiKey": one.key, "minVersion": versions[0], "maxVersion": versions[-1]}
                for one in APIS
                for versions in [one.request.versions]
            ]
            return API_VERSIONS.response.write({"errorCode": 0, "apiKeys": known}, version)
        api = _APIS[key]
        values = self._structure(api.response.fields, version)
        if api is METADATA and self.random.random() < 0.95:
            values["brokers"] = [
                {**one, "nodeId": node, "host": self.server.host, "port": self.server.port}
                for node, one in enumerate(
                    [self._structure(_fields_of(api.response.fields, "brokers"), version)]
                )
            ]
        data = api.response.write(values, version)
        tags = b"\0" if api.is_flexible(version) else b""
        # Clients wait for as long as a broker's throttle time says, so a random time would stop the run.
        kept = 4 * (api.response.fields[0].name == PAUSE)
        return (
            tags + data[:kept] + (self._changed(data[kept:]) if self.random.random() < 0.1 else data[kept:])
        )

    def _structure(self, fields: Sequence[Field], version: int) -> dict[str, Any]:
        return {one.name: self._value(one, version) for one in fields if one.in_version(version)}

    def _value(self, field: Field, version: int) -> Any:
        random = self.random
        if field.may_be_null(version) and random.random() < 0.1:
            return None
        if field.kind == "structure":
            assert not isinstance(field.of, str)
            return self._structure(field.of, version)
        if field.kind == "array":
            count = 1 if random.random() < SOUND else random.randrange(4)
            return [
                self._plain(field.name, field.of)
                if isinstance(field.of, str)
                else self._structure(field.of, version)
                for _ in range(count)
            ]
        return self._plain(field.name, field.kind)

    def _plain(self, name: str, kind: str) -> Any:
        random = self.random
        if name == "errorCode":
            return 0 if random.random() < SOUND else random.choice((*ERRORS, 9999))
        if name in _ENDS and random.random() < SOUND:
            return random.choice((0, 3))
        if name == PAUSE:
            return 0 if random.random() < SOUND else random.choice((-(2**31), -1, 1, 7))
        if kind in _EXTREMES:
            return 0 if random.random() < SOUND else random.choice(_EXTREMES[kind])
        others: Mapping[str, Sequence[Any]] = {
            "bool": (False, True),
            "string": (TOPIC, "", "other", "\0\n\ud7ff"),
            "bytes": (b"", b"bytes"),
            "uuid": (TOPIC_ID, UUID(int=0)),
            "records": (self._batches(), self._changed(self._batches()), b""),
        }
        choices = others[kind]
        return choices[0] if random.random() < SOUND else random.choice(choices)

    def _batches(self) -> bytes:
        base = self.random.choice((0, 0, 0, 5, 2**62))
        records = [Record(Offset(base + number), Timestamp(0), None, b"value") for number in range(3)]
        return bytes(encode(records))

    def _changed(self, data: bytes) -> bytes:
        random, changed = self.random, bytearray(data)
        for _ in range(random.randint(1, 4)):
            if changed:
                at = random.randrange(len(changed))
                changed[at : at + random.randint(0, 2)] = random.choice(
                    (b"", b"\xff" * 5, random.randbytes(3))
                )
        return bytes(changed)


def _fields_of(fields: Sequence[Field], name: str) -> Sequence[Field]:
    (found,) = (one for one in fields if one.name == name)
    assert not isinstance(found.of, str)
    return found.of
