"""The mock of a Kafka cluster that is part of librdkafka, for answers that a broker gives only at certain moments.

librdkafka's Python package does not expose the mock, so this module calls its C functions (rdkafka_mock.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

OFFSET_FETCH = 9
"""The API key of OffsetFetch in Kafka's protocol."""
_PRODUCER = 0
_LIBRARIES = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"


class MockKafka:
    """A running mock cluster of one broker."""

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p) -> None:
        self._library = library
        self._cluster = cluster

    @property
    def bootstrap_server(self) -> str:
        text: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return text.decode()

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)

    def answer_next(self, request: int, errors: Sequence[int]) -> None:
        """Answer the next requests with API key `request` with an error: the n-th request with the n-th of `errors`."""
        codes = (ctypes.c_int * len(errors))(*errors)
        size = ctypes.c_size_t(len(errors))
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), size, codes
        )


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    """Run a mock cluster for the block."""
    library = _library()
    reason = ctypes.create_string_buffer(512)
    owner = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, None, reason, ctypes.c_size_t(len(reason))))
    assert owner, reason.value
    try:
        cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(owner, 1))
        assert cluster
        try:
            yield MockKafka(library, cluster)
        finally:
            library.rd_kafka_mock_cluster_destroy(cluster)
    finally:
        library.rd_kafka_destroy(owner)


def _library() -> ctypes.CDLL:
    """Open the same library that the Python package has loaded."""
    [path] = _LIBRARIES.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
