"""The parts of an engine that are made when something needs them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

from storage.manager import open_engine
from storage.manager.made_once import MadeOnce, end_all, make_all


class Part:
    def __init__(self) -> None:
        self.ended = 0

    def stop(self) -> None:
        self.ended += 1


class Owner:
    def __init__(self) -> None:
        self.made: list[Part] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    @MadeOnce
    def part(self) -> Part:
        self.begun.set()
        assert self.go_on.wait(60)
        self.made.append(Part())
        return self.made[-1]


def test_two_threads_get_the_same_part():
    """The second waits until the first has made it."""
    owner, found = Owner(), []
    threads = [threading.Thread(target=lambda: found.append(owner.part)) for _ in range(2)]
    threads[0].start()
    assert owner.begun.wait(60)
    threads[1].start()
    owner.go_on.set()
    for thread in threads:
        thread.join()
    assert [owner.made[0]] * 2 == found
    assert 1 == len(owner.made)


def test_the_end_stops_what_was_made_and_makes_nothing():
    """Once each."""
    owner = Owner()
    end_all(owner)
    assert [] == owner.made
    owner.go_on.set()
    make_all(owner)
    end_all(owner)
    assert [1] == [part.ended for part in owner.made]


def test_a_reader_makes_what_it_is_asked_for(tmp_path: Path):
    """An engine that writes makes its groups, queues and duties at the start; one that reads makes none by itself."""
    parts = {"groups", "share_groups", "_staged", "_cleaner", "scrubber"}
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("orders")
        assert parts <= vars(engine).keys()
    with closing(open_engine(tmp_path / "data", read_only=True)) as reader:
        assert not parts & vars(reader).keys()
        assert [] == list(reader.groups.listed())
        assert {"groups"} == parts & vars(reader).keys()
