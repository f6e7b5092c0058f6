"""Tests of `topicfs append` and `topicfs cat` without a mount."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from testing.processes import started
from tests.doubles.engines import append_lines
from tests.topicfs.conftest import TOPICFS, assert_refused
from topicfs.main import run
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.disk.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS, MIRROR, TOPIC_SETTINGS

pytestmark = pytest.mark.slow


def test_a_line_is_a_record(orders):
    """Each line of standard input becomes a record, and `cat` prints the value of each record."""
    assert (0, b"one\ntwo\nthree\n", b"") == orders("cat", "orders/0")


def test_a_last_line_without_end_is_a_record_too(topicfs):
    """A last line without a newline becomes a record, as on a mount."""
    topicfs("topics", "create", "orders")
    assert 0 == topicfs("append", "orders/0/log", stdin=b"one\ntwo").status
    assert b"one\ntwo\n" == topicfs("cat", "orders/0/log").output


CHANGES = (
    ("append", "orders/0/log"),
    ("topics", "create", "others"),
    ("topics", "delete", "orders", "--with-records"),
    ("config", "orders", "retention.ms=1"),
    ("groups", "reset", "g", "--topic", "orders", "--to-earliest"),
    ("cat", "--group", "g", "orders/log"),
    ("work", "g", "orders", "--", "true"),
    ("mount", "--foreground", "data", "mnt"),
)


@pytest.fixture
def journal(orders, directory) -> Path:
    """The journal of a mirror in the data directory, with `orders` as the mirror's copy."""
    path = directory / MIRROR
    path.write_text("{}")
    return path


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_mirrors_directory_takes_no_change(topicfs, journal, tmp_path: Path, words: tuple[str, ...]):
    """A command that would change a mirror's directory is refused with the remedy, and changes nothing."""
    Path("mnt").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}

    refused = topicfs(*words, stdin=b"four\n")
    assert_refused(refused, f"or end the copy for good: rm {journal.relative_to(Path.cwd())}")
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}


def test_a_mirrors_directory_is_read_scrubbed_and_its_copy_ended(topicfs, journal):
    """A mirror's directory can be read, scrubbed and checked. After its journal is deleted it can be changed again."""
    assert b"one\ntwo\nthree\n" == topicfs("cat", "orders/0/log").output
    assert [0, 0, 0] == [topicfs(*words).status for words in (("scrub",), ("maintain",), ("check",))]
    journal.unlink()
    assert 0 == topicfs("append", "orders/0/log", stdin=b"four\n").status


@pytest.mark.parametrize(
    ("own", "said", "kept"), [("producer", "gzip", 1), ("lz4", "gzip", 3), ("lz4", "none", 3)]
)
def test_lines_are_compressed_by_option_or_topic(topicfs, own, said, kept):
    """`--compression` applies if the topic lets producers choose the codec; otherwise the topic's codec is used."""
    topicfs("topics", "create", "orders", "--config", f"compression.type={own}")
    assert 0 == topicfs("append", "--compression", said, "orders/0", stdin=b"one\n" * 100).status
    assert b"one\n" * 100 == topicfs("cat", "orders/0").output
    assert kept == read_header(topicfs("cat", "orders/0/log.batch").output).attributes & CODEC_MASK


def test_batches_are_not_compressed_again(topicfs):
    """`--compression` for batches is a usage error, which is reported before anything is appended."""
    topicfs("topics", "create", "orders")
    refused = topicfs("append", "--compression", "zstd", "orders/0/log.batch", stdin=b"one\n")
    assert_refused(refused, "batches keep their own codecs", status=2)


def test_an_empty_input_appends_nothing(topicfs):
    """`append` of an empty input appends nothing, and `cat` of an empty partition prints nothing."""
    topicfs("topics", "create", "orders")
    assert (0, b"", b"") == topicfs("append", "orders/0")
    assert (0, b"", b"") == topicfs("cat", "orders/0")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1", b"two"),
        ("1.kv", b"\\N\ttwo\n"),
        ("1-2", b"two\nthree\n"),
        ("1-", b"two\nthree\n"),
        ("-2", b"two\nthree\n"),
        ("0-99", b"one\ntwo\nthree\n"),
        ("3-", b""),
        ("earliest", b"one"),
        ("latest", b"three"),
        ("@0-@1", b""),
        ("@0", b"one"),
        ("log.kv", b"\\N\tone\n\\N\ttwo\n\\N\tthree\n"),
    ],
)
def test_every_name_of_the_mount_prints_the_same_here(orders, name, expected):
    """`cat` accepts each name that a mount has for records, ranges, times and forms, and prints the same content."""
    assert (0, expected, b"") == orders("cat", f"orders/0/{name}")


def test_json_shows_all_of_a_record(orders):
    """The JSON form has the same fields as `kcat -J`, except the broker."""
    line = json.loads(orders("cat", "orders/0/latest.json").output)
    assert {
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "tstype": "create",
        "key": None,
        "payload": "three",
    } == {name: value for name, value in line.items() if name != "ts"}


def test_a_topic_copies_through_json(orders):
    """Appending the output of `.json` copies the keys, values and timestamps of a topic."""
    orders("append", "orders/0/log.kv", stdin=b"key\tfour\n")
    orders("topics", "create", "copy")
    lines = orders("cat", "orders/0/log.json").output
    assert 0 == orders("append", "copy/0/log.json", stdin=lines).status
    assert lines == orders("cat", "copy/0/log.json").output.replace(b'"copy"', b'"orders"')


def test_lines_for_a_whole_topic_are_spread_by_key(topicfs):
    """Lines for a whole topic are spread by Kafka's partitioner: lines with equal keys go to the same partition."""
    topicfs("topics", "create", "clicks", "--partitions", "3")
    lines = b"".join(b"user%d\tclick\n" % (number % 10) for number in range(100))
    assert 0 == topicfs("append", "clicks/log.kv", stdin=lines).status
    held = [set(topicfs("cat", f"clicks/{number}/log.kv").output.splitlines()) for number in range(3)]
    assert set(lines.splitlines()) == held[0] | held[1] | held[2]
    assert 10 == sum(map(len, held))


def test_a_file_with_a_bad_line_is_refused_as_a_whole(topicfs, tmp_path):
    """A file with a bad line is refused completely, and the error has the bad line's number."""
    topicfs("topics", "create", "orders")
    source = tmp_path / "records.json"
    good = b'{"payload":"%s"}\n' % (b"x" * 500)
    source.write_bytes(good * 5000 + b"no json\n" + good)
    ran = topicfs("append", "orders/0/log.json", str(source))
    assert_refused(ran, f"topicfs: {source}: line 5001: ")
    assert ran.errors.endswith(b"; nothing was appended\n")
    assert b"" == topicfs("cat", "orders/0").output


def test_a_bad_line_in_a_pipe_is_reported_with_the_lines_appended(topicfs):
    """At a bad line on standard input, `append` stops. The error has the number of lines that were appended before."""
    topicfs("topics", "create", "orders")
    good = b'{"payload":"%s"}\n' % (b"x" * 1000)
    lines = good * 3000
    ran = topicfs("append", "orders/0/log.json", stdin=lines + b"no json\n")
    assert_refused(ran, "topicfs: standard input: line 3001: ")
    kept = len(topicfs("cat", "orders/0").output.splitlines())
    assert f"; the first {kept} lines were appended\n".encode() == ran.errors[ran.errors.index(b"; the") :]


def test_a_record_too_large_is_refused(topicfs):
    """A record above max.message.bytes is refused."""
    topicfs("topics", "create", "orders", "--config", "max.message.bytes=1000")
    assert_refused(topicfs("append", "orders/0", stdin=b"x" * 2000 + b"\n"), "topicfs: standard input: ")
    assert b"" == topicfs("cat", "orders/0").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cat", "orders/0/nonsense"), "not a selector; selectors are 42, 42-99"),
        (
            ("append", "orders/log.batch"),
            "batches can only be appended to one partition, as orders/0/log.batch",
        ),
        (("cat", "orders/5"), "orders/5: no such partition; orders has partition 0 alone"),
        (("cat", "a/b/c/d"), "a: no such topic"),
        (("cat", "--follow", "a/b/c/d"), "not of the form TOPIC/PARTITION/NAME"),
        (("explain", "ordesr/0/1"), "ordesr: no such topic; did you mean orders?"),
        (("append", "odrers"), "odrers: no such topic; did you mean orders?"),
        (
            ("config", "orders", "retention.m="),
            "retention.m: no such topic setting; did you mean retention.ms?",
        ),
    ],
)
def test_a_missing_name_gives_one_line(orders, words, message):
    """A name that does not exist gives one line on standard error and exit status 1, but no traceback."""
    ran = orders(*words)
    lines = ran.errors.decode().splitlines()
    assert (1, 1) == (ran.status, len(lines))
    assert lines[0].startswith("topicfs: ")
    assert message in lines[0]


@pytest.mark.usefixtures("orders", "owned")
def test_append_beside_a_daemon_says_where_to_append(topicfs, tmp_path):
    """While another process owns the directory, `cat` works, and `append` names the process and its mount."""
    source = tmp_path / "lines"
    source.write_bytes(b"four\n")
    ran = topicfs("append", "orders/0", str(source))
    expected = (
        f"topicfs: data: in use by process {os.getpid()}; "
        f"go through its mount: cat {source} >> MOUNTPOINT/orders/0/log, "
        "or through its listener: --data kafka://HOST:PORT\n"
    )
    assert (1, expected) == (ran.status, ran.errors.decode())
    assert b"one\ntwo\nthree\n" == topicfs("cat", "orders/0").output


def test_the_directory_is_given_by_option_or_environment(orders, directory, monkeypatch, tmp_path):
    """The data directory is taken from --data, else from TOPICFS_DATA, else it is ./data."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert 1 == orders("cat", "orders/0").status
    assert b"one" == orders("cat", "--data", str(directory), "orders/0/0").output
    monkeypatch.setenv("TOPICFS_DATA", str(directory))
    assert b"one" == orders("cat", "orders/0/0").output


def test_follow_ends_where_a_new_topic_has_the_name(orders):
    """`cat --follow` ends when its topic was deleted and created again."""
    with started([TOPICFS, "cat", "--follow", "orders/0"], stdout=subprocess.PIPE) as follower:
        assert [b"one\n", b"two\n", b"three\n"] == [follower.stdout.readline() for _ in range(3)]
        follower.send_signal(signal.SIGSTOP)
        orders("topics", "delete", "orders", "--with-records")
        orders("topics", "create", "orders")
        orders("append", "orders/0", stdin=b"1\n2\n3\n4\n")
        follower.send_signal(signal.SIGCONT)
        assert (b"", 0) == (follower.stdout.read(), follower.wait())


@pytest.mark.parametrize("words", [(), ("--format", r"%o:%s\n")])
def test_follow_prints_what_another_process_appends_until_ctrl_c(orders, words):
    """`cat --follow` prints the records that other processes append, until SIGINT ends it with status 130."""

    def shown(offset: int, value: str) -> bytes:
        return (f"{offset}:{value}" if words else value).encode() + b"\n"

    command = [TOPICFS, "cat", "--follow", *words, "orders/0/1-"]
    with started(command, stdout=subprocess.PIPE) as follower:
        assert [shown(1, "two"), shown(2, "three")] == [follower.stdout.readline() for _ in range(2)]
        for offset, value in ((3, "four"), (4, "five")):
            orders("append", "orders/0", stdin=value.encode() + b"\n")
            assert shown(offset, value) == follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert (b"", 130) == (follower.stdout.read(), follower.wait())


class Follower(io.BytesIO):
    """The standard output of a `cat --follow`, which is interrupted when it has printed its fourth line."""

    def __init__(self, at_first_flush: Callable[[], object]) -> None:
        super().__init__()
        self._at_flush: Callable[[], object] | None = at_first_flush
        self._is_interrupted = False

    def flush(self) -> None:
        at_flush, self._at_flush = self._at_flush, None
        if at_flush is not None:
            at_flush()
        if not self._is_interrupted and self.getvalue().count(b"\n") == 4:
            self._is_interrupted = True  # Interrupt only once: the stream is flushed again when it is freed.
            raise KeyboardInterrupt


def follow(directory: Path, monkeypatch: pytest.MonkeyPatch, at_first_flush: Callable[[], object]) -> bytes:
    """Return the output of `cat --follow`. After the first three lines, call `at_first_flush`."""
    output = Follower(at_first_flush)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))
    assert 130 == run(("cat", "--follow", "--data", str(directory), "orders/0"))
    return output.getvalue()


@pytest.fixture
def damaged(orders, directory):
    """A topic of three batches: the records one, two and three; the record four, damaged; the record five."""
    orders("append", "orders/0", stdin=b"four\n")
    orders("append", "orders/0", stdin=b"five\n")
    log = directory / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"four")] ^= 1
    log.write_bytes(content)
    return orders


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("log", b"three\n"),
        ("log.kv", b"three\n"),
        ("log.json", b'"three"}\n'),
        ("0-4", b"three\n"),
        ("1-", b"three\n"),
    ],
)
def test_what_stands_before_a_damaged_batch_is_printed(damaged, name, end):
    """`cat` prints the records before a damaged batch and then the error with file and position; its status is 1."""
    ran = damaged("cat", f"orders/0/{name}")
    assert (1, 3 - (name == "1-")) == (ran.status, ran.output.count(b"\n"))
    assert ran.output.endswith(end)
    assert 1 == len(ran.errors.splitlines())
    assert b"00000000000000000000.log: position 93: checksum" in ran.errors


def test_whole_batches_before_a_damaged_one_are_printed(damaged, directory):
    """`cat` prints the whole batches before a damaged batch byte for byte."""
    ran = damaged("cat", "orders/0/log.batch")
    assert (1, (directory / "orders-0" / "00000000000000000000.log").read_bytes()[:93]) == ran[:2]


def test_records_after_a_damaged_batch_can_be_selected(damaged):
    """Records and ranges outside the damaged batch are printed with status 0; a record inside the batch is an error."""
    for name, expected in (
        ("4-", b"five\n"),
        ("4", b"five"),
        ("latest", b"five"),
        ("0-2", b"one\ntwo\nthree\n"),
    ):
        assert (0, expected, b"") == damaged("cat", f"orders/0/{name}"), name
    ran = damaged("cat", "orders/0/3")
    assert (1, b"") == ran[:2]
    assert b"00000000000000000000.log: position 93: checksum" in ran.errors


def test_a_place_that_fails_does_not_end_the_others(damaged):
    """With several paths, `cat` prints as much of each as possible and a line for each error; its status is 1."""
    ran = damaged("cat", "orders/0/9", "orders/0/0", "orders/0", "orders/0/4")
    assert (1, b"oneone\ntwo\nthree\nfive") == ran[:2]
    lines = ran.errors.decode().splitlines()
    assert ["topicfs: "] * 2 == [line[:9] for line in lines]
    assert "offsets 0 to 4 exist" in lines[0]
    assert "position 93" in lines[1]


def test_follow_ends_at_a_damaged_batch(damaged, directory, monkeypatch):
    """`cat --follow` prints the records before a damaged batch and then the error; its status is 1."""
    ran = damaged("cat", "--follow", "orders/0")
    assert (1, b"one\ntwo\nthree\n") == ran[:2]
    assert b"position 93" in ran.errors


def append(directory: Path, line: str) -> None:
    """Append a line through a new engine, as another process would."""
    with closing(open_engine(directory)) as engine:
        append_lines(engine.partition("orders", 0), line)


def test_follow_misses_nothing_appended_as_it_begins(orders, directory, monkeypatch):
    """`cat --follow` prints a record that is appended after its first read but before it first waits for changes."""
    assert b"one\ntwo\nthree\nfour\n" == follow(directory, monkeypatch, lambda: append(directory, "four\n"))


def test_follow_sees_a_change_that_no_file_time_tells(orders, directory, monkeypatch):
    """`cat --follow` notices a change that leaves all file times unchanged.

    Two changes within one tick of the kernel's clock give a file the same time.
    """
    watched = [directory / name for name in (HIGH_WATERMARKS, CLEAN_SHUTDOWN)]
    tick = time.time() + 3600

    def at_the_tick() -> None:
        for path in watched:
            os.utime(path, (tick, tick))

    def append_within_the_tick() -> None:
        append(directory, "four\n")
        at_the_tick()

    at_the_tick()

    assert b"one\ntwo\nthree\nfour\n" == follow(directory, monkeypatch, append_within_the_tick)


def test_follow_takes_something_that_grows(orders):
    """`--follow` requires one path to a file that can grow. A record or two paths are a usage error."""
    for words in (("orders/0/1",), ("orders/0", "orders/0")):
        assert 2 == orders("cat", "--follow", *words).status


def test_batches_are_copied_with_all_that_is_in_them(orders, tmp_path):
    """`append` accepts the batches of a log, a range or a record that `cat` has printed, from a pipe or a file."""
    orders("topics", "create", "copy")
    batches = orders("cat", "orders/0/log.batch").output
    saved = tmp_path / "batches"
    saved.write_bytes(batches)
    assert 0 == orders("append", "copy/0/log.batch", stdin=batches).status
    assert 0 == orders("append", "copy/0/log.batch", str(saved)).status

    assert b"one\ntwo\nthree\n" * 2 == orders("cat", "copy/0").output
    for name in ("0.batch", "earliest.batch", "0-2.batch", "-3.batch"):
        assert batches == orders("cat", f"orders/0/{name}").output, name
    assert b"" == orders("cat", "orders/0/1-2.batch").output


def test_a_file_that_is_not_batches_is_refused(topicfs, tmp_path):
    """A file that contains anything but batches, or an incomplete batch, is refused completely."""
    topicfs("topics", "create", "orders")
    topicfs("append", "orders/0", stdin=b"one\n")
    batches = topicfs("cat", "orders/0/log.batch").output
    source = tmp_path / "torn"
    source.write_bytes(batches + batches[:-1])
    for file, reason in (
        (source, "the last batch is incomplete"),
        (Path(__file__), "no record batch at byte 0"),
    ):
        ran = topicfs("append", "orders/0/log.batch", str(file))
        assert_refused(ran, reason)
        assert ran.errors.endswith(b"; nothing was appended\n")
    assert b"one\n" == topicfs("cat", "orders/0").output


def test_a_range_of_a_brokers_directory_ends_at_a_damaged_batch_too(damaged, directory):
    """`cat` of a range in a broker's directory prints the records before a damaged batch."""
    (directory / TOPIC_SETTINGS).unlink()
    assert b"mode foreign\n" in damaged("cat", "@status").output
    ran = damaged("cat", "orders/0/0-4")
    assert (1, b"one\ntwo\nthree\n") == ran[:2]
    assert b"position 93" in ran.errors
