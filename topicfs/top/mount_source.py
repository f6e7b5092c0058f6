"""Samples of a mount: its `@metrics`, read in one piece, and the programs that have the mount's files open."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.fusefs.processes.visible import PROC, VisibleProcess, processes
from topicfs.top.samples import ClientSample, DiskSample, PartitionSample, TopicSample, TopSample

GROUPS = ("@groups", "@queues")

Series = dict[str, dict[tuple[str, ...], float]]
"""For each metric, its value for each tuple of label values. The tuple follows the order of the labels' names."""


class OpenFile(NamedTuple):
    """A file in a mount that a program has open."""

    program: str
    """Program name and process ID, such as `cat (4711)`."""
    topics: tuple[str, ...]
    writes: bool


def open_files(mountpoint: Path, proc: Path = PROC) -> Iterator[OpenFile]:
    """Yield the open files of topics in a mount. A file that a program has open twice is yielded twice."""
    prefix = f"{mountpoint}/"
    for process in processes(proc):
        with suppress(OSError):
            for descriptor, path in process.open_files():
                if path.startswith(prefix):
                    with suppress(OSError):
                        yield from _opened(process, descriptor, path[len(prefix) :])


def _opened(process: VisibleProcess, descriptor: str, path: str) -> Iterator[OpenFile]:
    names = path.split("/")
    of_group = names[0] in GROUPS and len(names) > 3
    topics = tuple(names[2].split(",")) if of_group else (names[0],)
    if topics[0].startswith("@") or len(names) < 2:
        return
    writes = not of_group and process.flags(descriptor) & os.O_ACCMODE != os.O_RDONLY
    yield OpenFile(str(process), topics, writes)


class MountSource:
    """Samples a mount. See `topicfs.top.samples.TopSource`."""

    def __init__(self, mountpoint: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = str(mountpoint)
        self._mountpoint = mountpoint.absolute()
        self._clock = clock

    def sample(self) -> TopSample:
        at = self._clock()
        series = parse_metrics((self._mountpoint / "@metrics").read_bytes().decode())
        lags: dict[str, dict[str, int]] = defaultdict(dict)
        for (group, topic), lag in series["topicfs_group_lag_records"].items():
            lags[topic][group] = int(lag)
        readers: dict[str, set[str]] = defaultdict(set)
        writers: dict[str, set[str]] = defaultdict(set)
        for one in open_files(self._mountpoint):
            for topic in one.topics:
                (writers if one.writes else readers)[topic].add(one.program)
        sizes = series["topicfs_directory_size_bytes"]
        free = series["topicfs_directory_free_bytes"]
        return TopSample(
            at=at,
            topics={
                name: _topic(series, name, lags[name], readers=readers[name], writers=writers[name])
                for (name,) in series["topicfs_topic_partitions"]
            },
            disks=[
                DiskSample(path=path, free_bytes=int(free.get((path,), 0)), size_bytes=int(size))
                for (path,), size in sizes.items()
            ],
            notes=self._notes(),
            clients=[_client(series, *name) for name in series["topicfs_client_requests_total"]],
            connections=next(map(int, series["topicfs_listener_connections"].values()), None),
        )

    def _notes(self) -> list[str]:
        with suppress(OSError):
            lines = (self._mountpoint / "@status").read_text().splitlines()
            return [line for line in lines if line.startswith(("warning ", "doing "))]
        return []

    def partitions(self, topic: str) -> list[PartitionSample]:
        lines = map(str.split, (self._mountpoint / topic / "status").read_text().splitlines())
        return [
            PartitionSample(
                number=int(words[1]),
                start_offset=int(words[3]),
                end_offset=int(words[5]),
                state=" ".join(words[7:]),
            )
            for words in lines
            if words[0] == "partition"
        ]


def _topic(
    series: Series, name: str, lags: dict[str, int], *, readers: set[str], writers: set[str]
) -> TopicSample:
    def of(metric: str) -> int | None:
        value = series[metric].get((name,))
        return None if value is None else int(value)

    return TopicSample(
        partitions=of("topicfs_topic_partitions") or 0,
        records=of("topicfs_topic_records") or 0,
        end_offsets=of("topicfs_topic_end_offsets"),
        log_bytes=of("topicfs_topic_log_bytes"),
        appended_records=of("topicfs_appended_records_total") or 0,
        appended_bytes=of("topicfs_appended_bytes_total") or 0,
        lags=lags,
        offline=of("topicfs_topic_offline_partitions") or 0,
        readers=tuple(sorted(readers)),
        writers=tuple(sorted(writers)),
    )


def _client(series: Series, client: str, software: str) -> ClientSample:
    def of(metric: str) -> int:
        return int(series[f"topicfs_client_{metric}"].get((client, software), 0))

    return ClientSample(
        client=client,
        software=software,
        connections=of("connections"),
        requests=of("requests_total"),
        errors=of("request_errors_total"),
        received_bytes=of("received_bytes_total"),
        sent_bytes=of("sent_bytes_total"),
    )


def parse_metrics(text: str) -> Series:
    """Parse Prometheus' text format, as the daemon writes it."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Series = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if "le" not in one.labels:
                found[one.name][tuple(one.labels[label] for label in sorted(one.labels))] = one.value
    return found
