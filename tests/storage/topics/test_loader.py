"""Tests of which logs the opening thread loads and which logs a pool loads, and that all logs are loaded."""

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
    """A cleanly closed data directory. The record of each partition is the partition's number."""
    with_topic = open_engine(tmp_path)
    for number, partition in with_topic.create_topic("orders", partitions=len(NUMBERS)).partitions().items():
        append_lines(partition, f"{number}\n")
    with_topic.close()
    return tmp_path


@pytest.fixture
def loaded_here(monkeypatch, data) -> Callable[[], list[int]]:
    """Return a function that opens the directory and returns the partitions that the main thread loaded."""
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


def test_cached_logs_are_loaded_by_one_thread(monkeypatch, loaded_here):
    """Logs in the page cache are loaded by one thread, because several threads would only wait for each other."""
    monkeypatch.setattr(loader, "_blocks_read", lambda: 7)
    assert NUMBERS == loaded_here()


@pytest.mark.parametrize("near", [1, 3, 6])
def test_threads_load_after_the_first_disk_read(monkeypatch, loaded_here, near):
    """After the first log that had to be read from the disk, a pool of threads loads the others."""
    blocks = itertools.chain([0] * near, itertools.repeat(8))
    monkeypatch.setattr(loader, "_blocks_read", lambda: next(blocks))
    assert NUMBERS[:near] == loaded_here()


def test_logs_to_be_recovered_are_loaded_by_threads(data, loaded_here):
    """Logs that need recovery are loaded by threads in parallel."""
    (data / CLEAN_SHUTDOWN).unlink()
    assert [] == loaded_here()


@pytest.mark.parametrize("collects", [True, False])
def test_loading_keeps_the_state_of_the_garbage_collector(loaded_here, collects):
    """Loading leaves the garbage collector on or off as it was before."""
    assert gc.isenabled()
    try:
        if not collects:
            gc.disable()
        loaded_here()
        assert collects == gc.isenabled()
    finally:
        gc.enable()


def test_the_garbage_collector_is_on_after_a_failure(monkeypatch, data):
    """If loading fails, the garbage collector is on again."""

    def failing(*_):
        raise MemoryError

    monkeypatch.setattr(loader, "load", failing)
    with pytest.raises(MemoryError):
        open_engine(data)
    assert gc.isenabled()
