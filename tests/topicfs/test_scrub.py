"""Tests of `topicfs scrub`: its findings, repairs and output."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.topicfs.conftest import BOTH, assert_refused
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.disk.names import SCRUB

LOG = Path("orders-0") / f"{0:020}.log"


def flip(path: Path, at: int = -1) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_nothing_is_damaged(replicated):
    """If nothing is damaged, the status is 0, and the summary says so."""
    ran = replicated("scrub", BOTH)
    assert (0, b"") == (ran.status, ran.output)
    assert b"0 batches and 0 files healed, nothing damaged left" in ran.errors
    assert Path("a", SCRUB).exists()


@pytest.mark.parametrize("name", ["a", "b"])
def test_damage_in_one_directory_is_repaired_from_the_other(replicated, name):
    """Damage in one directory is repaired from the other and reported in one line. Then `check` finds nothing."""
    flip(name / LOG)
    ran = replicated("scrub", BOTH)
    assert 0 == ran.status
    assert f"{name}/{LOG}: position 0: checksum" in ran.text
    assert "(healed from " in ran.text
    assert Path("a", LOG).read_bytes() == Path("b", LOG).read_bytes()
    assert 0 == replicated("check", BOTH).status


def test_damage_in_all_replicas_stays(replicated):
    """Damage in all replicas is left as it is, with exit status 1."""
    for name in ("a", "b"):
        flip(name / LOG)
    ran = replicated("scrub", BOTH)
    assert (1, 2) == (ran.status, len(ran.output.splitlines()))
    assert b"2 damaged left" in ran.errors


def test_a_partition_that_is_offline_is_left(topicfs):
    """An offline partition is reported with exit status 1, because its records cannot be read."""
    topicfs("topics", "create", "orders", "--data", "a")
    Path("a/orders-0/leader-epoch-checkpoint").write_text("rubbish\n")
    ran = topicfs("scrub", "a")
    assert ran.text.startswith("a/orders-0: offline")
    assert_refused(ran, "1 damaged left")


def test_a_scrub_asks_for_all_directories(replicated):
    """If only one of the replica directories is named, nothing is scrubbed, and the error asks for all directories."""
    flip("a" / LOG)
    assert_refused(replicated("scrub", "a"), "bring back its disk and name all directories")


def test_programs_get_one_object(replicated):
    """The option --json prints one object that contains the findings and the counts."""
    flip("b" / LOG)
    ran = replicated("scrub", BOTH, "--json")
    told = json.loads(ran.output)
    assert (0, 1, 0, 0) == (ran.status, told["batches_healed"], told["files_healed"], told["damaged"])
    (found,) = told["findings"]
    assert ("b", 0, "a") == (
        Path(found["file"]).parent.parent.name,
        found["position"],
        Path(found["healed_from"]).name,
    )


def interrupt(**found: object) -> None:
    """Store in both directories the position of a scrub that was interrupted after all partitions of the test."""
    position = {"version": 1, "began": 1, "ended": None, "partition": "zebras-0", "offset": 0, "whole": True}
    for name in ("a", "b"):
        Path(name, SCRUB).write_text(json.dumps(position | found))


def test_an_interrupted_scrub_goes_on_and_restart_begins_again(replicated):
    """An interrupted scrub continues at the position that the data directory stores; --restart begins again."""
    interrupt()
    assert b"0 bytes read" in replicated("scrub", BOTH).errors
    interrupt()
    assert b"0 bytes read" not in replicated("scrub", BOTH, "--restart").errors


def test_what_was_found_before_an_interruption_counts(replicated):
    """Damage that a scrub found before it was interrupted counts for the exit status of the run that continues."""
    interrupt(damaged=3)
    assert_refused(replicated("scrub", BOTH), "3 damaged left, 0 bytes read")


def test_a_scrub_that_skipped_partitions_is_not_continued(replicated):
    """A daemon's scrub that skipped partitions is not continued: the command scrubs all partitions from the start."""
    interrupt(whole=False)
    assert b"0 bytes read" not in replicated("scrub", BOTH).errors


def test_directories_that_somebody_owns_are_left_to_their_owner(replicated):
    """Directories that a daemon owns are refused, and the error has the command for the daemon's mount."""
    with closing(open_replicas([Path("a"), Path("b")], in_background=False)):
        ran = replicated("scrub", BOTH)
    assert_refused(ran, "topicfs scrub MOUNTPOINT")
