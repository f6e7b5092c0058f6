"""Columns of payloads decoded by their schemas: `from_topicfs_avro` and its siblings.

Spark's own `from_avro` uses one schema for all rows and does not know frames. Here the frame of each payload names
the payload's schema. The driver reads the topic `_schemas` once, when the function is called, and sends the schemas
to the tasks. Tasks themselves read a directory of schema files and query a registry, and cache the answers.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.pandas.functions import arrow_udf

from topicfs.cluster.place import cluster_address, is_cluster
from topicfs.coordination.engine import Engine
from topicfs.pipeline.places.paths import data_directories
from topicfs.replication import open_directories
from topicfs.schemas.catalog import check_libraries
from topicfs.schemas.frame import KEY_HEADER, VALUE_HEADER, frame_of
from topicfs.schemas.payload_reader import PayloadReader
from topicfs.schemas.places import SchemaPlaces
from topicfs.schemas.schema import Kind
from topicfs.schemas.sources.topic import KeptSchemas, SchemasTopic

RESULT = (
    "struct<payload: string, payload_schema_id: bigint, payload_schema_guid: string, payload_base64: string>"
)
_ARROW = pa.struct(
    [
        ("payload", pa.string()),
        ("payload_schema_id", pa.int64()),
        ("payload_schema_guid", pa.string()),
        ("payload_base64", pa.string()),
    ]
)


def header_column(headers: Column | str, *, of_key: bool) -> Column:
    """Return the column of the one header that may contain a frame.

    `headers` is the column of all headers. The value is null in a row without this header.
    """
    wanted = (KEY_HEADER if of_key else VALUE_HEADER).decode()
    found = functions.filter(headers, lambda header: header.key == wanted)
    return functions.get(found, 0).value


def decoded_column(
    kind: Kind,
    columns: tuple[Column | str, Column | None],
    path: str | None,
    client_config: str | None,
    places: SchemaPlaces,
) -> Column:
    """Return the column of decoded payloads, a struct as in `RESULT`. See `topicfs.spark.from_topicfs_avro`.

    `columns` are the column of payloads, and the column that `header_column` returns (or None).
    """
    check_libraries(kind)
    decoder = _Decoder(kind, _kept(path, client_config), places)
    make: Any = arrow_udf  # The annotations of `arrow_udf` allow neither methods nor struct types.
    udf = make(decoder.decode, RESULT)
    column, header = columns
    header = functions.lit(None) if header is None else header
    payload = functions.col(column) if isinstance(column, str) else column
    decoded: Column = udf(payload.cast("binary"), header.cast("binary"))
    return decoded


def _kept(path: str | None, client_config: str | None) -> KeptSchemas:
    if path is None:
        return KeptSchemas()
    with closing(_opened(path, client_config)) as engine:
        return SchemasTopic(engine).kept()


def _opened(path: str, client_config: str | None) -> Engine:
    """Open data directories or a cluster, read-only. Raises PipelineError, StorageError, OSError."""
    if not is_cluster(path):
        return open_directories(data_directories(path), read_only=True)
    from topicfs.cluster.engine import open_engine
    from topicfs.cluster.protocol.security import PLAINTEXT, read_security

    security = PLAINTEXT if client_config is None else read_security(Path(client_config))
    return open_engine(cluster_address(path), security, read_only=True)


class _Decoder:
    """Decodes payloads. Spark sends this object to the tasks."""

    def __init__(self, kind: Kind, kept: KeptSchemas, places: SchemaPlaces) -> None:
        self._kind, self._kept, self._places = kind, kept, places
        self._lock = threading.Lock()
        self._reader: PayloadReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled schemas, and the lock."""
        return {"_kind": self._kind, "_kept": self._kept, "_places": self._places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _reader=None)

    def decode(self, payloads: pa.Array, headers: pa.Array) -> pa.Array:
        """Decode the payloads of several rows. `headers` has null for a row without a header."""
        with self._lock:
            if self._reader is None:
                self._reader = PayloadReader(self._kind, self._places.catalog(None, self._kept))
            reader = self._reader
        return pa.array(
            [
                _shown(reader, payload.as_py(), header.as_py())
                for payload, header in zip(payloads, headers, strict=True)
            ],
            _ARROW,
        )


def _shown(reader: PayloadReader, payload: bytes | None, header: bytes | None) -> dict[str, object] | None:
    """Return a payload as JSON, or in base64 if it cannot be decoded; None for a tombstone."""
    if payload is None:
        return None
    frame = frame_of(payload, header)
    if frame is None:
        return {"payload_base64": _base64(payload)}
    text, schema_id = reader.decode(frame)
    name = "payload_schema_id" if isinstance(schema_id, int) else "payload_schema_guid"
    row: dict[str, object] = {name: schema_id if isinstance(schema_id, int) else str(schema_id)}
    return row | ({"payload_base64": _base64(payload)} if text is None else {"payload": text.decode()})


def _base64(payload: bytes) -> str:
    return b64encode(payload).decode("ascii")
