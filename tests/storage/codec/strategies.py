"""Hypothesis strategies for records, and the codecs that compress."""

from __future__ import annotations

from hypothesis import strategies as st

from topicfs.storage.codec.headers import Codec
from topicfs.storage.model import Header, Record

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.binary(max_size=200)
HEADERS = st.lists(st.builds(Header, SMALL, st.none() | SMALL), max_size=4).map(tuple)
GAPS = st.integers(1, 2**20)


@st.composite
def record_lists(draw: st.DrawFn, *, max_size: int = 20) -> list[Record]:
    """Records with any content. Their offsets ascend and have gaps."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, max_size))):
        records.append(
            Record(offset, draw(INT64), draw(st.none() | SMALL), draw(st.none() | SMALL), draw(HEADERS))
        )
        offset += draw(GAPS)
    return records
