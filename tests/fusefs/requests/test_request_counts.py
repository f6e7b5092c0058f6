"""The counts of requests: buckets of durations, sums, errors and bytes."""

from __future__ import annotations

import errno

import pytest

from topicfs.fusefs.requests.request_counts import BUCKETS, KINDS, NUMBERS, RequestCounts

READ = NUMBERS["read"]


@pytest.mark.parametrize(
    ("nanoseconds", "bucket"),
    [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (2**39, 40), (2**62, 40)],
)
def test_a_duration_is_in_the_first_bucket_that_is_longer(nanoseconds: int, bucket: int):
    """A duration counts in the bucket of the next power of two in nanoseconds; a negative duration counts as 0."""
    counts = RequestCounts()
    counts.note(READ, nanoseconds)
    found = counts.durations()["read"]
    assert ([bucket], max(nanoseconds, 0)) == (
        [number for number, count in enumerate(found.buckets) if count],
        found.total_ns,
    )
    assert BUCKETS == len(found.buckets)


def test_kinds_are_counted_separately_and_shown_only_if_they_occurred():
    """Each kind of request is counted separately; kinds without requests are not shown."""
    counts = RequestCounts()
    for number in KINDS:
        for _ in range(number):
            counts.note(number, number)
    assert {name: number for number, name in KINDS.items()} == {
        kind: sum(found.buckets) for kind, found in counts.durations().items()
    }
    assert {} == RequestCounts().durations()


def test_a_number_that_no_request_has_is_harmless():
    """Counting a request whose opcode is beyond the table does not change other counts."""
    counts = RequestCounts()
    counts.note(4_000_000_000, 5)
    assert sum(sum(found.buckets) for found in counts.durations().values()) <= 1


def test_errors_are_counted_by_kind_and_errno():
    """Errors are counted by kind of request and errno; all unknown kinds are counted together."""
    counts = RequestCounts()
    for kind, number in ((READ, errno.EIO), (READ, errno.EIO), (1, errno.ENOENT), (4096, errno.ENOSYS)):
        counts.note_error(kind, number)
    expected = {("read", errno.EIO): 2, ("lookup", errno.ENOENT): 1, ("other", errno.ENOSYS): 1}
    assert expected == counts.errors()


def test_bytes_add_up():
    """Counts of bytes can exceed 32 bits."""
    counts = RequestCounts()
    counts.bytes_read += 2**40
    counts.bytes_read += 1
    counts.bytes_written += 3
    assert (2**40 + 1, 3) == (counts.bytes_read, counts.bytes_written)
