"""Tests of `topicfs maintain` over real directories: what it prints, what it changes, and what it leaves unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.topicfs.conftest import TOPICFS, assert_refused
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.disk import names
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Offset, Record, Timestamp

TIME = 1_700_000_000_000
DAY = 86_400_000
SIZE = 131
"""Size in bytes of the batch of one record."""


def fill(directory: Path, *, records: int = 5, time: int = TIME, **settings: str) -> None:
    """Create a topic `t` with two records per segment.

    The records have two keys in turn. The first record has the time `time`, and each record is a second later than
    the record before it.
    """
    overrides = {
        "internal.segment.bytes": "300",
        **{name.replace("_", "."): v for name, v in settings.items()},
    }
    with closing(open_engine(directory)) as engine:
        engine.create_topic("t", overrides=overrides)
        for number in range(records):
            record = Record(
                Offset(0), Timestamp(time + number * 1000), b"k%d" % (number % 2), b"%060d" % number
            )
            assert engine.partition("t", 0).append(encode([record])).base_offset == number
            assert SIZE == len(encode([record]))


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def segments(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob("t-0/*.log"))


def test_deletion_by_age_is_reported_with_its_numbers(directory, topicfs):
    """Each segment that is deleted because of its age is printed on one line, in order."""
    fill(directory, retention_ms=str(7 * DAY))
    now = str(TIME + 8 * DAY + 1000)
    assert topicfs("maintain", "data", "--dry-run", "--now", now).text.splitlines() == [
        f"t-0 roll {4:020} segment.ms: 131 bytes, open for 7 days, 23:59:57 of 7 days, 0:00:00",
        f"t-0 delete {0:020} retention.ms=604800000: newest record 8 days, 0:00:00 old, limit 7 days, 0:00:00, 262 bytes",
        f"t-0 delete {2:020} retention.ms=604800000: newest record 7 days, 23:59:58 old, limit 7 days, 0:00:00, 262 bytes",
        f"t-0 delete {4:020} retention.ms=604800000: newest record 7 days, 23:59:57 old, limit 7 days, 0:00:00, 131 bytes",
    ]


def test_deletion_by_size_is_reported_with_its_numbers(directory, topicfs):
    """Each deletion by the log's size is printed on one line, with the bytes by which the log was too large."""
    fill(directory, retention_bytes="200", segment_ms=str(10**15))
    assert topicfs("maintain", "data", "--dry-run").text.splitlines() == [
        f"t-0 delete {0:020} retention.bytes=200: 455 bytes too many, 262 bytes",
    ]


def test_deletion_by_log_start_is_reported(directory, topicfs):
    """The deletion of a segment that is completely below the log start is printed on one line."""
    fill(directory, segment_ms=str(10**15))
    with closing(open_engine(directory)) as engine:
        engine.partition("t", 0).delete_records(Offset(3))
    told = topicfs("maintain", "data", "--dry-run").text
    assert told == f"t-0 delete {0:020} before the log start offset 3, 262 bytes\n"


def test_compaction_is_told_with_its_ratio(directory, topicfs):
    """Compaction is printed with the cleanable ratio; afterwards no compaction is due."""
    fill(directory, cleanup_policy="compact", segment_ms=str(10**15))
    told = (
        "t-0 compact offsets 0 to 3 ratio 1.00 > min.cleanable.dirty.ratio=0.5: 524 of 524 bytes are dirty\n"
    )
    assert topicfs("maintain", "data", "--dry-run").text == told
    assert topicfs("maintain", "data").text == told
    assert b"0\n1\nt 0 4\n" == (directory / "cleaner-offset-checkpoint").read_bytes()
    again = topicfs("maintain", "data")
    assert ("", b"nothing is due\n", 0) == (again.text, again.errors, again.status)
    assert topicfs("cat", "t/0/log").text == "".join(f"{number:060}\n" for number in (2, 3, 4))


def test_overdue_compaction_is_reported(directory, topicfs):
    """Overdue compaction and the roll of the active segment are printed, whatever the cleanable ratio is."""
    fill(directory, cleanup_policy="compact", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000")
    told = topicfs("maintain", "data", "--dry-run", "--now", str(TIME + 100_000)).text.splitlines()
    assert told == [
        f"t-0 roll {4:020} segment.ms: 131 bytes, open for 0:01:36 of 0:01:00",
        "t-0 compact offsets 0 to 4 max.compaction.lag.ms has passed: 655 of 655 bytes are dirty",
    ]


def test_one_run_does_all_that_is_due(directory, topicfs):
    """One run of `maintain` rolls, deletes and compacts; a second run has nothing to do."""
    fill(directory, cleanup_policy="compact", segment_ms="60000")
    now = str(TIME + DAY)
    assert 2 == len(topicfs("maintain", "data", "--now", now).text.splitlines())
    assert 5 == segments(directory)[-1]
    assert topicfs("cat", "t/0/log").text == "".join(f"{number:060}\n" for number in (3, 4))
    assert b"nothing is due\n" == topicfs("maintain", "data", "--now", now).errors


def test_a_dry_run_changes_nothing(directory, topicfs):
    """With --dry-run no byte of the directory changes."""
    fill(directory, retention_ms="1", cleanup_policy="compact,delete")
    before = content(directory)
    told = topicfs("maintain", "data", "--dry-run")
    assert (True, 0) == (len(told.text.splitlines()) > 3, told.status)
    assert content(directory) == before


def test_json_has_every_number(directory, topicfs):
    """The option --json prints one object that contains a step for each change."""
    fill(directory, retention_ms="1000", cleanup_policy="compact,delete", segment_ms="5000")
    now = TIME + 10_000
    told = json.loads(topicfs("maintain", "data", "--dry-run", "--json", "--now", str(now)).text)
    assert (told["now"], told["dry_run"]) == (now, True)
    assert ["roll", "delete", "delete", "delete", "compact"] == [step["what"] for step in told["steps"]]
    roll, delete, *_, compact = told["steps"]
    assert {
        "what": "roll",
        "topic": "t",
        "partition": 0,
        "segment": 4,
        "bytes": 131,
        "reason": "segment.ms",
        "open_ms": 6000,
        "limit_ms": 5000,
    } == roll
    assert (
        0,
        "retention.ms",
        1000,
        9000,
    ) == (delete["segment"], delete["reason"], delete["limit"], delete["age_ms"])
    assert (655, 0, 1.0) == (compact["cleanable_bytes"], compact["clean_bytes"], compact["cleanable_ratio"])


def test_beside_an_owner_only_a_dry_run(directory, topicfs):
    """While another process owns the directory, `maintain` requires --dry-run."""
    fill(directory, retention_bytes="1", segment_ms=str(10**15))
    with closing(open_engine(directory)):
        pid = os.fork()
        if not pid:  # Locks belong to a process, so another process must call the command.
            os._exit(_refused(topicfs))
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _refused(topicfs) -> int:
    try:
        refused = topicfs("maintain", "data")
        assert_refused(refused, "in use by process")
        assert b"--dry-run shows what is due" in refused.errors
        assert "delete" in topicfs("maintain", "data", "--dry-run").text
    except BaseException as error:  # noqa: BLE001 (whatever it is, it must not run the parent's tests)
        print(repr(error), flush=True)  # noqa: T201 (pytest shows it)
        return 1
    return 0


def test_a_brokers_directory_is_judged_by_defaults(directory, topicfs):
    """In a broker's directory `maintain` uses default settings and says so.

    The broker keeps the topics' settings elsewhere.
    """
    fill(directory, time=system_clock() - 8 * DAY)
    (directory / "topicfs.topics").unlink()
    told = topicfs("maintain", "data", "--dry-run")
    assert "a broker stores its topics' settings elsewhere" in told.errors.decode()
    assert "retention.ms=604800000" in told.text


def test_a_damaged_log_is_reported_once_and_makes_the_status_bad(directory):
    """A damaged log is reported once on standard error, and the exit status is 1."""
    fill(directory, cleanup_policy="compact", segment_ms=str(10**15))
    path = directory / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    done = subprocess.run([TOPICFS, "maintain", "data"], capture_output=True, check=False)
    assert 1 == done.returncode
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("topicfs: t-0: not compacted any more: ")
    assert f"{path.relative_to(directory.parent)}: position 0: checksum" in line


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--json"]])
def test_warnings_of_opening_are_reported_once(directory, options):
    """Warnings that opening the directory causes are printed once on standard error, and the exit status is 0."""
    fill(directory)
    (directory / names.RECOVERY_POINTS).write_text("garbage\n")
    done = subprocess.run([TOPICFS, "maintain", "data", *options], capture_output=True, check=False)
    assert 0 == done.returncode
    told = [line for line in done.stderr.decode().splitlines() if names.RECOVERY_POINTS in line]
    assert [line for line in told if line.endswith("'garbage' is not a number; treated as empty")] == told
    assert 1 == len(told)


@pytest.mark.parametrize("time", ["the day before", "2026-13-01", ""])
def test_an_invalid_time_is_a_usage_error(orders, time):
    """An invalid time is a usage error."""
    assert_refused(orders("maintain", "data", "--now", time), "time", status=2)
