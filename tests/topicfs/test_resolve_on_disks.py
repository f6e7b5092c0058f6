"""Tests of `topicfs replicas resolve` for many kinds of forks, and on disks that are full, read-only or dead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.records import produced
from tests.doubles.small_disk import fill, run, small_disk
from tests.fusefs.mounted.replica_disks import bring_back, shut_down
from tests.topicfs.conftest import Ran
from topicfs.coordination.membership import Position
from topicfs.replication import open_engine
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import ForkedReplicasError, StorageError
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.root

ORDERS = TopicPartition("orders", 0)
Act = Callable[[ReplicatedEngine], object]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Three ext4 file systems of 16 MB."""
    with ExitStack() as stack:
        made = []
        for name in "abc":
            (tmp_path / name).mkdir()
            made.append(stack.enter_context(small_disk(tmp_path / name, kind="ext4", size_mb=16)))
        yield made


def started(*directories: Path, left_out: tuple[Path, ...] = ()) -> ReplicatedEngine:
    config = EngineConfig(replication_factor=len({*directories, *left_out}))
    return open_replicas(directories, config=config, left_out=left_out, in_background=False)


def appending(*lines: str) -> Act:
    return lambda engine: append_lines(engine.partition(*ORDERS), "".join(f"{line}\n" for line in lines))


def forked(disks: list[Path], *branches: Act) -> list[Path]:
    """Return forked directories: after a common record, each of `branches` has written to one directory alone."""
    places = [disk / "data" for disk in disks[: len(branches)]]
    with closing(started(*places)) as engine:
        engine.create_topic("orders")
        appending("common")(engine)
        committing(0)(engine)
    for place, act in zip(places, branches, strict=True):
        others = tuple(one for one in places if one != place)
        with closing(started(place, left_out=others)) as engine:
            act(engine)
    with pytest.raises(ForkedReplicasError):
        started(*places)
    return places


def resolving(places: list[Path], *options: str) -> tuple[str, ...]:
    return ("replicas", "resolve", "--keep", str(places[0]), named(places), *options)


def named(places: list[Path]) -> str:
    return ",".join(map(str, places))


def assert_named(ran: Ran, place: Path, cause: str) -> None:
    """Check that the last line on standard error names file, cause and remedy."""
    remedy = (
        "the fork is not resolved yet; repair the disk or free space on it, and run the same command again"
    )
    assert re.fullmatch(rf"topicfs: {place}/\S+: {cause}; {remedy}", ran.errors.decode().splitlines()[-1])


def lines(places: list[Path]) -> list[str]:
    """Return the topic's lines after its replicas are in sync."""
    with closing(started(*places)) as engine:
        engine.catch_up()
        state = engine.replicated(ORDERS).state
        assert set(state.assigned) == set(state.in_sync)
        return read_lines(engine.partition(*ORDERS))


def test_a_fork_is_refused_by_the_names_of_its_directories(disks: list[Path]) -> None:
    """If directories were written to independently, a start is refused, and the error names the directories.

    Opening only one of these directories for writing is refused as well.
    """
    places = forked(disks, appending(*map(str, range(200))), lambda _: None)
    for number in range(3):
        with closing(started(places[1], left_out=(places[0],))) as engine:
            appending(f"b{number}")(engine)
    with pytest.raises(
        ForkedReplicasError, match=f"^{places[0]} and {places[1]} were written to independently"
    ):
        started(*places)
    for place in places:
        with pytest.raises(StorageError, match="cannot be written to alone"):
            open_engine(place)


@pytest.mark.parametrize("full", [0, 1, 2])
def test_a_full_disk_is_tried_again(topicfs, disks: list[Path], full: int) -> None:
    """If a disk is full, the fork remains, and a second run of the command resolves it once there is space."""
    places = forked(disks, appending("a"), appending(*("b" * 1000 for _ in range(300))))
    fill(disks[full])
    command = resolving(places, "--yes", "--save", str(disks[2] / "saved"))
    ran = topicfs(*command)
    if ran.status:
        assert_named(ran, disks[full], "No space left on device")
        with pytest.raises(ForkedReplicasError):
            started(*places)
    (disks[full] / "filler").unlink()
    assert 0 == topicfs(*command).status
    assert ["common", "a"] == lines(places)


@pytest.mark.parametrize("how", ["read-only", "dead"])
def test_a_disk_that_takes_nothing_changes_nothing(topicfs, disks: list[Path], how: str) -> None:
    """If a disk is read-only or dead, the kept directory is unchanged; once the disk is back, a second run succeeds."""
    places = forked(disks, appending("a"), appending("b"))
    before = {path: path.read_bytes() for path in places[0].rglob("*") if path.is_file()}
    if how == "dead":
        shut_down(disks[1])
    else:
        run("mount", "-o", "remount,ro", str(disks[1]))
    ran = topicfs(*resolving(places, "--yes"))
    assert 1 == ran.status
    if how == "read-only":
        assert_named(ran, places[1], "Read-only file system")
    assert before == {path: path.read_bytes() for path in places[0].rglob("*") if path.is_file()}
    if how == "dead":
        bring_back(disks[1], disks[1].parent / "image")
    else:
        run("mount", "-o", "remount,rw", str(disks[1]))
    assert 0 == topicfs(*resolving(places, "--yes")).status
    assert ["common", "a"] == lines(places)


def test_two_directories_can_be_given_up_and_their_records_appended(topicfs, disks: list[Path]) -> None:
    """One command gives up two directories, and the saved records of both directories can be appended."""
    places = forked(disks, appending("a"), appending("b1", "b2"), appending("c"))
    saved = disks[0] / "saved"
    assert 0 == topicfs(*resolving(places, "--yes", "--save", str(saved))).status
    assert ["common", "a"] == lines(places)
    for file in sorted(saved.iterdir()):
        ran = topicfs("append", "orders/0/log.batch", "--data", named(places), stdin=file.read_bytes())
        assert 0 == ran.status
    assert ["common", "a", "b1", "b2", "c"] == lines(places)


def test_positions_of_groups_are_those_that_are_kept(topicfs, disks: list[Path]) -> None:
    """The groups' positions after the resolution are those in the kept directory."""
    places = forked(disks, committing(1), lambda engine: (appending("b")(engine), committing(2)(engine)))
    assert 0 == topicfs(*resolving(places, "--yes")).status
    assert ["common"] == lines(places)
    for there in (places, places[1:]):
        with closing(started(*there, left_out=tuple(places[:1]))) as engine:
            positions = engine.groups.positions("g").committed
            assert {ORDERS: 1} == {place: one.offset for place, one in positions.items()}


def made_again(*added: str) -> Act:
    def act(engine: ReplicatedEngine) -> None:
        engine.delete_topic("orders")
        engine.create_topic("orders", replicas=1)
        appending(*added)(engine)

    return act


def deleting(before: int, *added: str) -> Act:
    def act(engine: ReplicatedEngine) -> None:
        appending(*added)(engine)
        engine.partition(*ORDERS).delete_records(Offset(before))

    return act


def committing(offset: int) -> Act:
    return lambda engine: engine.groups.set_positions("g", {ORDERS: Position(offset)})


def in_a_transaction(engine: ReplicatedEngine) -> None:
    engine.partition(*ORDERS).append(produced(b"open", txn=True))


@pytest.mark.parametrize(
    ("kept", "lost", "expected", "restored"),
    [
        (made_again("a"), made_again("b1", "b2"), ["a"], ["a", "b1", "b2"]),
        (appending("a"), made_again("b"), ["common", "a"], ["common", "a", "b"]),
        (made_again("a"), appending("b"), ["a"], ["a", "common", "b"]),
        (deleting(2, "a1", "a2"), appending("b"), ["a2"], ["a2", "common", "b"]),
        (appending("a"), deleting(2, "b1", "b2"), ["common", "a"], ["common", "a", "b1", "b2"]),
        (appending("a"), in_a_transaction, ["common", "a"], ["common", "a", "open"]),
    ],
)
def test_what_two_branches_did_to_one_topic(
    topicfs, disks: list[Path], kept: Act, lost: Act, expected: list[str], restored: list[str]
) -> None:
    """If several branches changed one topic, the records of the kept branch remain.

    The saved records of the other branches can be appended.
    """
    places = forked(disks, kept, lost)
    saved = disks[2] / "saved"
    assert 0 == topicfs(*resolving(places, "--yes", "--save", str(saved))).status
    assert expected == lines(places)
    batches = (saved / "orders-0.batch").read_bytes()
    assert 0 == topicfs("append", "orders/0/log.batch", "--data", named(places), stdin=batches).status
    assert restored == lines(places)
    with closing(started(*places)) as engine:
        offsets = engine.partition(*ORDERS).offsets()
        assert offsets.log_end_offset == offsets.last_stable_offset
