"""The short form of the soak test that combines features, and tests of its parts."""

from __future__ import annotations

from random import Random

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import Killed
from tests.soak.crossings.disk import MortalDirectory
from tests.soak.crossings.model import Batch, PartitionModel
from tests.soak.crossings.run import run_seed
from tests.soak.seeds import read_steps, spelled
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_features_that_meet_keep_every_promise(seed: int) -> None:
    """After each random step, records, offsets, producers and lookups by time equal those of the model."""
    failure = run_seed(seed, range(STEPS))
    assert failure is None, failure.report()


@pytest.mark.slow
def test_a_seed_gives_the_same_steps_again() -> None:
    """All choices and results follow from the seed, so that a failure can be repeated."""
    first: list[str] = []
    second: list[str] = []
    run_seed(4, range(STEPS), log=first)
    run_seed(4, range(STEPS), log=second)
    assert first == second


def test_steps_are_read_as_they_are_spelled() -> None:
    """The step numbers in a failure's command are read back unchanged."""
    assert "0-2,5,7-8" == spelled([0, 1, 2, 5, 7, 8])
    assert [0, 1, 2, 5, 7, 8] == read_steps("0-2,5,7-8")


def records(*pairs: tuple[bytes, bytes | None]) -> list[Record]:
    return [Record(Offset(at), Timestamp(1_000), key, value, ()) for at, (key, value) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("shown", "cause"),
    [
        ([0, 1], "offset 2 is missing"),
        ([1, 2], "no compaction can have seen it"),
        ([0, 0, 1, 2], "offset 0 after 0"),
        ([0, 1, 2, 3], "shows offset 3"),
    ],
)
def test_the_model_notices_what_is_wrong(shown: list[int], cause: str) -> None:
    """The model reports a lost, duplicate or invented record."""
    model = PartitionModel("a-0")
    model.place(Batch(records((b"k", b"1"), (b"k", b"2"), (b"l", b"3"))), None)
    every = records((b"k", b"1"), (b"k", b"2"), (b"l", b"3"), (b"m", b"4"))
    with pytest.raises(AssertionError, match=cause):
        model.compare([every[at] for at in shown], 0, 4, Isolation.READ_COMMITTED, active_base=3)


def test_compaction_may_take_all_but_the_newest_of_a_key() -> None:
    """Compaction may remove a record only if its key has a newer record, and a removed record does not come back."""
    model = PartitionModel("a-0")
    every = records((b"k", b"1"), (b"k", b"2"))
    model.place(Batch(every), None)
    for one in model.kept.values():
        one.cleanable = True
    model.compare(every[1:], 0, 2, Isolation.READ_COMMITTED, active_base=2)
    with pytest.raises(AssertionError, match="offset 0 was gone and came back"):
        model.compare(every, 0, 2, Isolation.READ_COMMITTED, active_base=2)
    with pytest.raises(AssertionError, match="offset 1 is missing.*newest of its key"):
        model.compare([], 0, 2, Isolation.READ_COMMITTED, active_base=2)


def test_a_kill_within_a_write_leaves_part_of_it(tmp_path) -> None:
    """A kill within a write leaves a part of the written bytes, and prevents all later changes."""
    disk = MortalDirectory(ManualClock(), Random(1))
    file = disk.open(tmp_path / "file", create=True)
    file.append(b"first")
    disk.steps_left = 0
    with pytest.raises(Killed):
        file.append(b"second")
    content = (tmp_path / "file").read_bytes()
    assert (b"first" + b"second").startswith(content)
    with pytest.raises(Killed):
        disk.unlink(tmp_path / "file")
    assert content == (tmp_path / "file").read_bytes()
