"""Every benchmark by name: the one table. A module is imported when its benchmark is asked for."""

from __future__ import annotations

import importlib

from benchmarks.frame.question import Benchmark

MODULES: dict[str, str] = {
    "echo": "mount.echo",
    "append": "mount.append",
    "bulk": "mount.bulk",
    "stream": "mount.stream",
    "compressed": "mount.compressed",
    "lookup": "mount.lookup",
    "follow": "mount.follow",
    "codec": "engine.codec",
    "recovery": "engine.recovery",
    "compaction": "engine.compaction",
    "start": "engine.start",
    "shell": "peers.shell",
    "consumers": "peers.consumers",
    "spark": "spark.queries",
}
"""Name on the command line, and the module whose BENCHMARK it is; they run in this order."""


def load(name: str) -> Benchmark:
    """Import one benchmark. Raises ImportError where what it measures against is not installed."""
    benchmark = importlib.import_module(f"benchmarks.{MODULES[name]}").BENCHMARK
    assert isinstance(benchmark, Benchmark)
    assert benchmark.name == name
    return benchmark
