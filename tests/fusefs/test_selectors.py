"""Names of records by offset and time: each row of the grammar, and the records that a name selects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.logs import LogOnDisk
from tests.doubles.memory_partition import MemoryPartition
from tests.doubles.records import batch
from topicfs.fusefs import selectors
from topicfs.fusefs.forms import VIEW_FORMS
from topicfs.fusefs.selectors import (
    AtTime,
    LastN,
    Range,
    SelectedRange,
    Selector,
    SelectorError,
    Single,
    TimeRange,
    parse,
    resolve,
)
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

THREE_O_CLOCK = 1_795_230_000_000  # 2026-11-21T03:00:00Z
TODAY, HOUR = THREE_O_CLOCK - 3 * 3_600_000, 3_600_000
NOW = THREE_O_CLOCK + 123


@pytest.mark.parametrize("form", VIEW_FORMS)
def test_each_form_has_its_suffix(form):
    """A selector may end with the suffix of any form in VIEW_FORMS."""
    assert Single(Offset(42), form.suffix) == parse(f"42{form.suffix}")


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("42", Single(Offset(42))),
        ("0", Single(Offset(0))),
        ("42-99", Range(Offset(42), Offset(99))),
        ("42-42", Range(Offset(42), Offset(42))),
        ("0-0.kv", Range(Offset(0), Offset(0), ".kv")),
        ("42-", Range(Offset(42), None)),
        ("42-.json", Range(Offset(42), None, ".json")),
        ("-10", LastN(10)),
        ("-1.json", LastN(1, ".json")),
        ("@1795230000000", AtTime(Timestamp(THREE_O_CLOCK))),
        ("@2026-11-21T03:00:00Z", AtTime(Timestamp(THREE_O_CLOCK))),
        ("@2026-11-21T03:00:00Z.json", AtTime(Timestamp(THREE_O_CLOCK), ".json")),
        ("@0-@1795230000000", TimeRange(Timestamp(0), Timestamp(THREE_O_CLOCK))),
        ("@2026-11-21-@2026-11-21T03:00", TimeRange(Timestamp(TODAY), Timestamp(THREE_O_CLOCK))),
        (
            "@2026-11-20T22:00:00-05:00-@2026-11-21T04:00:00+01:00.kv",
            TimeRange(Timestamp(THREE_O_CLOCK), Timestamp(THREE_O_CLOCK), ".kv"),
        ),
        ("@2026-11-21T03:00:00Z-", TimeRange(Timestamp(THREE_O_CLOCK), None)),
        ("@5-.json", TimeRange(Timestamp(5), None, ".json")),
        ("@2h", AtTime(Timestamp(NOW - 2 * HOUR), relative=True)),
        ("@2h.kv", AtTime(Timestamp(NOW - 2 * HOUR), ".kv", relative=True)),
        ("@2h-", TimeRange(Timestamp(NOW - 2 * HOUR), None, relative=True)),
        ("@2h-@1h.json", TimeRange(Timestamp(NOW - 2 * HOUR), Timestamp(NOW - HOUR), ".json", relative=True)),
        ("@5-@now", TimeRange(Timestamp(5), Timestamp(NOW), relative=True)),
        ("@yesterday-@today", TimeRange(Timestamp(TODAY - 24 * HOUR), Timestamp(TODAY), relative=True)),
    ],
)
def test_every_kind_of_name_is_read_as_the_selector_it_spells(
    name: str, selector: Selector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name in the table of selectors in SEMANTICS.md is parsed as the selector in its row, with any suffix."""
    monkeypatch.setattr(selectors, "system_clock", lambda: Timestamp(NOW))
    assert selector == parse(name)


REFUSED = {
    "no selector": ["", ".json", "log", "log.json", "earliest", "é", "a\0b", "1" * 256],
    "leading zeros": ["007", "00", "-0", "-0.json", "-010", "01-2", "1-02"],
    "no plain digits": ["+1", "1.0", "1e3", "0x10", "4_2", "\u0664\u0662", "\uff14\uff12"],
    "blanks": [" 42", "42 ", "42\n", "4 2"],
    "too many or too few offsets": ["-", "--1", "1--2", "1-2-3"],
    "a range that ends before it begins": ["99-42", "42-41", "@5-@4", "@1h-@2h", "@today-@yesterday"],
    "another suffix": ["42.txt", "42.JSON", "42.json.kv"],
    "a time that is missing": ["@", "@-", "@-5", "@5-@", "@2h-@", "@5-@6-@7"],
    "an @ too many or too few": ["@@5", "@5-6", "5-@6", "@10m-5m"],
    "no time": ["@2026-11-21T03-@2026-11-22", "@-10m"],
}


@pytest.mark.parametrize("name", [name for names in REFUSED.values() for name in names])
def test_a_name_that_spells_no_selector_is_refused(name: str) -> None:
    """Names that are almost selectors are refused, because each record must have exactly one name."""
    with pytest.raises(SelectorError):
        parse(name)


@given(
    first=st.integers(0, 2**63 - 1), count=st.integers(0, 2**40), suffix=st.sampled_from(["", ".kv", ".json"])
)
def test_written_out_offsets_are_read_back(first: int, count: int, suffix: str) -> None:
    """Each offset and range, written in decimal, is parsed as the same offset or range."""
    assert Single(Offset(first), suffix) == parse(f"{first}{suffix}")
    assert Range(Offset(first), Offset(first + count), suffix) == parse(f"{first}-{first + count}{suffix}")
    assert Range(Offset(first), None, suffix) == parse(f"{first}-{suffix}")
    assert LastN(count + 1, suffix) == parse(f"-{count + 1}{suffix}")


@given(st.text(max_size=40) | st.text(alphabet="0123456789-@.TZ:+jsonkv", max_size=30))
def test_any_name_is_a_selector_or_refused(name: str) -> None:
    """Any name, even of characters that occur in selectors, is parsed to a selector or raises SelectorError."""
    try:
        selector = parse(name)
    except SelectorError:
        return
    assert isinstance(selector, Single | Range | LastN | AtTime | TimeRange)
    assert selector.suffix in {form.suffix for form in VIEW_FORMS}


def orders(*, start: int = 0) -> MemoryPartition:
    """Return a log of offsets 100 to 109, two per batch, one per second from 1000 s on; `start` is its log start."""
    partition = MemoryPartition(base_offset=100)
    for number in range(0, 10, 2):
        times = [Timestamp((1000 + number + index) * 1000) for index in (0, 1)]
        partition.append(
            encode([Record(Offset(index), time, None, b"v") for index, time in enumerate(times)])
        )
    if start:
        partition.delete_records(Offset(start))
    return partition


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("103", Offset(103)),
        ("109.json", Offset(109)),
        ("103-105", SelectedRange(Offset(103), Offset(106))),
        ("103-999", SelectedRange(Offset(103), Offset(110))),
        ("103-99999999999999999999999", SelectedRange(Offset(103), Offset(110))),
        ("0-105", SelectedRange(Offset(103), Offset(106))),
        ("0-", SelectedRange(Offset(103), None)),
        ("105-", SelectedRange(Offset(105), None)),
        ("110-", SelectedRange(Offset(110), None)),
        ("110-120", SelectedRange(Offset(110), Offset(110))),
        ("-3", SelectedRange(Offset(107), Offset(110))),
        ("-7", SelectedRange(Offset(103), Offset(110))),
        ("-8", SelectedRange(Offset(103), Offset(110))),
        ("-99999999999999999999", SelectedRange(Offset(103), Offset(110))),
        ("@1004000", Offset(104)),
        ("@1003001", Offset(104)),
        ("@0", Offset(103)),
        ("@1960-01-01", Offset(103)),
        ("@1004000-@1006000", SelectedRange(Offset(104), Offset(106))),
        ("@1004000-@1004000", SelectedRange(Offset(104), Offset(104))),
        ("@1004000-@9999999", SelectedRange(Offset(104), Offset(110))),
        ("@9999999-@9999999", SelectedRange(Offset(110), Offset(110))),
        ("@9999999-", SelectedRange(Offset(110), None)),
        ("@1004000-", SelectedRange(Offset(104), None)),
    ],
)
def test_selectors_name_what_lies_in_the_log(name: str, place: Offset | SelectedRange) -> None:
    """Each selector finds its records in a log of offsets 103 to 109 that starts inside a batch."""
    assert place == resolve(parse(name), orders(start=103))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("102", "no offset 102; offsets 103 to 109 exist"),
        ("110", "no offset 110; offsets 103 to 109 exist"),
        ("0-102", "no offsets 0-102; offsets 103 to 109 exist"),
        ("111-", "no offsets 111-; offsets 103 to 109 exist"),
        ("111-120", "no offsets 111-120; offsets 103 to 109 exist"),
        ("@9999999", "no record at or after 9999999; offsets 103 to 109 exist"),
        ("18446744073709551616", "no offset 18446744073709551616; offsets 103 to 109 exist"),
    ],
)
def test_a_selector_outside_the_log_is_refused_with_the_existing_offsets(name: str, reason: str) -> None:
    """A selector outside the log is refused; the reason has the existing offsets, as the mount's status shows them."""
    with pytest.raises(SelectorError) as caught:
        resolve(parse(name), orders(start=103))
    assert f"orders-0: {reason}" == str(caught.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("0-", SelectedRange(Offset(100), None)),
        ("100-", SelectedRange(Offset(100), None)),
        ("0-100", SelectedRange(Offset(100), Offset(100))),
        ("-10", SelectedRange(Offset(100), Offset(100))),
        ("@5-", SelectedRange(Offset(100), None)),
        ("@5-@6", SelectedRange(Offset(100), Offset(100))),
    ],
)
def test_ranges_of_an_empty_log_are_empty(name: str, place: SelectedRange) -> None:
    """In an empty log each range is empty, so that a polling loop can start before the first record."""
    assert place == resolve(parse(name), MemoryPartition(base_offset=100))


@pytest.mark.parametrize("name", ["@1969-12-31", "@0"])
def test_a_record_without_a_time_is_at_no_time(name: str) -> None:
    """A record without a timestamp (-1) is never found by time, not even by a time before 1970."""
    log = LogOnDisk().log
    for timestamp in (-1, 5):
        log.append(batch(b"v", timestamp=timestamp))
    assert Offset(1) == resolve(parse(name), log)
    assert SelectedRange(Offset(1), None) == resolve(parse(f"{name}-"), log)


def test_an_empty_log_says_so() -> None:
    """A single offset in an empty log is refused, and the reason has the next offset of the log."""
    with pytest.raises(SelectorError, match="the log is empty, its next offset is 100"):
        resolve(Single(Offset(100)), MemoryPartition(base_offset=100))


def test_offsets_removed_by_compaction_do_not_exist_alone_and_are_skipped_in_ranges() -> None:
    """An offset that compaction removed is refused as a single record, but skipped in a range."""
    partition = MemoryPartition()
    kept = [Record(Offset(number), Timestamp(number), b"k", b"v") for number in (1, 4)]
    partition.add_compacted(kept, last_offset=5)
    partition.skip_offsets(4)
    partition.add(b"a")
    assert Offset(4) == resolve(Single(Offset(4)), partition)
    for missing in (0, 2, 3, 5, 6, 9):
        with pytest.raises(SelectorError, match=f"offset {missing} has no record"):
            resolve(Single(Offset(missing)), partition)
    assert SelectedRange(Offset(2), Offset(8)) == resolve(parse("2-7"), partition)


def test_the_last_records_of_many_are_found_without_reading_what_lies_before() -> None:
    """`-10` in a log of 2,000 batches of one record reads about ten batches."""
    partition = MemoryPartition()
    for _ in range(2000):
        partition.add(b"value")
    assert SelectedRange(Offset(1990), Offset(2000)) == resolve(LastN(10), partition)
    assert partition.bytes_read < 20 * 80


@given(st.data())
def test_the_last_records_are_those_a_plain_count_finds(data: st.DataObject) -> None:
    """`-N` finds the same records as a plain count, for random batches, gaps, markers and log starts."""
    partition = MemoryPartition()
    offsets: list[int] = []
    for kind in data.draw(
        st.lists(st.sampled_from(["batch", "compacted", "gap", "marker", "roll"]), max_size=12)
    ):
        first = partition.log_end_offset
        if kind == "batch":
            partition.add(*[b"x"] * data.draw(st.integers(1, 5)))
            offsets += range(first, partition.log_end_offset)
        elif kind == "compacted":
            deltas = sorted(data.draw(st.sets(st.integers(0, 9), max_size=5)))
            kept = [Record(Offset(first + delta), Timestamp(0), b"k", b"v") for delta in deltas]
            partition.add_compacted(kept, last_offset=first + 9)
            offsets += [first + delta for delta in deltas]
        elif kind == "gap":
            partition.skip_offsets(data.draw(st.integers(1, 50)))
        elif kind == "marker":
            partition.add_marker()
        else:
            partition.roll()
    partition.delete_records(Offset(data.draw(st.integers(0, partition.log_end_offset))))
    count = data.draw(st.integers(1, 30))
    visible = [offset for offset in offsets if offset >= partition.log_start_offset]
    place = resolve(LastN(count), partition)
    assert isinstance(place, SelectedRange)
    assert visible[-count:] == [offset for offset in visible if offset >= place.start_offset]
    assert partition.log_end_offset == place.end_offset


def test_a_time_that_a_transaction_marker_answers_goes_to_the_next_record() -> None:
    """If a search by time ends at a transaction marker, the selector means the next record."""
    partition = MemoryPartition()
    partition.add(b"early", time=10)
    partition.add_marker(time=50)
    partition.add(b"older", time=40)
    partition.add(b"late", time=60)
    assert Offset(3) == resolve(AtTime(Timestamp(50)), partition)
    partition.high_watermark = 3
    with pytest.raises(SelectorError):
        resolve(AtTime(Timestamp(50)), partition)


def test_isolation_decides_how_far_the_log_is_seen() -> None:
    """Records of an open transaction exist only for read_uncommitted."""
    partition = orders()
    partition.last_stable_offset = 106
    assert SelectedRange(Offset(104), Offset(106)) == resolve(LastN(2), partition)
    with pytest.raises(SelectorError, match="offsets 100 to 105 exist"):
        resolve(Single(Offset(107)), partition)
    assert Offset(107) == resolve(Single(Offset(107)), partition, isolation=Isolation.READ_UNCOMMITTED)


def test_a_damaged_batch_fails_the_lookups_that_need_it() -> None:
    """A lookup that needs a damaged batch raises CorruptionError; other lookups succeed."""
    partition = orders()
    partition.damage(104)
    with pytest.raises(CorruptionError):
        resolve(Single(Offset(104)), partition)
    assert Offset(106) == resolve(Single(Offset(106)), partition)
    assert SelectedRange(Offset(102), Offset(110)) == resolve(LastN(8), partition)
