"""Write the first inputs of the corpus, one of every kind, so that a run soon reaches all parts of the code.

python -m tests.fuzz.seeds tests/fuzz/corpus
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.doubles.records import NOW, marker, old_entry
from tests.fuzz.targets import COMPRESSED, KINDS, RAW, RECORDS, WRAPPED_V0, WRAPPED_V1
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import Header, Offset, ProducerId, Record, Timestamp

entry = partial(old_entry, key=b"k", timestamp=5)
RECORDS_OF_ONE_BATCH = [
    Record(Offset(0), NOW, b"key", b"value", (Header(b"h1", b"x"), Header(b"h2", None))),
    Record(Offset(1), Timestamp(NOW - 5), None, None),
    Record(Offset(2), Timestamp(NOW + 200), b"", b"v" * 90),
]


def selector(kind: int, codec: Codec = Codec.GZIP) -> bytes:
    """Return the first byte of an input, which selects its kind and codec."""
    return bytes([kind + KINDS * (codec - 1)])


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each input."""
    plain = bytes(encode(RECORDS_OF_ONE_BATCH))
    stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=1, base_sequence=2, transactional=True)
    yield (
        "batches",
        selector(RAW) + plain + bytes(encode(RECORDS_OF_ONE_BATCH, stamp)) + bytes(marker(epoch=1)),
    )
    yield "entries", selector(RAW) + entry(1, b"v1") + entry(2, b"v0", magic=0) + plain
    yield "torn", selector(RAW) + plain + plain[:-1]
    count = bytes([len(RECORDS_OF_ONE_BATCH)])
    yield "records", selector(RECORDS) + count + plain[HEADER_SIZE:]
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        compressed = bytes(encode(RECORDS_OF_ONE_BATCH, BatchStamp(codec=codec)))
        yield f"batch-{codec.label}", selector(RAW) + compressed
        yield f"records-{codec.label}", selector(COMPRESSED, codec) + count + compressed[HEADER_SIZE:]
        for kind, magic in ((WRAPPED_V0, 0), (WRAPPED_V1, 1)):
            inner = b"".join(entry(number, b"v%d" % number, magic=magic) for number in range(3))
            yield f"wrapper-v{magic}-{codec.label}", selector(kind, codec) + deflate(codec, inner)


def main(folder: Path) -> None:
    """Write the inputs to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / f"seed-{name}").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
