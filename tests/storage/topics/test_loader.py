"""Which logs are loaded one after the other, and which by threads; and that each is there in the end."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.storage.disk.names import CLEAN_SHUTDOWN
from topicfs.storage.manager import open_engine
from topicfs.storage.topics import loader

NUMBERS = list(range(6))


@pytest.fixture
def data(tmp_path):
    """A data directory, closed in order; each partition holds its own number."""
    with_topic = open_engine(tmp_path)
    for number, partition in with_topic.create_topic("orders", partitions=len(NUMBERS)).partitions().items():
        append_lines(partition, f"{number}\n")
    with_topic.close()
    return tmp_path


@pytest.fixture
def loaded_here(monkeypatch, data) -> Callable[[], list[int]]:
    """Open the directory, check every partition, and tell which of them were loaded by who opened it."""
    here: list[int] = []
    load = loader.load

    def noting(directories, one, warn):
        if threading.current_thread() is threading.main_thread():
            here.append(one.partition.partition)
        return load(directories, one, warn)

    def opening() -> list[int]:
        here.clear()
        engine = open_engine(data)
        partitions = engine.topic("orders").partitions()
        assert [[str(number)] for number in NUMBERS] == [read_lines(partitions[number]) for number in NUMBERS]
        engine.close()
        return here

    monkeypatch.setattr(loader, "load", noting)
    return opening


def test_logs_that_no_disk_is_asked_for_are_loaded_one_after_the_other(monkeypatch, loaded_here):
    """Threads would only wait for each other."""
    monkeypatch.setattr(loader, "_blocks_read", lambda: 7)
    assert NUMBERS == loaded_here()


@pytest.mark.parametrize("near", [1, 3, 6])
def test_behind_the_first_that_a_disk_was_asked_for_threads_load(monkeypatch, loaded_here, near):
    """While one of them waits for the disk another goes on."""
    blocks = itertools.chain([0] * near, itertools.repeat(8))
    monkeypatch.setattr(loader, "_blocks_read", lambda: next(blocks))
    assert NUMBERS[:near] == loaded_here()


def test_logs_to_be_recovered_are_loaded_by_threads(data, loaded_here):
    """Reading them through and checking them is work that can go on side by side."""
    (data / CLEAN_SHUTDOWN).unlink()
    assert [] == loaded_here()


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_looked_for_afterwards_as_it_was_before(loaded_here, collects):
    """Whoever has turned the collector off finds it off."""
    assert gc.isenabled()
    try:
        if not collects:
            gc.disable()
        loaded_here()
        assert collects == gc.isenabled()
    finally:
        gc.enable()


def test_garbage_is_looked_for_again_after_a_failure(monkeypatch, data):
    """An error on the way leaves the collector as it was."""

    def failing(*_):
        raise MemoryError

    monkeypatch.setattr(loader, "load", failing)
    with pytest.raises(MemoryError):
        open_engine(data)
    assert gc.isenabled()
