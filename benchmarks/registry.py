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
    "clients": "mount.clients",
    "follow": "mount.follow",
    "followers": "mount.followers",
    "replicas": "mount.replicas",
    "memory": "mount.memory",
    "growth": "mount.growth",
    "loops": "mount.loops",
    "codec": "engine.codec",
    "recovery": "engine.recovery",
    "compaction": "engine.compaction",
    "opening": "engine.opening",
    "start": "engine.start",
    "scrub": "engine.scrub",
    "shell": "peers.shell",
    "groups": "peers.groups",
    "consumers": "peers.consumers",
    "cluster": "peers.cluster",
    "cluster-growth": "peers.cluster_growth",
    "spark": "spark.queries",
}
"""Name on the command line, and the module whose BENCHMARK it is; they run in this order."""


def load(name: str) -> Benchmark:
    """Import one benchmark. Raises ImportError where what it measures against is not installed."""
    benchmark = importlib.import_module(f"benchmarks.{MODULES[name]}").BENCHMARK
    assert isinstance(benchmark, Benchmark)
    assert benchmark.name == name
    return benchmark
