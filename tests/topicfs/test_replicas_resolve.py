"""Tests of `topicfs replicas resolve` for directories that were written to independently (a fork)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.topicfs.conftest import assert_refused
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.healing.resolution import Resolution
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import ForkedReplicasError
from topicfs.storage.model import Appended, Offset, Record, Timestamp, TopicPartition

A, B = Path("a"), Path("b")
BOTH = "a,b"
KILLED = 9
RESOLVE = ("replicas", "resolve", "--keep", "a", BOTH)


def started(*directories: Path, left_out: tuple[Path, ...] = ()) -> ReplicatedEngine:
    """Return an engine over replica directories."""
    return open_replicas(
        directories, config=EngineConfig(replication_factor=2), left_out=left_out, in_background=False
    )


def appended(engine: ReplicatedEngine, *lines: str, topic: str = "orders") -> Appended:
    return append_lines(engine.partition(topic, 0), "".join(f"{line}\n" for line in lines))


def keyed(engine: ReplicatedEngine, value: str) -> None:
    """Append a record whose key is its value."""
    record = Record(Offset(0), Timestamp(1_700_000_000_000), value.encode(), value.encode(), ())
    engine.partition("orders", 0).append(encode([record]))


def files(*directories: Path) -> dict[Path, bytes]:
    """Return the content of each file in directories."""
    return {
        path: path.read_bytes() for one in directories for path in sorted(one.rglob("*")) if path.is_file()
    }


def each_alone() -> Iterator[tuple[Path, ReplicatedEngine]]:
    """Open each of the directories a and b without the other one."""
    for one, other in ((A, B), (B, A)):
        with closing(started(one, left_out=(other,))) as engine:
            yield one, engine


def check_in_sync(*lines: str) -> None:
    """Check that directories a and b can be opened together, are in sync, and have `lines`."""
    with closing(started(A, B)) as engine:
        engine.catch_up()
        assert list(lines) == read_lines(engine.partition("orders", 0))
        assert (1, 2) == engine.replicated(TopicPartition("orders", 0)).state.in_sync


def three_without_the_leader() -> tuple[Path, Path, Path]:
    """Return three replica directories; the directory of the leader of `orders` is missing."""
    three = (A, B, Path("c"))
    with closing(started(*three)) as engine:
        engine.create_topic("orders", replicas=3)
    with closing(started(B, left_out=three)) as engine:
        appended(engine, "b")
    started(*three).close()
    shutil.rmtree(B)
    return three


@pytest.fixture
def forked(topicfs):
    """Make a fork: directory a alone got 2 lines; directory b alone got 3 lines, a topic and a setting."""
    with closing(started(A, B)) as engine:
        engine.create_topic("orders")
        engine.create_topic("compacted", overrides={"cleanup.policy": "compact"})
        appended(engine, "common")
    with closing(started(A, left_out=(B,))) as engine:
        appended(engine, "a1", "a2")
    with closing(started(B, left_out=(A,))) as engine:
        appended(engine, "b1", "b2", "b3")
        engine.create_topic("audit", replicas=1)
        appended(engine, "seen", topic="audit")
        engine.alter_config("orders", {"retention.ms": "1000000"})
    (A / names.COMMITTED_WRITES).write_bytes(b'{"version": 1, "queries": {}}\n')
    (B / names.QUEUES).write_bytes(b"")
    (B / names.PRODUCERS).write_bytes(b'{"version": 2, "producers": {}}')
    with pytest.raises(ForkedReplicasError):
        started(A, B)
    return topicfs


def check_resolved() -> None:
    """Check that both directories can be opened, are equal, and have the records of a."""
    check_in_sync("common", "a1", "a2")
    with closing(started(A, B)) as engine:
        assert {"orders", "compacted"} == set(engine.topics())
        assert "1000000" not in engine.topic("orders").overrides.values()
    assert (A / "orders-0" / f"{0:020}.log").read_bytes() == (B / "orders-0" / f"{0:020}.log").read_bytes()
    assert not (B / "audit-0").exists()


def test_without_yes_it_shows_what_would_be_lost(forked):
    """Without --yes, the records, topics and settings to be lost are printed, with status 1; no file changes."""
    before = files(A, B)
    ran = forked(*RESOLVE)
    assert (1, before) == (ran.status, files(A, B))
    lines = ran.text.splitlines()
    here = B.absolute()
    assert 4 == len(lines)
    for expected in (
        f"orders/0: only in {here}: 3 records, offsets 1 to 3, 2023-11-14",
        f"audit/0: only in {here}: 1 records, offsets 0 to 0, 2023-11-14",
        f"audit: the topic is only in {here}, and would be deleted",
        f"orders: retention.ms is 1000000 in {here}; kept is -1",
    ):
        assert 1 == sum(line.startswith(expected) for line in lines), expected


def test_with_yes_only_the_kept_history_is_left(forked):
    """With --yes only the kept history remains. Both directories then have the small files of the kept directory."""
    assert 0 == forked(*RESOLVE, "--yes").status
    assert (A / names.COMMITTED_WRITES).read_bytes() == (B / names.COMMITTED_WRITES).read_bytes()
    assert not (B / names.QUEUES).exists()
    assert not (B / names.PRODUCERS).exists()
    check_resolved()
    ran = forked(*RESOLVE)
    assert (0, b"nothing to resolve" in ran.errors) == (ran.status, True)


def test_what_is_saved_can_be_appended(forked):
    """The option --save writes a file for each partition. `topicfs append` can append these files."""
    assert 0 == forked(*RESOLVE, "--save", "lost", "--yes").status
    assert ["audit-0.batch", "orders-0.batch"] == sorted(path.name for path in Path("lost").iterdir())
    saved = Path("lost/orders-0.batch").read_bytes()
    assert 0 == forked("append", "orders/0/log.batch", "--data", BOTH, stdin=saved).status
    assert b"common\na1\na2\nb1\nb2\nb3\n" == forked("cat", "orders/0/log", "--data", BOTH).output


def test_keep_chooses_the_directory_that_is_kept(forked):
    """The option --keep chooses the directory whose history remains."""
    assert 0 == forked("replicas", "resolve", "--keep", "b", BOTH, "--yes").status
    check_in_sync("common", "b1", "b2", "b3")
    with closing(started(A, B)) as engine:
        assert {"orders", "compacted", "audit"} == set(engine.topics())


def test_a_compacting_topic_is_compared_by_record(topicfs):
    """Compacted topics are compared record by record, because compaction alone makes logs differ without a fork."""
    with closing(started(A, B)) as engine:
        engine.create_topic("orders", overrides={"cleanup.policy": "compact"})
        keyed(engine, "common")
    with closing(started(A, left_out=(B,))) as engine:
        keyed(engine, "a1")
    with closing(started(B, left_out=(A,))) as engine:
        keyed(engine, "b1")
        keyed(engine, "b2")
    assert "2 records, offsets 1 to 2" in topicfs(*RESOLVE).text
    assert 0 == topicfs(*RESOLVE, "--yes").status
    check_in_sync("common", "a1")


def test_the_only_replica_stays(topicfs):
    """A partition keeps its records if its only replica is in a directory that is given up."""
    with closing(started(A, B)) as engine:
        engine.create_topic("orders")
        engine.create_topic("single", replicas=1)
        (number,) = engine.replicated(TopicPartition("single", 0)).state.assigned
        appended(engine, "only", topic="single")
    keep, other = (A, B) if number == 2 else (B, A)
    for one, without in ((keep, other), (other, keep)):
        with closing(started(one, left_out=(without,))) as engine:
            appended(engine, str(one))
    ran = topicfs("replicas", "resolve", "--keep", str(keep), BOTH, "--yes")
    assert (0, False) == (ran.status, "single" in ran.text)
    with closing(started(A, B)) as engine:
        assert ["only"] == read_lines(engine.partition("single", 0))
        assert [str(keep)] == read_lines(engine.partition("orders", 0))


def test_a_file_that_is_saved_already_is_not_replaced(forked):
    """A file in the --save folder that has other records is not replaced. The command then changes nothing."""
    Path("lost").mkdir()
    Path("lost/orders-0.batch").write_bytes(b"other")
    before = files(A, B)
    ran = forked(*RESOLVE, "--save", "lost", "--yes")
    assert (1, before, b"other") == (ran.status, files(A, B), Path("lost/orders-0.batch").read_bytes())
    assert b"has other records already" in ran.errors


def test_a_directory_that_is_not_named_is_not_kept(forked):
    """The option --keep must name one of the given directories."""
    assert_refused(forked("replicas", "resolve", "--keep", "c", BOTH, "--yes"), "c: is not one of a, b")


def forked_in_segments(records: int = 8) -> list[Path]:
    """Create a fork after offsets 0 to 8, with different records in each directory; return the segments of a."""
    with closing(started(A, B)) as engine:
        engine.create_topic("orders", overrides={"internal.segment.bytes": "300"})
        for number in range(9):
            appended(engine, f"line {number}")
    for name, engine in each_alone():
        for number in range(records):
            appended(engine, f"{name}{number}")
    return sorted((A / "orders-0").glob("*.log"))


def test_the_log_that_is_damaged_later_can_be_kept(topicfs):
    """If both logs are damaged, the log whose damage begins later can be kept."""
    forked_in_segments(records=1)
    for one, lost in ((A, 10), (B, 12)):
        log = min((one / "orders-0").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-lost])
    assert 0 == topicfs(*RESOLVE, "--yes").status
    with closing(started(A, B)) as engine:
        assert "offsets 3 to 3 are missing" in str(engine.partition("orders", 0).status().missing)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", [lambda log: os.truncate(log, 200), Path.unlink], ids=["cut", "removed"])
def test_damage_before_the_fork_is_ignored(topicfs, damage, which):
    """Damage before the fork does not matter: if batches after it are equal, the batches before it were equal, too.

    A start repairs the damage.
    """
    log = forked_in_segments()[which]
    before = files(A / "orders-0")
    damage(log)
    ran = topicfs(*RESOLVE, "--yes")
    assert (0, True) == (ran.status, "8 records, offsets 9 to 16" in ran.text)
    check_in_sync(*(f"line {number}" for number in range(9)), *(f"a{number}" for number in range(8)))
    assert before[log] == log.read_bytes()


def test_a_damaged_log_is_not_kept_unseen(topicfs):
    """If the kept log is damaged at the fork, the error says that the log cannot be compared.

    The other log can be kept.
    """
    log = [one for one in forked_in_segments() if int(one.stem) <= 9][-1]
    os.truncate(log, 10)
    before = files(A, B)
    ran = topicfs(*RESOLVE, "--yes")
    assert (1, before) == (ran.status, files(A, B))
    assert str(log.absolute()).encode() in ran.errors
    assert b"the kept files cannot be compared; put the file back, or keep another directory" in ran.errors
    ran = topicfs("replicas", "resolve", "--keep", "b", BOTH, "--save", "lost", "--yes")
    assert (0, True) == (ran.status, f"{log.name}: position" in ran.text)
    # These batches come after the damage, in the last segment.
    assert b"a7" in Path("lost/orders-0.batch").read_bytes()
    check_in_sync(*(f"line {number}" for number in range(9)), *(f"b{number}" for number in range(8)))


def test_directories_damaged_at_the_fork_are_resolved(topicfs):
    """If both directories are damaged at the fork, in different partitions, --save and --yes are required."""
    with closing(started(A, B)) as engine:
        engine.create_topic("orders", partitions=2)
    for name, engine in each_alone():
        for number in (0, 1):
            append_lines(engine.partition("orders", number), f"{name}{number}\n")
    for one, number in ((A, 0), (B, 1)):
        (log,) = (one / f"orders-{number}").glob("*.log")
        log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    before = files(A, B)
    for keep in (A, B):
        for more in ((), ("--yes",), ("--save", "lost")):
            ran = topicfs("replicas", "resolve", "--keep", str(keep), BOTH, *more)
            assert (1, before, False) == (ran.status, files(A, B), Path("lost").exists())
            assert b"or keep another directory, or go on with --save FOLDER --yes" in ran.errors
    assert 0 == topicfs(*RESOLVE, "--save", "lost", "--yes").status
    assert b"b0" in Path("lost/orders-0.batch").read_bytes()
    with closing(started(A, B)) as engine:
        engine.catch_up()
        assert ["a1"] == read_lines(engine.partition("orders", 1))


@pytest.mark.parametrize("name", [names.META_PROPERTIES, names.TOPIC_SETTINGS, names.CLEAN_SHUTDOWN])
def test_a_damaged_directory_is_not_given_up_unseen(forked, name):
    """A directory with a damaged small file can be neither kept nor given up; the error says what to repair."""
    if name == names.CLEAN_SHUTDOWN:
        (B / name).unlink()
        (B / name).mkdir()
    else:
        (B / name).write_bytes(b"\xff")
    before = files(A, B)
    ran = forked(*RESOLVE, "--yes")
    assert (1, before) == (ran.status, files(A, B))
    assert name.encode() in ran.errors
    assert b"repair it, or keep another directory" in ran.errors
    ran = forked("replicas", "resolve", "--keep", "b", BOTH, "--yes")
    assert (1, before) == (ran.status, files(A, B))


def test_a_log_that_cannot_be_read_is_not_saved(forked):
    """With --save, a log that cannot be read is an error, because its records would be lost without a copy."""
    (B / "orders-0" / names.PARTITION_METADATA).write_bytes(b"")
    before = files(A, B)
    ran = forked(*RESOLVE, "--yes", "--save", "lost")
    assert (1, before, False) == (ran.status, files(A, B), Path("lost").exists())
    assert b"orders-0: cannot be read: " in ran.errors
    assert b"; repair it, or give it up without --save, or keep another directory" in ran.errors
    assert 0 == forked(*RESOLVE, "--yes").status
    check_resolved()


def test_a_number_that_two_new_disks_got_proves_nothing(topicfs):
    """Two new disks at one path may get the same replica number.

    After the fork of the directories a and c is resolved, the fork of a and b is still found.
    """
    new = Path("c")
    with closing(started(A, B)) as engine:
        engine.create_topic("orders")
        appended(engine, "common")
    for one, other in ((A, B), (B, A)):
        shutil.rmtree(new, ignore_errors=True)
        with closing(started(one, new, left_out=(other,))) as engine:
            appended(engine, f"{one}1")
    assert 0 == topicfs("replicas", "resolve", "--keep", "a", "a,c", "--yes").status
    with pytest.raises(ForkedReplicasError):
        started(A, B, new)
    assert "orders/0: only in" in topicfs("replicas", "resolve", "--keep", "a", "a,b,c").text


def test_a_directory_that_was_not_named_has_forked_still(topicfs):
    """If a directory is not named, its fork remains. Its records are shown before a later command discards them."""
    three = (A, B, Path("c"))
    with closing(started(*three)) as engine:
        engine.create_topic("orders", replicas=3)
    with closing(started(A, left_out=three[1:])) as engine:
        appended(engine, "a")
    with closing(started(*three[1:])) as engine:
        appended(engine, "b")
    assert 0 == topicfs(*RESOLVE, "--yes").status
    with closing(started(A, B)) as engine:
        engine.catch_up()
    with pytest.raises(ForkedReplicasError):
        started(*three)
    ran = topicfs("replicas", "resolve", "--keep", "a", "a,b,c")
    assert [f"orders/0: only in {three[2].absolute()}: 1 records"] == [
        line.partition(",")[0] for line in ran.text.splitlines() if "only in" in line
    ]


def test_a_partition_whose_disk_was_replaced_is_compared_with_what_is_left(topicfs):
    """If no replica is in sync, the kept replica leads by an unclean election, and the other one is truncated."""
    three = three_without_the_leader()
    started(*three, left_out=(B,)).close()
    for one in (A, three[2]):
        with closing(started(one, left_out=three)) as engine:
            engine.create_topic(str(one), replicas=1)
            if one != A:
                engine.elect_unclean(TopicPartition("orders", 0), str(one.absolute()))
                appended(engine, "c")
    ran = topicfs("replicas", "resolve", "--keep", "a", "a,c", "--yes")
    assert (0, True) == (ran.status, f"orders/0: only in {three[2].absolute()}: 1 records" in ran.text)
    with closing(started(*three)) as engine:
        assert {"orders", "a"} == set(engine.topics())
        engine.elect_unclean(TopicPartition("orders", 0), str(three[2].absolute()))
        assert [] == read_lines(engine.partition("orders", 0))


@pytest.mark.parametrize("made", ["to be made", "empty", "begun"])
def test_an_empty_disk_that_is_named_is_not_to_be_brought_back(topicfs, made):
    """`replicas resolve` succeeds if a disk in its list of directories was replaced by an empty one."""
    three = three_without_the_leader()
    for one in (A, three[2]):
        with closing(started(one, left_out=three)) as engine:
            engine.create_topic(str(one), replicas=1)
    if made != "to be made":
        B.mkdir()
    if made == "begun":  # A start that was killed before it informed the other directories.
        known = (A / names.META_PROPERTIES).read_text().splitlines()
        kept = [line for line in known if not line.startswith(("directory.id", "topicfs.set"))]
        (B / names.META_PROPERTIES).write_text("\n".join([*kept, "directory.id=new", ""]))
    assert 1 == topicfs("replicas", "resolve", "--keep", "a", "a,c", "--yes").status
    assert 0 == topicfs("replicas", "resolve", "--keep", "a", "a,b,c", "--yes").status
    with closing(started(*three, left_out=(B,))) as engine:
        assert {"orders", "a"} == set(engine.topics())


def test_a_kept_replica_in_sync_must_be_there(topicfs):
    """If the only in-sync replica is in a directory that is not named, the error asks for this directory."""
    three = (A, B, Path("c"))
    with closing(started(*three)) as engine:
        engine.create_topic("single", replicas=1)
        (number,) = engine.replicated(TopicPartition("single", 0)).state.assigned
        engine.create_topic("orders", replicas=3)
    absent = three[number - 1]
    keep, other = (one for one in three if one != absent)
    with closing(started(other, absent, left_out=(keep,))) as engine:
        engine.set_replicas("single", 2)
        engine.catch_up()
        appended(engine, str(other), topic="single")
    with closing(started(keep, left_out=(other, absent))) as engine:
        appended(engine, str(keep))
    before = files(*three)
    ran = topicfs("replicas", "resolve", "--keep", str(keep), f"{keep},{other}", "--yes")
    assert (1, before) == (ran.status, files(*three))
    assert f"bring back {absent.absolute()} (not named), and name it".encode() in ran.errors


def test_directories_in_use_are_refused(forked):
    """If a directory is in use, the error names the process that uses it."""
    with closing(started(A)):
        ran = forked(*RESOLVE)
    assert_refused(ran, "in use by")


class KilledAfter(NativeFileSystem):
    """The machine's disk, for a process that is killed after a number of changes."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self.changes = changes

    def count(self) -> None:
        if not self.changes:
            os._exit(KILLED)
        self.changes -= 1


def _counted(name: str) -> Callable[..., object]:
    def change(self: KilledAfter, *given: object, **named: object) -> object:
        self.count()
        return getattr(NativeFileSystem, name)(self, *given, **named)

    return change


for _name in ("write_bytes", "rename", "unlink", "sync_directory", "make_directory"):
    setattr(KilledAfter, _name, _counted(_name))


@pytest.mark.parametrize("changes", [*range(0, 36, 2), 1_000])
def test_a_kill_leaves_a_fork_that_the_same_command_resolves(forked, changes):
    """After a kill at any step, a start either still refuses the fork or succeeds. A second run resolves the fork."""
    pid = os.fork()
    if not pid:
        with closing(Resolution([A, B], A)) as resolution:
            resolution.save(Path("lost"))
            resolution.apply(KilledAfter(changes))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, KILLED}
    saved = files(Path("lost"))
    if status == KILLED:
        with suppress(ForkedReplicasError):  # No error if the kill came after the last change.
            started(A, B).close()
        assert 0 == forked(*RESOLVE, "--save", "lost", "--yes").status
    assert (2, saved) == (len(saved), files(Path("lost")))
    check_resolved()
