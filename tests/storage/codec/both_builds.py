"""Print a digest of what this build computes for many random batches, valid and damaged.

A process can import only one build of a module, so each build runs in its own process. `--plain`
runs the plain sources.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

from tests.uncompiled import SourceFinder

if "--plain" in sys.argv:
    sys.meta_path.insert(0, SourceFinder())

from topicfs.fusefs.forms import FORMS, FormError
from topicfs.storage.codec import columns as columns_module
from topicfs.storage.codec.batch import find_end, find_offset, scan, seal
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.codec.value_copy import copy_inflated, copy_values
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Header, Record, TopicPartition

WHERE = {"partition": TopicPartition("t", 1), "start_offset": 0, "end_offset": 2**62}


def some_octets(chooser: random.Random) -> bytes | None:
    """Return null, text or random bytes."""
    kind = chooser.randrange(4)
    if kind == 0:
        return None
    if kind == 1:
        return chooser.randbytes(chooser.randrange(40))
    return ('né\n\t\\"' * chooser.randrange(5) + "x" * chooser.choice((0, 1, 63, 64, 200))).encode()


def some_batch(chooser: random.Random) -> bytearray:
    """Return a batch of one to five records with a random stamp."""
    offset = chooser.randrange(2**40)
    records = []
    for _ in range(chooser.randrange(1, 6)):
        headers = tuple(
            Header(some_octets(chooser) or b"", some_octets(chooser)) for _ in range(chooser.randrange(3))
        )
        timestamp = chooser.choice((0, -1, 1700000000000, chooser.randrange(-(2**63), 2**63)))
        records.append(Record(offset, timestamp, some_octets(chooser), some_octets(chooser), headers))
        offset += chooser.choice((1, 1, 1, 100, 2**20))
    stamp = BatchStamp(
        codec=chooser.choice((Codec.NONE, Codec.NONE, Codec.LZ4)),
        timestamp_type=chooser.randrange(2),
        leader_epoch=chooser.randrange(-1, 10),
    )
    return encode(records, stamp)


def damaged(chooser: random.Random, batch: bytearray) -> bytearray:
    """Change some bytes, compute the checksum again, and sometimes cut off the last byte."""
    for _ in range(chooser.randrange(4)):
        batch[chooser.randrange(12, len(batch))] = chooser.choice(
            (0, 1, 0x7F, 0x80, 0xFF, chooser.randrange(256))
        )
    batch[16] = 2
    seal(batch, 0, len(batch))
    return batch[: chooser.choice((len(batch), len(batch), len(batch) - 1))]


def findings(data: bytearray) -> list[Any]:
    """Return what each reader returns for these bytes."""
    scanned = scan(data, check_crc=True)
    text = bytearray()
    joined = copy_values(data, text, 0, start_offset=0, end_offset=2**62)
    found: list[Any] = [
        list(scanned),
        str(scanned.problem),
        find_end(data),
        [find_offset(data, offset, room) for offset in range(0, 60, 7) for room in (len(data), 2**40)],
        joined,
        bytes(text[: max(joined, 0)]),
    ]
    for header in range(len(scanned)):
        text = bytearray()
        row = scanned.rows[15 * header : 15 * (header + 1)]
        bounds = {"size": 2**30, "start_offset": 0, "end_offset": 2**62, "max_content_bytes": 1000}
        copied, end, taken = copy_inflated(data, row, text, 0, **bounds)
        found += [copied, end, taken, bytes(text[:end])]
    try:
        for columns in decode(data):
            found.append([*columns])
            for form in FORMS:
                text = form.render(columns, **WHERE)
                found += [text, form.measure(columns, **WHERE).tolist()]
                if form.suffix and text:
                    found.append(
                        [bytes(batch) for batch in form.parse(text, timestamp=3, max_batch_bytes=400)]
                    )
    except (StorageError, FormError) as error:
        found.append(repr(error))
    return found


def main() -> None:
    rounds = int(sys.argv[1])
    chooser = random.Random(int(sys.argv[2]))
    digest = hashlib.sha256()
    for _ in range(rounds):
        batch = some_batch(chooser)
        digest.update(batch)
        digest.update(repr(findings(batch)).encode())
        digest.update(repr(findings(damaged(chooser, batch))).encode())
    sys.stdout.write(f"{columns_module.__file__.rpartition('.')[2]} {digest.hexdigest()}\n")


main()
