"""Tests of the registry file of named producers, which several objects write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import producers_of
from topicfs.storage.idempotence.registry import InputProgress
from topicfs.storage.model import ProducerId


def test_writers_of_one_engine_keep_what_the_others_store(tmp_path):
    """A write to the registry keeps the entries that other open files of `@producers` wrote."""
    engine = open_engine(tmp_path)
    names = [[f"{writer} {number}" for number in range(5)] for writer in range(2)]

    def put(writer: list[str]) -> None:
        registry = producers_of(engine)
        for name in writer:
            registry.put(name, "lines > orders/log@id", InputProgress(ProducerId(1), 0))

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(put, names))
    assert {*names[0], *names[1]} == {name for name, _ in producers_of(engine).read()}
    engine.close()
