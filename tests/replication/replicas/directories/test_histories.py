"""Tests of starts with some directories of a set, after the directories were used in different combinations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import SeveralDisks, break_disk, opened
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import (
    ReplicaFile,
    read_replica_file,
    write_replica_file,
)
from topicfs.storage.checkpoints.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from topicfs.storage.errors import ForkedReplicasError, MissingReplicasError, StorageError
from topicfs.storage.model import TopicPartition

A, B, C = Path("/a"), Path("/b"), Path("/c")


def two_with(text: str) -> Replicated:
    """Return two cleanly closed directories with a topic that has the lines of `text`."""
    two = with_orders()
    two.append(text)
    two.engine.close()
    return two


def refused(all_of: Replicated, error: type[StorageError], *roots: Path, match: str | None = None) -> None:
    """Assert that a start is refused and changes nothing on any disk."""
    before = all_of.disks.tree()
    with pytest.raises(error, match=match):
        all_of.open(*roots)
    assert before == all_of.disks.tree()


def runs(all_of: Replicated, root: Path) -> list[tuple[int, ...]]:
    """Return the directories of each run (a time of writing to these directories) in `root`'s state file."""
    copy = read_replica_file(all_of.disks, root)
    assert copy is not None
    return [tuple(run.directories) for run in copy.runs]


def unreadable(all_of: Replicated, number: int) -> None:
    break_disk(all_of.disk(number))
    all_of.disk(number).fail("read_bytes", times=1_000_000)


def end_in_order(all_of: Replicated) -> None:
    all_of.engine.close()


def end_by_kill(_: Replicated) -> None:
    pass


@pytest.mark.parametrize("end", [end_in_order, end_by_kill])
@pytest.mark.parametrize("how", ["not named", "not readable"])
def test_a_directory_that_may_have_more_is_not_gone_on_without(
    two: Replicated, end: Callable[[Replicated], None], how: str
) -> None:
    """A start without a directory that may have more records is refused and changes nothing.

    The refusal names the directory and the remedy. With `--without` the start succeeds.
    """
    two.append("a\n")
    end(two)
    if how == "not readable":
        unreadable(two, 2)
    remedy = r"^/b \(.*\) may have later records than the other directories, .* topicfs mount --without /b "
    refused(two, MissingReplicasError, *(two.roots if how == "not readable" else two.roots[:1]), match=remedy)
    two.open(A, left_out=(B,))
    assert (["a"], (1,)) == (two.lines(), two.in_sync())
    two.reopen(A)
    assert [(1, 2), (1,), (1,)] == runs(two, A)


def test_two_disks_that_were_used_alone_are_a_fork() -> None:
    """If each of two disks was used alone, either may have records that the other lacks.

    The start reports both disks as a fork and changes neither.
    """
    two = two_with("common\n")
    two.open(A, left_out=(B,))
    for number in range(20):
        two.append(f"{number}\n")
    two.engine.close()
    for _ in range(4):
        two.open(B, left_out=(A,))
        two.engine.close()
    match = (
        r"^/a and /b were written to independently \(/a last from 2023-11-14 .* on, /b from 2023-.* on\), .*: "
        r"topicfs replicas resolve --keep /a /a,/b$"
    )
    refused(two, ForkedReplicasError, match=match)
    two.open(A)
    assert 21 == len(two.lines())
    two.reopen(B)
    assert ["common"] == two.lines()


def test_a_directory_that_was_away_is_brought_up_to_date() -> None:
    """A directory with an older history gets the records of the other directory."""
    two = two_with("a\n")
    two.open(A, left_out=(B,))
    two.append("b\n")
    two.reopen()
    assert ((1,), ["a", "b"]) == (two.in_sync(), two.lines())
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    two.engine.close()
    assert runs(two, A) == runs(two, B) == [(1, 2), (1,), (1, 2)]
    assert two.files(1) == two.files(2)


def test_a_directory_is_not_written_to_without_the_others() -> None:
    """A directory without the other directories of its set can be read, but not written.

    New records would mix with those of the other directories.
    """
    two = two_with("a\n")
    before = two.disks.tree()
    with pytest.raises(
        StorageError, match=r"^/b: is one of several .* topicfs mount --replicas N /b --without OTHER"
    ):
        opened(two.disks, two.clock, B)
    with closing(opened(two.disks.read_only_view(), two.clock, B)) as engine:
        assert 1 == engine.partition(*ORDERS).offsets().high_watermark
    assert before == two.disks.tree()


def test_reading_needs_no_consent() -> None:
    """Reading with a missing directory needs no consent. A warning names the missing directory."""
    two = two_with("a\n")
    two.open(A, read_only=True)
    assert ["a"] == two.lines()
    assert ["/b (not named) may have later records than the other directories, and is not available"] == [
        line for line in two.engine.warnings if "/b" in line
    ]


@pytest.mark.parametrize("there", [*combinations((A, B, C), 2), *combinations((A, B, C), 1)])
def test_more_than_half_of_three_serve_without_consent(three: Replicated, there: tuple[Path, ...]) -> None:
    """Two of three directories serve without consent: at least one of any two has the newest state.

    A single directory needs consent.
    """
    three.append("a\n")
    three.engine.close()
    if len(there) == 1:
        refused(three, MissingReplicasError, *there)
        return
    three.open(*there)
    three.append("b\n")
    three.engine.close()
    for pair in combinations((A, B, C), 2):
        three.open(*pair)
        three.engine.catch_up()
        assert ["a", "b"] == three.lines()
        three.engine.close()
    three.open()
    three.engine.catch_up()
    assert (["a", "b"], (1, 2, 3)) == (three.lines(), three.in_sync())
    three.engine.close()
    assert three.files(1) == three.files(2) == three.files(3)


def test_a_fork_of_two_against_one_is_refused(three: Replicated) -> None:
    """If one of three directories served alone by consent, and later the other two served, a start is refused.

    Such histories are a fork.
    """
    three.engine.close()
    three.open(A, left_out=(B, C))
    three.append("a\n")
    three.engine.close()
    three.open(B, C)
    three.append("b\n")
    three.engine.close()
    refused(three, ForkedReplicasError, match="^/a and /b were written to independently")
    refused(three, ForkedReplicasError, A, C, match="^/a and /c were written to independently")


def test_a_directory_that_returns_having_forked_stays_away() -> None:
    """A directory that was written apart from the others stays out of service. The others keep acknowledged records."""
    two = two_with("a\n")
    elsewhere = two.disks.tree()
    two.open(B, left_out=(A,))
    two.append("b\n")
    two.engine.close()
    forked = {name: data for name, data in two.disks.tree().items() if name.startswith("/b/")}
    assert elsewhere != two.disks.tree()
    unreadable(two, 2)
    two.open(A, B, left_out=(B,))
    two.append("c\n")
    two.bring_back(2)
    assert (["a", "c"], (1,)) == (two.lines(), two.in_sync())
    (_, status) = two.engine.directories()
    assert status.offline is not None
    assert status.offline.startswith("/b and /a were written to independently")
    assert any("/b and /a were written to independently" in line for line in two.engine.warnings)
    two.engine.close()
    assert forked == {name: data for name, data in two.disks.tree().items() if name.startswith("/b/")}
    refused(two, ForkedReplicasError)


class KilledError(BaseException):
    """Raised to simulate the end of the process."""


def killed(
    all_of: Replicated, monkeypatch: pytest.MonkeyPatch, writes: int, act: Callable[[], object]
) -> None:
    """Kill the process after `writes` copies of the state file were written."""
    left, write = writes, ReplicaDirectory.write
    kept: list[SeveralDisks] = []

    def write_or_die(replica_dir: ReplicaDirectory, content: ReplicaFile) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            kept.append(deepcopy(all_of.disks))
            raise KilledError
        write(replica_dir, content)

    with monkeypatch.context() as patched, suppress(KilledError):
        patched.setattr(ReplicaDirectory, "write", write_or_die)
        act()
    all_of.disks = kept[0] if kept else all_of.disks


@pytest.mark.parametrize("alone", [A, B])
@pytest.mark.parametrize("returned", [None, A, B])
@pytest.mark.parametrize("writes", range(4))
def test_a_kill_between_the_copies_of_a_write_forks_nothing(
    alone: Path, returned: Path | None, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run counts only after all its directories have recorded it.

    If one directory then serves alone, the other is an older copy, and not a fork. The test kills the process in two
    successive starts, between which both directories or only one of them served.
    """
    two = two_with("a\n")
    lines = ["a"]
    if returned is not None:
        two.open(*{A, B} - {returned}, left_out=(returned,))
        two.append("b\n")
        two.engine.close()
        lines.append("b")
    for _ in range(2):
        killed(two, monkeypatch, writes, two.open)
    if returned in (None, alone):
        refused(two, MissingReplicasError, alone)
    if returned != alone:
        two.open(alone, left_out=(A, B))
        two.append("c\n")
        two.engine.close()
        lines.append("c")
    two.open()
    two.engine.catch_up()
    assert (lines, (1, 2)) == (two.lines(), two.in_sync())
    two.engine.close()
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("writes", range(7))
def test_a_kill_while_a_set_is_made_loses_no_topic(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories used without replicas are adopted either all together or not at all."""
    two = Replicated()
    two.engine.close()
    two.make_disks()
    for root in two.roots:
        with closing(opened(two.disks, two.clock, root)) as engine:
            for number in range(2):
                engine.create_topic(f"{root.name}{number}")
                append_lines(engine.partition(f"{root.name}{number}", 0), "x\n")
    killed(two, monkeypatch, writes, two.open)
    two.open()
    assert {"a0": ["x"], "a1": ["x"], "b0": ["x"], "b1": ["x"]} == {
        name: two.lines(TopicPartition(name, 0)) for name in two.engine.topics()
    }


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
def test_a_directory_that_fails_while_it_records_a_run_forks_nothing(
    three: Replicated, operation: str
) -> None:
    """A directory that fails while it records a run has the older history, even if the record reached its disk."""
    break_disk(three.disk(3))
    suffix = "/b" if operation == "sync_directory" else "topicfs.replicas.tmp"
    three.disk(2).fail(operation, times=1_000_000, suffix=suffix, after=1)
    three.engine.put_group_overrides("g", {"commit": "manual"})
    assert [(1, 2, 3), *([(1, 2)] if operation == "sync_directory" else [])] == runs(three, B)
    assert [(1, 2, 3), (1, 2), (1,)] == runs(three, A)
    three.append("a\n")
    three.disk(3).heal()
    three.bring_back(2)
    assert (1, 2, 3) == three.in_sync()
    three.reopen()
    assert (["a"], (1, 2, 3)) == (three.lines(), three.in_sync())


def test_a_failure_of_all_directories_forks_nothing(two: Replicated) -> None:
    """After both directories failed, they serve only when both are back; then they have all acknowledged records."""
    two.append("a\n")
    break_disk(two.disk(1))
    two.append("b\n")
    break_disk(two.disk(2))
    with pytest.raises((OSError, StorageError)):
        two.append("c\n")
    two.bring_back(1)
    assert two.leader() is None
    two.bring_back(2)
    two.engine.catch_up()
    assert (["a", "b"], (1, 2)) == (two.lines()[:2], two.in_sync())
    two.reopen()
    assert (1, 2) == two.in_sync()


def test_leader_epochs_never_repeat() -> None:
    """Each run, with either directory or with both, begins in a new leader epoch."""
    two = two_with("a\n")
    epochs = []
    for roots in ((A,), (A, B), (A,), (A, B), (A, B)):
        two.open(*roots, left_out=tuple({A, B} - set(roots)))
        two.append("b\n")
        two.engine.catch_up()
        epochs.append(two.partition().state.leader_epoch)
        two.engine.close()
    assert sorted(set(epochs)) == epochs


def test_sets_are_not_mixed() -> None:
    """A start refuses a directory of another set, and refuses to use a directory together with a copy of it."""
    two = two_with("a\n")
    copy = read_replica_file(two.disks, B)
    assert copy is not None
    write_replica_file(two.disks, B, replace(copy, set_id="other"))
    refused(two, StorageError, match="^/b: belongs to another set of replicas than /a$")
    write_replica_file(two.disks, B, copy)
    two.disks.write_bytes(B / "meta.properties", two.disks.read_bytes(A / "meta.properties"))
    refused(two, StorageError, match="^/b: is the same directory as /a, or a copy of it; name one of them$")


def test_an_empty_disk_in_the_place_of_one_needs_consent() -> None:
    """If an empty disk is in a directory's place, a start needs consent for this path.

    The lost disk may have had more records.
    """
    two = two_with("a\n")
    two.replace_disk(2)
    refused(two, MissingReplicasError, match=r"^/b \(another disk\) may have later records")
    two.open(left_out=(B,))
    two.engine.catch_up()
    assert (["a"], (1, 3)) == (two.lines(), two.in_sync())


def test_an_empty_disk_that_a_start_began_to_fill_is_not_the_lost_one() -> None:
    """If a killed start has begun to initialize an empty disk, the disk still needs consent, like a lost disk.

    The older copy does not change.
    """
    two = two_with("a\n")
    two.open(B, left_out=(A,))
    two.append("b\n")
    two.engine.close()
    two.replace_disk(2)
    two.disks.make_directory(B)
    for name in (".lock", "meta.properties.tmp"):
        two.disks.write_bytes(B / name, b"version=1\n")
    before = two.files(1)
    refused(two, MissingReplicasError, match=r"^/b \(another disk\) may have later records")
    two.open(left_out=(B,))
    two.engine.catch_up()
    assert before == two.files(1)


def test_only_a_start_that_fills_an_empty_disk_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Only a start that fills an empty disk logs that it does. A refused or read-only start fills no disk."""
    two = two_with("a\n")
    two.replace_disk(2)
    refused(two, MissingReplicasError)
    two.open(read_only=True).close()
    line = "/b: another, empty disk; its replicas are copied again"
    assert [] == [one for one in caplog.messages if line in one]
    two.open(left_out=(B,))
    assert [line] == [one for one in caplog.messages if line in one]
    assert line in two.engine.warnings


def test_a_directory_without_its_state_file_counts_as_unreadable() -> None:
    """A directory without its state file counts as unreadable: its history is unknown, so the start needs consent."""
    two = two_with("a\n")
    two.open()
    two.engine.close()
    two.disks.unlink(B / "topicfs.replicas")
    refused(two, MissingReplicasError, match=r"^/b \(/b/topicfs.replicas: is missing\) may have later")
    two.open(left_out=(B,))
    assert (["a"], (1,)) == (two.lines(), two.in_sync())


def test_a_directory_without_its_state_file_is_read_but_not_written() -> None:
    """A directory without its state file can be read alone, because meta.properties names the set.

    A write needs consent, and forks the set.
    """
    two = two_with("a\n")
    set_id = read_replica_file(two.disks, B).set_id  # type: ignore[union-attr]
    assert f"\ntopicfs.set={set_id}\n".encode() in two.disks.read_bytes(B / "meta.properties")
    two.disks.unlink(B / "topicfs.replicas")
    with pytest.raises(StorageError, match="^/b: is one of several directories with replicas"):
        opened(two.disks, two.clock, B)
    remedy = (
        r"^/b: /b/topicfs.replicas: is missing; also name .* topicfs mount --replicas N /b --without OTHER …$"
    )
    refused(two, StorageError, B, match=remedy)
    with closing(opened(two.disks.read_only_view(), two.clock, B)) as engine:
        assert 1 == engine.partition(*ORDERS).offsets().high_watermark
    two.open(B, left_out=(A,))
    two.append("b\n")
    assert ["a", "b"] == two.lines()
    two.engine.close()
    refused(two, ForkedReplicasError)


def test_a_directory_without_the_mark_of_its_set_gets_the_mark() -> None:
    """If the meta.properties of a directory lacks the mark of the set, a start adds the mark.

    An earlier version wrote no mark, and a broker that rewrites meta.properties removes the mark.
    """
    two = two_with("a\n")
    marked = meta_properties(two, B)
    unmarked = marked._replace(set_id=None)
    write_meta_properties(two.disks, B, unmarked, written_at=two.clock())
    two.open()
    assert (["a"], (1, 2), marked) == (two.lines(), two.in_sync(), meta_properties(two, B))


def meta_properties(all_of: Replicated, root: Path) -> MetaProperties:
    """Return the meta.properties of directory `root`."""
    found = read_meta_properties(all_of.disks, root)
    assert found is not None
    return found


def test_a_replaced_disk_gets_its_replicas_again_after_an_unclean_election() -> None:
    """If a lost disk had the last records, its replica stays assigned.

    After another replica is elected, the replica on the new disk is filled.
    """
    two = two_with("a\n")
    two.open(B, left_out=(A,))
    two.append("b\n")
    two.reopen()
    assert (2,) == two.in_sync()
    two.engine.close()
    two.replace_disk(2)
    two.disks.make_directory(B)
    two.open(left_out=(B,))
    two.engine.elect_unclean(ORDERS, str(A))
    two.engine.catch_up()
    state = two.engine.replicated(ORDERS).state
    assert (["a"], (1, 3), (1, 3)) == (two.lines(), state.assigned, state.in_sync)
