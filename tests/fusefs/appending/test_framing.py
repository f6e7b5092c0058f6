"""Splitting bytes into lines and batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import batch
from topicfs.fusefs.appending.framing import BATCHES, LINES, NOTHING, Framed, FramingState, frame
from topicfs.storage.errors import RecordTooLargeError

ERROR = RecordTooLargeError("too long")


def feed(*pieces: bytes) -> tuple[bytes, FramingState]:
    """Frame the pieces in order; return all complete lines, and the state after the last piece."""
    lines, waiting = b"", NOTHING
    for piece in pieces:
        framed = frame(waiting, piece)
        lines += framed.lines
        waiting = framed.waiting
    return lines, waiting


def test_whole_lines_pass_without_a_copy():
    """If a write consists of complete lines, the same object is returned, without a copy."""
    data = b"a\nb\n"

    framed = frame(NOTHING, data)

    assert framed.lines is data
    assert NOTHING == framed.waiting


@pytest.mark.parametrize("before", [b"", b"whole\n"])
def test_a_begun_line_may_be_as_long_as_a_record(before: bytes):
    """An unfinished line may be as long as max.message.bytes; a write that adds one more byte is refused."""
    limit = 20
    assert b"x" * limit == LINES.frame(NOTHING, before + b"x" * limit, limit).waiting.tail
    waiting = LINES.frame(NOTHING, before + b"x" * (limit - 1), limit).waiting
    assert b"x" * limit == LINES.frame(waiting, b"x", limit).waiting.tail
    with pytest.raises(RecordTooLargeError, match="max.message.bytes=20"):
        LINES.frame(waiting, b"xx", limit)


def test_a_batch_may_be_as_long_as_the_log_takes():
    """A batch of max.message.bytes is accepted. A larger batch is refused as soon as its length field has arrived."""
    data = bytes(batch(b"value"))
    assert data == BATCHES.frame(NOTHING, data, len(data)).lines
    begun = data[:20]
    assert begun == BATCHES.frame(NOTHING, begun, len(data)).waiting.tail
    with pytest.raises(RecordTooLargeError, match=f"exceeds max.message.bytes={len(data) - 1}"):
        BATCHES.frame(NOTHING, begun, len(data) - 1)


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\x00", b"\n"))))
def test_the_cut_of_the_writes_changes_nothing(pieces: list[bytes]):
    """The lines and the unfinished remainder do not depend on how a stream is cut into writes."""
    whole = b"".join(pieces)
    cut = whole.rfind(b"\n") + 1

    assert feed(*pieces) == (whole[:cut], FramingState(whole[cut:]))


def test_after_a_refused_piece_of_a_line_its_rest_is_skipped():
    """After a refusal, the remaining part of the refused line is skipped, and later lines are returned."""
    waiting = LINES.after_refusal(b'bad json\n{"pay', ERROR)

    framed = frame(waiting, b'load": 1}\ngood\nne')

    assert b"good\n" == framed.lines
    assert framed.waiting == FramingState(b"ne")


@pytest.mark.parametrize(
    ("data", "waiting"),
    [
        pytest.param(b"y" * 10, FramingState(refused=ERROR), id="no newline"),
        pytest.param(b"y\n", NOTHING, id="its newline"),
    ],
)
def test_a_write_inside_a_refused_line_brings_nothing(data: bytes, waiting: FramingState):
    """For a write inside a refused line, `is_empty` is true. The line remains refused up to its newline."""
    framed = frame(LINES.after_refusal(b"x" * 10, ERROR), data)

    assert framed == Framed(b"", waiting)
    assert framed.is_empty


@pytest.mark.parametrize("data", [b"rest\nnext\n", b"rest\nne", b"rest\nnext\nbe"])
def test_a_write_that_brings_more_than_the_rest_is_not_empty(data: bytes):
    """For a write that ends a refused line and begins another line, `is_empty` is false."""
    assert not frame(LINES.after_refusal(b"x", ERROR), data).is_empty


@pytest.mark.parametrize("data", [b"bad\n", b"good\nbad\n"])
def test_a_refused_write_of_whole_lines_leaves_nothing_to_skip(data: bytes):
    """After a refused write that ends with a newline, nothing is skipped."""
    assert NOTHING == LINES.after_refusal(data, ERROR)
