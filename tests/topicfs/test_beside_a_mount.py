"""Tests of commands while a daemon owns the directory: they read its files, and write through the mount."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.doubles.waiting import wait_until
from tests.topicfs.conftest import TOPICFS, assert_refused, mounted
from topicfs.commands import config
from topicfs.fusefs.processes.signals import Look
from topicfs.groups import location
from topicfs.groups.location import serving_mount
from topicfs.groups.mount import MountGroups
from topicfs.mounted import REQUEST_BYTES, end_offsets, explained, line_groups
from topicfs.places import Place
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import StorageError

pytestmark = pytest.mark.fuse


def test_reading_says_nothing_of_the_daemon(mnt):
    """`cat` prints all records that the daemon has appended, and no message about the daemon."""
    with (mnt / "orders/0/log").open("a") as file:
        file.write("four\n")
    ran = subprocess.run([TOPICFS, "cat", "orders/0"], capture_output=True, check=False)
    assert (0, b"one\ntwo\nthree\nfour\n", b"") == (ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("place", ["mnt", "mnt/orders"])
@pytest.mark.parametrize(
    "words", [("topics", "list", "-d"), ("append", "orders/0", "-d"), ("check",), ("mount", "--nonempty")]
)
def test_a_mount_is_no_data_directory(orders, mnt, directory, words, place):
    """A mountpoint given as the data directory is refused, and the error names the directory that is mounted there."""
    where = [place, "data"] if words[0] == "mount" else [place]
    ran = subprocess.run([TOPICFS, *words, *where], capture_output=True, check=False)
    expected = f"{Path(place).absolute()}: is inside a topicfs mount; use what the mount shows: {directory}\n"
    assert (1, f"topicfs: {expected}") == (ran.returncode, ran.stderr.decode())


def test_lines_are_appended_through_the_mount(orders, mnt):
    """`append` checks the whole input file, and then writes lines or batches through the mount."""
    Path("lines").write_text("five\nsix")
    assert (0, b"") == orders("append", "orders/0", stdin=b"four\n")[:2]
    assert (0, b"") == orders("append", "orders", "lines")[:2]
    assert "one two three four five six" == " ".join((mnt / "orders/0/log").read_text().split())
    Path("wrong").write_text('{"payload":"seven"}\nno JSON\n')
    ran = orders("append", "orders/0/log.json", "wrong")
    assert_refused(ran, "line 2: not JSON")
    assert b"nothing was appended" in ran.errors
    assert 6 == len((mnt / "orders/0/log").read_text().split())
    batches = orders("cat", "orders/0/log.batch").output
    assert (0, b"") == orders("append", "orders/0/log.batch", stdin=batches)[:2]
    assert 12 == len((mnt / "orders/0/log").read_text().split())


def test_a_killed_append_leaves_whole_lines(mnt):
    """If `append` is killed, no partial line is stored, because each of its requests ends with a line."""
    lines = [b"%d %s end" % (number, b"x" * (number % 997)) for number in range(100_000)]
    Path("lines").write_bytes(b"\n".join(lines))
    log = mnt / "orders/1/log"
    log.parent.mkdir()
    with subprocess.Popen([TOPICFS, "append", "orders/1", "lines"]) as appending:
        wait_until(lambda: log.stat().st_size > 0, "some lines are appended")
        appending.kill()
    kept = log.read_bytes().splitlines()
    assert lines[: len(kept)] == kept
    block = b"\n".join(lines[:3000])
    written = list(line_groups(block))
    assert block == b"".join(written)
    assert {10} == {one[-1] for one in written[:-1]}
    assert max(map(len, written)) <= REQUEST_BYTES


def test_a_line_of_several_requests_is_appended_whole(orders, mnt):
    """A line that is longer than one request is stored completely."""
    line = b"x" * (3 * REQUEST_BYTES)
    assert 0 == orders("append", "orders/0", stdin=b"four\n" + line + b"\nfive").status
    assert [b"four", line, b"five"] == (mnt / "orders/0/log").read_bytes().splitlines()[3:]


def test_a_file_is_encoded_by_the_schemas_of_the_daemon(orders, mnt):
    """The daemon encodes lines for `.avro.json` with its schemas; the command does not check the lines first."""
    Path("lines").write_text('{"payload":4}\n')
    assert (0, b"") == orders("append", "orders/0/log.avro.json", "lines")[:2]
    assert 4 == json.loads((mnt / "orders/0/3.avro.json").read_text())["payload"]


def test_what_the_daemon_refuses_is_said_with_its_reason(orders, mnt):
    """If the daemon refuses a write, the command prints the reason that `@status` gives for this write.

    A reason for an earlier write is not printed.
    """
    Path("words").write_text("four\n")
    ran = orders("append", "orders/0/log.avro.json", "words")
    assert (1, b"topicfs: words: line 1: not JSON: Expecting value at column 1; nothing was appended\n") == (
        ran.status,
        ran.errors,
    )
    with (
        pytest.raises(FileNotFoundError),
        explained(mnt, "orders/0/log.avro.json"),
    ):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "orders/0/log.avro.json")


def test_a_refused_line_has_its_number_in_the_input(orders, mnt):
    """The error for a refused line has the line's number in the whole input, not its number in one write."""
    good = b'{"payload":"%s"}\n' % (b"x" * 1000)
    ran = orders("append", "orders/0/log.json", stdin=good * 500 + b"no json\n")
    assert_refused(ran, "topicfs: standard input: line 501: not JSON")


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01T00:00:00.000Z error a/0/log: earlier",
        "9999-01-01T00:00:00.000Z error b/0/log: of another error a/0/log: file",
        "scrub of error a/0/log: none",
    ],
)
def test_only_a_new_reason_of_the_file_itself_is_shown(tmp_path, line):
    """A refusal is explained only by a line of `@status` that concerns the same file and is newer than the write."""
    (tmp_path / "@status").write_text(f"{line}\n")
    with pytest.raises(OSError, match="Input/output error"), explained(tmp_path, "a/0/log"):
        raise OSError(errno.EIO, "Input/output error")
    (tmp_path / "@status").write_text(f"{line}\n9999-01-01T00:00:00.000Z error a/0/log: it (3 times)\n")
    with pytest.raises(StorageError, match="^it$"), explained(tmp_path, "a/0/log"):
        raise OSError(errno.EIO, "Input/output error")


def test_ends_of_a_new_topic_of_the_same_name_are_not_counted(tmp_path):
    """End offsets are read from the topic with the expected ID only, not from a newer topic of the same name."""
    (tmp_path / "orders/0").mkdir(parents=True)
    (tmp_path / "orders/status").write_text("topic_id first\n")
    (tmp_path / "orders/0/status").write_text("log_end_offset 3\n")
    assert [3, 3] == [end_offsets(tmp_path / "orders", "first", number) for number in (0, None)]
    with pytest.raises(FileNotFoundError):
        end_offsets(tmp_path / "orders", "second", None)


def test_names_of_groups_that_no_mount_has_are_refused(orders, mnt):
    """A group name that cannot be a directory name is refused."""
    for name in ("", ".", "..", "a/b"):
        assert_refused(orders("groups", "describe", name), f"{name}: no such group")
        ran = orders("work", name, "orders", "--drain", "true")
        assert_refused(ran, "a group's name must be a valid directory name")


def test_a_group_that_no_mount_has_is_not_reset(orders, mnt):
    """A reset with an invalid group name is refused, and creates no directory."""
    ran = orders("groups", "reset", "../new", "--topic", "orders", "--to-earliest")
    assert_refused(ran, "a group's name must be a valid directory name")
    assert not (mnt / "new").exists()


def test_a_group_is_not_taken_for_a_topic(orders, mnt):
    """A group is not mistaken for a topic, even if its name looks like a partition or a file of a topic."""
    for name in ("@groups/5", "@groups/replicas", "@queues/6"):
        (mnt / name).mkdir()
    assert (0, b"", b"nothing is offline\n") == orders("topics", "online")
    assert 0 == orders("replicas", "elect", "--preferred").status


@pytest.mark.parametrize(
    ("when", "offset"),
    [
        ("--to-datetime=1969-12-31", 0),
        ("--by-duration=P99999D", 0),
        ("--by-duration=P1D", 0),
        ("--to-datetime=2100-01-01", 3),
    ],
)
def test_a_group_is_reset_by_time_through_the_mount(orders, mnt, when, offset):
    """A group can be reset to a time through the mount. A time before 1970 selects the first record."""
    ran = orders("groups", "reset", "g", "--topic", "orders:0", when)
    assert ["g", "orders", "0", str(offset)] == ran.text.split()[-4:], ran.errors


def test_the_reason_why_a_daemon_refuses_a_setting_is_said(orders, mnt, monkeypatch):
    """If the daemon refuses a setting that the command would accept, the command prints the daemon's reason."""
    monkeypatch.setattr(config, "TopicConfig", SimpleNamespace(from_overrides=lambda _: None))
    ran = orders("config", "orders", "retention.ms=long")
    assert_refused(ran, "retention.ms=long: must be a whole number")


def test_the_reason_why_a_daemon_keeps_a_partition_offline_is_said(orders, mnt, directory):
    """If a partition cannot be reopened, the command prints the partition's state and the daemon's reason."""
    epochs = directory / "orders-0/leader-epoch-checkpoint"
    subprocess.run([TOPICFS, "umount", str(mnt)], check=True)
    good = epochs.read_bytes()
    epochs.write_bytes(b"rubbish\n")
    subprocess.run([TOPICFS, "mount", str(directory), str(mnt)], check=True)
    ran = orders("topics", "online", "orders/0")
    assert (1, True) == (ran.status, "orders/0: offline: " in ran.text), ran
    assert "Input/output error" not in ran.text
    assert 2 == ran.text.count("leader-epoch-checkpoint")
    epochs.write_bytes(good)
    assert "orders/0: online\n" == orders("topics", "online", "orders/0").text


def test_groups_that_are_deleted_while_they_are_listed_are_left_out(tmp_path):
    """A listing of groups skips groups that are deleted while it runs."""
    for name in ("first", "second", "third"):
        (tmp_path / "@groups" / name).mkdir(parents=True)
        (tmp_path / "@groups" / name / "status").write_text("state Empty\ngeneration -\n")
    (tmp_path / "@groups/first/status").unlink()
    (tmp_path / "@groups/gone").symlink_to("nowhere")
    (tmp_path / "@queues").mkdir()
    assert ["second", "third"] == [one.name for one in MountGroups(tmp_path).listed()]


def test_lines_are_compressed_by_the_command_and_appended_through_the_mount(orders, mnt):
    """With --compression the command encodes batches itself, and chooses the same partitions as the daemon."""
    Path("lines").write_text("four\n" * 3000)
    assert (0, b"") == orders("append", "--compression", "zstd", "orders/0", "lines")[:2]
    assert ["four"] * 3000 == (mnt / "orders/0/log").read_text().splitlines()[3:]
    (batch,) = scan((mnt / "orders/0/3-.batch").read_bytes())
    assert (Codec.ZSTD, 3000) == (batch.codec, batch.record_count)
    Path("keys").write_text("a\t1\nb\t2\nc\t3\nd\t4\n")
    assert 0 == orders("topics", "create", "keyed", "--partitions", "3").status
    assert (0, b"") == orders("append", "--compression", "lz4", "keyed/log.kv", "keys")[:2]
    beside = [(mnt / f"keyed/{number}/log.kv").read_text().splitlines() for number in range(3)]
    assert (0, b"") == orders("append", "keyed/log.kv", "keys")[:2]
    for number, lines in enumerate(beside):
        assert lines * 2 == (mnt / f"keyed/{number}/log.kv").read_text().splitlines()
    Path("wrong").write_text('{"payload":"five"}\nno JSON\n')
    ran = orders("append", "--compression", "zstd", "orders/0/log.json", "wrong")
    assert_refused(ran, "line 2: not JSON")
    assert 3003 == len((mnt / "orders/0/log").read_text().splitlines())


def test_schemas_of_the_command_encode_beside_a_mount(orders, mnt):
    """With --schema-dir the command encodes with its own schemas; the daemon decodes with the daemon's schemas."""
    Path("other").mkdir()
    Path("other/7.avsc").write_text('"long"')
    Path("other/orders-value.avsc").symlink_to("7.avsc")
    ran = orders("append", "--schema-dir", "other", "orders/0/log.avro.json", stdin=b'{"payload":5}\n')
    assert (0, b"") == ran[:2], ran.errors
    assert b"\0\0\0\0\7\n\n" == (mnt / "orders/0/3").read_bytes() + b"\n"


def test_topics_are_deleted_through_the_mount(orders, mnt):
    """Deleting a topic that has records through a mount requires --with-records, and a mount with --allow-delete."""
    orders("topics", "create", "empty")
    assert "empty: deleted\n" == orders("topics", "delete", "empty").text
    assert not (mnt / "empty").exists()
    ran = orders("topics", "delete", "orders")
    remedy = (
        f"holds 3 records; add --with-records to delete them too, if the mount at {mnt} has --allow-delete\n"
    )
    assert_refused(ran, remedy)
    ran = orders("topics", "delete", "orders", "--with-records")
    assert_refused(ran, "orders: holds 3 records; `rmdir orders` removes the topic once it is empty")
    assert b"`topicfs topics delete orders --with-records` after the unmount" in ran.errors
    assert "one two three" == " ".join((mnt / "orders/0/log").read_text().split())
    ran = orders("topics", "delete", "order")
    assert (1, b"topicfs: order: no such topic") == (ran.status, ran.errors.rstrip()[:29])


def test_a_daemon_says_why_it_refuses_a_line(orders, mnt):
    """The error for a refused line is the reason in `@status`. The text of the errno is not added."""
    assert 0 == orders("config", "orders", "max.message.bytes=100").status
    ran = orders("append", "orders/0/log.avro.json", stdin=b'{"payload":"no number"}\n')
    assert_refused(ran, "standard input: ")
    assert b"Invalid argument" not in ran.errors


def test_topics_are_created_through_the_mount(orders, mnt):
    """Topics are created through the mount with partitions and settings, or none is created if one is refused."""
    ran = orders("topics", "create", "a", "b", "--partitions", "3", "--config", "retention.ms=5000")
    assert (0, "a: created with 3 partitions\nb: created with 3 partitions\n") == (ran.status, ran.text)
    assert [0, 1, 2] == sorted(int(one.name) for one in (mnt / "b").iterdir() if one.name.isdecimal())
    assert "retention.ms=5000" in (mnt / "b/config").read_text().splitlines()
    assert "c: created with 2 partitions\n" == orders("topics", "create", "c").text
    for words, reason in [
        (("d", "orders"), "orders: the topic exists already"),
        (("d", "e@f"), "a topic's name has only"),
        (("d", "--config", "retention.ms=soon"), "retention.ms=soon: must be a whole number"),
        (("d", "--partitions", "1"), "d: the daemon creates at least 2 partitions (num.partitions)"),
    ]:
        assert_refused(orders("topics", "create", *words), reason)
    assert ["a", "b", "c", "orders"] == sorted(one.name for one in mnt.iterdir() if one.name[0] != "@")


@pytest.mark.parametrize("words", [(), ("--partitions", "1")])
def test_no_topic_is_made_in_the_directory_below_a_mount_that_has_ended(orders, tmp_path, monkeypatch, words):
    """If the daemon ends while a command uses its mount, the command fails and creates nothing below the mountpoint."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.setattr("topicfs.api.topics.serving_mount", lambda _place: below)
    ran = orders("topics", "create", "a", *words)
    assert (1, f"topicfs: {below}: its mount has ended; run the command again\n") == (
        ran.status,
        ran.errors.decode(),
    )
    assert [] == list(below.iterdir())


def test_settings_are_changed_through_the_mount(orders, mnt):
    """Through the mount, a call changes all of its settings or none, and prints the values that the daemon then has."""
    ran = orders("config", "orders", "retention.ms=5000", "cleanup.policy=compact")
    assert (0, "orders: retention.ms=5000\norders: cleanup.policy=compact\n") == (ran.status, ran.text)
    ran = orders("config", "orders", "retention.ms=6000", "cleanup.policy=shred")
    assert_refused(ran, "cleanup.policy=shred")
    ran = orders("config", "orders", "retention.m=")
    assert_refused(ran, "retention.m: no such topic setting; did you mean")
    assert (
        "orders: cleanup.policy=delete (the default)\n" == orders("config", "orders", "cleanup.policy=").text
    )
    shown = json.loads(orders("config", "orders", "--set", "--json").text)
    assert [("retention.ms", "5000")] == [(one["name"], one["value"]) for one in shown]


def test_a_mount_of_another_user_is_not_written_to(orders, mnt, directory, monkeypatch):
    """A command writes only to a mount of root or of its own user, because the mount's daemon receives the data."""
    place = Place((directory,))
    assert mnt == serving_mount(place)
    for user, expected in ((os.geteuid(), mnt), (0, mnt), (os.geteuid() + 1, None)):
        monkeypatch.setattr(location, "look", lambda _, user=user: Look(1, stuck=False, pending=0, user=user))
        assert expected == serving_mount(place)
    assert f"go through its mount: cat >> {mnt}".encode() in orders("append", "orders/0", stdin=b"x\n").errors


def test_a_mount_that_may_delete_does_so_only_when_the_command_may(orders, directory, tmp_path):
    """Deleting a topic that has records requires --with-records even if the mount has --allow-delete."""
    with mounted(directory, tmp_path / "mnt", "--allow-delete") as mnt:
        assert_refused(orders("topics", "delete", "orders"), "holds 3 records; add --with-records")
        assert (mnt / "orders").exists()
        assert "orders: deleted\n" == orders("topics", "delete", "orders", "--with-records").text
        assert not (mnt / "orders").exists()


def test_topics_with_replicas_are_created_through_the_mount(topicfs, tmp_path):
    """A topic is created with the requested number of replicas, or not at all."""
    both = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with mounted(both, tmp_path / "mnt", "--replicas", "2") as mnt:
        ran = topicfs("topics", "create", "--data", both, "one", "--replicas", "1")
        assert (0, "one: created with 1 partition\n") == (ran.status, ran.text)
        assert 1 == len((mnt / "one/replicas").read_text().splitlines())
        assert 0 == topicfs("topics", "create", "--data", both, "two", "--replicas", "2").status
        assert 2 == len((mnt / "two/replicas").read_text().splitlines())
        assert_refused(topicfs("topics", "create", "--data", both, "three", "--replicas", "3"), "3 replicas")
        assert not (mnt / "three").exists()


def test_directories_without_replicas_say_so_through_the_mount(orders, mnt):
    """If the directories have no replicas, creating a topic with replicas is refused, and no topic is created."""
    ran = orders("topics", "create", "many", "--replicas", "2")
    assert_refused(ran, "these data directories keep no replicas")
    assert not (mnt / "many").exists()
