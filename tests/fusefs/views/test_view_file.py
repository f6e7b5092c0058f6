"""View files: the exact bytes, round trips, and all kinds of files that are refused."""

from __future__ import annotations

from array import array

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import records
from topicfs.fusefs.views.sparse_index import Excerpt
from topicfs.fusefs.views.view_file import (
    LogMark,
    Section,
    ViewFile,
    ViewFileError,
    decode_view_file,
    encode_view_file,
    fits,
    mark_log,
)
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.names import parse_view_file, view_file
from topicfs.storage.model import Offset, Position

MARK = LogMark(1000, 0xDEADBEEF, Position(900), 0x01020304)
KNOWN = Excerpt(array("q", [0, 70_000]), array("q", [100, 742]), 80_000, Offset(1000))
GOLDEN = bytes.fromhex(
    "54465356494557 0a 0001 0001 0000000000000064"
    "03 2e6b76"
    "00000000000003e8 deadbeef 0000000000000384 01020304"
    "00000000000003e8 0000000000013880 00000002"
    "0000000000000000 0000000000011170 0000000000000064 00000000000002e6"
)


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "big")


def test_the_bytes_are_those_of_the_diagram() -> None:
    """The bytes of a file are those of its documented format, and can be parsed."""
    content = ViewFile(Offset(100), {".kv": Section(MARK, KNOWN)})
    assert sealed(GOLDEN) == encode_view_file(content)
    assert content == decode_view_file(sealed(GOLDEN))


@given(
    st.dictionaries(
        st.text(max_size=6),
        st.tuples(
            st.integers(0, 2**62),
            st.integers(0, 2**32 - 1),
            st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), min_size=1, max_size=5),
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read_back(forms: dict[str, tuple[int, int, list[tuple[int, int]]]]) -> None:
    """A file with any number of forms and entries is parsed to the same forms and entries."""
    sections = {
        suffix: Section(
            LogMark(size, checksum, Position(size), checksum),
            Excerpt(
                array("q", [position for position, _ in places]),
                array("q", [offset for _, offset in places]),
                size,
                Offset(size),
            ),
        )
        for suffix, (size, checksum, places) in forms.items()
    }
    content = ViewFile(Offset(7), sections)
    assert content == decode_view_file(encode_view_file(content))


@pytest.mark.parametrize("length", range(len(GOLDEN) + 4))
def test_a_torn_file_is_refused(length: int) -> None:
    """A file that is cut after any byte is refused."""
    with pytest.raises(ViewFileError):
        decode_view_file(sealed(GOLDEN)[:length])


@pytest.mark.parametrize("position", range(len(GOLDEN) + 4))
def test_a_flipped_bit_is_noticed(position: int) -> None:
    """A file in which any bit was flipped is refused."""
    data = bytearray(sealed(GOLDEN))
    data[position] ^= 1
    with pytest.raises(ViewFileError):
        decode_view_file(bytes(data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        GOLDEN[:20],
        GOLDEN + b"x",
        GOLDEN.replace(b"TFSVIEW\n", b"TFSVIEW\r"),
        GOLDEN[:9] + b"\2" + GOLDEN[10:],
        GOLDEN[:11] + b"\2" + GOLDEN[12:],
        GOLDEN[:11] + b"\0" + GOLDEN[12:],
        GOLDEN[:20] + b"\xff" + GOLDEN[21:],
        GOLDEN[:21] + b"\xff" + GOLDEN[22:],
        GOLDEN.replace(b"\0\0\0\2", b"\0\0\0\0"),
        GOLDEN.replace(b"\0\0\0\2", b"\0\0\0\3"),
        GOLDEN.replace(b"\0\0\0\2", b"\xff\xff\xff\xff"),
    ],
)
def test_a_file_that_is_whole_but_not_of_this_format_is_refused(body: bytes) -> None:
    """A wrong magic, version, count or length is refused even with a valid checksum."""
    with pytest.raises(ViewFileError):
        decode_view_file(sealed(body))


def test_names_carry_the_base_offset() -> None:
    """The name of a view file is the base offset of its segment in twenty digits; other names are no view files."""
    assert "00000000000000000042.view" == view_file(Offset(42))
    assert 42 == parse_view_file("00000000000000000042.view")
    assert 42 == parse_view_file("00000000000000000042.view.tmp")
    for name in ("42.view", "00000000000000000042.log", "00000000000000000042.view.bak", "x", ".view"):
        assert parse_view_file(name) is None


def test_a_log_is_known_again_by_its_first_and_last_batch() -> None:
    """A mark fits a log that has the first and the last marked batch in place and at least the marked size."""
    batches = [bytes(encode(records([b"value %d" % number], timestamp=1000))) for number in range(4)]
    log = memoryview(b"".join(batches))
    last = Position(len(batches[0] + batches[1]))
    mark = mark_log(log, last + len(batches[2]), last)
    assert fits(mark, log)
    assert fits(mark, log[: mark.size_bytes])
    assert not fits(mark, log[: mark.size_bytes - 1])
    assert not fits(mark, memoryview(b"".join(batches[1:])))
    assert not fits(mark, memoryview(b"".join([batches[0], batches[2], batches[1], batches[3]])))
    assert not fits(mark, memoryview(b""))
    assert not fits(mark._replace(last_position=Position(-1)), log)


def test_a_log_without_those_batches_cannot_be_marked() -> None:
    """An empty log, or one shorter than the measured size, cannot be marked."""
    log = memoryview(bytes(encode(records([b"value"], timestamp=1000))))
    for data, size, last in ((memoryview(b""), 0, 0), (log, len(log) + 1, 0), (log, len(log), len(log))):
        with pytest.raises(ViewFileError):
            mark_log(data, size, Position(last))
