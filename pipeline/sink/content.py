"""The content of a write: a digest of its rows that is the same in whatever order, and in whatever tasks, they come.

Spark may divide and order the rows of a repeated micro-batch otherwise. So each record has a digest, and a write the sum
of them. A record's digest covers its topic, key, value and headers, and its partition and time if the row gives them:
what the sink chooses itself differs the next time.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import pyarrow as pa

from topicfs.pipeline.sink.columns import numbers
from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.records import Columns
from topicfs.storage.compaction.digests import digest_of, digests_of_keys
from topicfs.storage.staging.manifest import Content

_NOT_GIVEN = -(2**63)
_WORDS = 12
"""Numbers of a record: digest and length of its key, value and headers, then topic, partition and time."""


def content_of(topic: str, records: Columns, given: Mapping[str, pa.Array]) -> Content:
    """Return the content of a topic's records; `given`: the columns of their rows."""
    count, block = len(records), records.block
    words = array("q", bytes(8 * _WORDS * count))
    with memoryview(words) as cells:
        for number, row in enumerate((fields.KEY_POSITIONS, fields.VALUE_POSITIONS, fields.HEADER_POSITIONS)):
            # Where the keys are looked for.
            moved = block[(row - fields.KEY_POSITIONS) * count :]
            found = digests_of_keys(Columns(records.data, moved, count, records.batches), 0, count)
            cells[3 * number :: _WORDS] = found[0::2]
            cells[3 * number + 1 :: _WORDS] = found[1::2]
            cells[3 * number + 2 :: _WORDS] = block[(row + 1) * count : (row + 2) * count]
        cells[9::_WORDS] = memoryview(array("q", [digest_of(topic.encode())[0]]) * count)
        cells[10::_WORDS] = numbers(given.get("partition"), count, null=_NOT_GIVEN)
        cells[11::_WORDS] = numbers(given.get("timestamp"), count, null=_NOT_GIVEN)
    size = 8 * _WORDS
    places = (
        array("q", bytes(16 * count)) + array("q", range(0, size * count, size)) + array("q", [size]) * count
    )
    whole = Columns(memoryview(words).cast("B"), memoryview(places), count, records.batches)
    return Content(count, sum(digests_of_keys(whole, 0, count)[0::2]) % 2**64)
