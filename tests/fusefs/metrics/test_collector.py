"""The metrics of an engine and of its mount, as the parser of Prometheus reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.engines import append_lines
from tests.doubles.memory_engine import MemoryEngine
from tests.doubles.mount_client import MountClient, refused
from tests.doubles.stalling_engine import StallingEngine
from tests.doubles.waiting import wait_until
from tests.examples.conftest import ROOT
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Position
from topicfs.fusefs.metrics import engine as engine_metrics
from topicfs.fusefs.metrics import table
from topicfs.fusefs.metrics.collector import MetricsCollector, WatchedMount
from topicfs.fusefs.metrics.scrape import REST_SECONDS, STEPS_PER_CLOCK_CHECK, Pace
from topicfs.fusefs.metrics.table import MAX_WAITING_READS, METRICS, OPEN_FILES, WAITING_READS, MetricKind
from topicfs.fusefs.requests.request_counts import NUMBERS, RequestCounts
from topicfs.listener.address import Endpoint
from topicfs.listener.counts import ClientName, RequestNote, client_name
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.replication import open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.counts.engine_counts import OTHERS
from topicfs.storage.disk.names import CONSUMER_OFFSETS
from topicfs.storage.model import TopicPartition

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = open_engine(tmp_path / "data", config=EngineConfig(offsets_topic_num_partitions=2))
    yield found
    found.close()


def watched(counts: RequestCounts | None = None) -> WatchedMount:
    gauges = {OPEN_FILES: 3, WAITING_READS: 2, MAX_WAITING_READS: 1000}
    return WatchedMount(counts=counts or RequestCounts(), gauges=lambda: gauges, started_ms=1_500)


def samples(text: str) -> Samples:
    """Return each sample by its name and labels, and check that no sample occurs twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in found
            found[key] = one.value
    return found


def scraped(engine: Engine, mount: WatchedMount | None = None) -> Samples:
    return samples(MetricsCollector(engine, mount).text())


def of(found: Samples, metric: table.Metric, **labels: str) -> float | None:
    return found.get((metric.name, tuple(sorted(labels.items()))))


def all_of(found: Samples, *metrics: table.Metric, **labels: str) -> list[float | None]:
    return [of(found, metric, **labels) for metric in metrics]


@pytest.fixture
def listener(engine: Engine) -> Iterator[Listener]:
    with closing(Listener(ListenerOptions(endpoint=Endpoint("127.0.0.1", 0)))) as listener:
        listener.serve(engine, EngineConfig())
        yield listener


def test_every_metric_of_the_table_is_collected_and_no_other(engine: Engine, listener: Listener):
    """The collector's metrics and the table's metrics are the same, with the same kinds, labels and meanings."""
    counts = RequestCounts()
    counts.note(NUMBERS["read"], 5)
    counts.note_error(NUMBERS["read"], 5)
    engine.create_topic("orders")
    engine.groups.create("billing")
    families = {}
    note = RequestNote("Fetch", 5, received_bytes=10, sent_bytes=20, error=1)
    listener.counts.note(ClientName("a", "kcat"), note)
    for one in (engine, StallingEngine()):
        collector = MetricsCollector(one, watched(counts), listener)
        families |= {family.name: family for family in collector.collect()}
    expected = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    assert set(expected) == set(families)
    for name, metric in expected.items():
        family = families[name]
        assert (metric.kind.value, metric.meaning) == (family.type, family.documentation)
        for sample in family.samples:
            assert set(metric.labels) == set(sample.labels) - {"le"}, name


def test_names_follow_prometheus_conventions():
    """Names follow Prometheus' conventions: a prefix, base units, `_total` for counters. Each meaning is a sentence."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"topicfs_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
        assert metric.meaning.endswith(".") or metric.meaning == "1, labeled with the running versions."
        if metric.kind is MetricKind.HISTOGRAM:
            assert metric.name.endswith("_seconds")


def test_the_page_about_watching_has_the_table():
    """docs/watching.md lists each metric with its kind, labels and meaning, in the table's order."""
    text = (ROOT / "docs" / "watching.md").read_text()
    rows = re.findall(r"(?m)^\| `(topicfs_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", text)
    expected = [
        (one.name, one.kind.value, ", ".join(f"`{label}`" for label in one.labels), one.meaning)
        for one in METRICS
    ]
    assert expected == rows


def test_appends_and_how_topics_stand(engine: Engine):
    """Appends, sizes and numbers of partitions are reported for each topic; a scrape opens no partition."""
    partitions = engine.create_topic("orders", partitions=2).partitions()
    append_lines(partitions[0], "a\nb\n")
    append_lines(partitions[1], "c\n")
    found = scraped(engine)
    assert [2, 3, 2] == all_of(found, table.APPENDS, table.RECORDS, table.BATCHES, topic="orders")
    size = sum(partition.summary().log_bytes for partition in partitions.values())
    assert [size, size] == all_of(found, table.APPENDED_BYTES, table.TOPIC_BYTES, topic="orders")
    assert [3, 2] == all_of(found, table.TOPIC_RECORDS, table.TOPIC_PARTITIONS, topic="orders")
    assert [1, 2] == all_of(found, table.TOPICS, table.PARTITIONS)
    assert [2, 0] == all_of(found, table.OPEN_PARTITIONS, table.OFFLINE_PARTITIONS)


def test_a_scrape_opens_no_partition(tmp_path: Path):
    """A scrape counts unopened partitions and leaves them unopened."""
    made = open_engine(tmp_path / "data")
    made.create_topic("orders", partitions=3)
    made.close()
    engine = open_engine(tmp_path / "data", max_opened_at_start=0)
    found = scraped(engine)
    assert (3, 0) == (of(found, table.PARTITIONS), of(found, table.OPEN_PARTITIONS))
    assert [] == list(engine.topic("orders").opened())
    engine.close()


def test_requests_are_histograms_that_end_in_infinity():
    """Histograms of requests are cumulative and in seconds; the last bucket is infinity."""
    counts = RequestCounts()
    for nanoseconds in (100, 1_500, 1_500, 60_000_000_000):
        counts.note(NUMBERS["read"], nanoseconds)
    found = scraped(MemoryEngine(), watched(counts))
    name = table.REQUEST_DURATION.name
    buckets = {
        float(dict(labels)["le"]): value for (key, labels), value in found.items() if key == f"{name}_bucket"
    }
    assert [1, 3] == [buckets[1.024e-06], buckets[2.048e-06]]
    assert [3, 4] == [value for _, value in sorted(buckets.items())][-2:]
    assert list(buckets.values()) == sorted(buckets.values())
    assert 4 == found[f"{name}_count", (("request", "read"),)]
    assert 60.0000031 == pytest.approx(found[f"{name}_sum", (("request", "read"),)], abs=1e-7)


def test_the_state_of_the_mount():
    """The mount's metrics are its start time, open files, waiting reads and their limit."""
    found = scraped(MemoryEngine(), watched())
    assert [1.5, 3] == all_of(found, table.START_TIME, table.OPEN_FILES)
    assert [2, 1000] == all_of(found, table.WAITING_READS, table.MAX_WAITING_READS)


def test_the_lag_of_a_group_is_summed_by_topic(engine: Engine):
    """A group's lag is the sum over the partitions of a topic; a position beyond the end counts as 0."""
    orders = engine.create_topic("orders", partitions=2).partitions()
    for partition in orders.values():
        append_lines(partition, "a\nb\nc\n")
    places = [TopicPartition("orders", number) for number in orders]
    engine.groups.set_positions("billing", {places[0]: Position(1), places[1]: Position(9)})
    found = scraped(engine)
    assert 2 == of(found, table.GROUP_LAG, group="billing", topic="orders")
    assert (1, 0) == (of(found, table.GROUPS), of(found, table.GROUP_MEMBERS))


def test_the_first_scrape_reads_groups_in_the_background(tmp_path: Path):
    """The first scrape starts reading the groups without waiting; if there are no groups, nothing is read."""
    first = open_engine(tmp_path / "data")
    assert {} == first.groups.known_positions()
    assert CONSUMER_OFFSETS not in first.topics()
    append_lines(first.create_topic("orders").partitions()[0], "a\nb\n")
    first.groups.set_positions("billing", {TopicPartition("orders", 0): Position(0)})
    first.close()
    again = open_engine(tmp_path / "data")
    assert of(scraped(again), table.GROUP_LAG, group="billing", topic="orders") in (None, 2)
    wait_until(
        lambda: of(scraped(again), table.GROUP_LAG, group="billing", topic="orders") == 2,
        "the groups are read",
    )
    again.close()
    assert {} != scraped(again)


def test_series_are_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    """The groups with the largest lags have a series each. One more series has the sum of all other groups' lags."""
    monkeypatch.setattr(engine_metrics, "MAX_LAGS", 2)
    append_lines(engine.create_topic("orders").partitions()[0], "a\nb\nc\nd\n")
    for number in range(4):
        engine.groups.set_positions(f"g{number}", {TopicPartition("orders", 0): Position(number)})
    found = scraped(engine)
    lags = {
        dict(labels)["group"]: value
        for (name, labels), value in found.items()
        if name == table.GROUP_LAG.name
    }
    assert {"g0": 4, "g1": 3, OTHERS: 3} == lags


HOSTILE = {
    'a"b\\c\nd{}, é': 'a"b\\c\nd{}, é',
    "a\0b": "a\\x00b",
    "a\x1b[2Jb": "a\\x1b[2Jb",
    'a"} 1': 'a"} 1',
    "a\nb 1\r": "a\nb 1\\r",
    "a\\": "a\\",
    "a\u2028b": "a\\u2028b",
}
"""Hostile names of groups, each with the value of its label."""


def test_hostile_names_stay_inside_their_labels(engine: Engine):
    """A group's name, whatever its characters, stays inside its label. Groups with equal labels share one sum."""
    append_lines(engine.create_topic("orders").partitions()[0], "a\nb\n")
    for name in HOSTILE:
        engine.groups.set_positions(name, {TopicPartition("orders", 0): Position(0)})
    engine.groups.set_positions("a\\x00b", {TopicPartition("orders", 0): Position(1)})
    text = MetricsCollector(engine).text()
    assert [] == [line for line in text.split("\n") if not line.isprintable()]
    found = samples(text)
    for name, label in HOSTILE.items():
        expected = 3 if name == "a\0b" else 2
        assert expected == of(found, table.GROUP_LAG, group=label, topic="orders")
    assert {name for name, _ in found} <= {
        name + suffix for name in (m.name for m in METRICS) for suffix in ("", "_bucket", "_count", "_sum")
    }


def test_requests_of_kafka_clients(engine: Engine, listener: Listener):
    """The listener's connections and requests are reported by kind and by client, whatever the client's name."""
    name = client_name('a"\n\0', "kcat")
    listener.counts.move(None, name)
    for error in (0, 3):
        note = RequestNote("Fetch", 2048, received_bytes=10, sent_bytes=20, error=error)
        listener.counts.note(name, note)
    found = samples(MetricsCollector(engine, listener=listener).text())
    labels = {"client": 'a"\\n\\x00', "software": "kcat"}
    kinds = (table.CLIENT_CONNECTIONS, table.CLIENT_REQUESTS, table.CLIENT_ERRORS)
    assert [1, 2, 1] == all_of(found, *kinds, **labels)
    assert [20, 40] == all_of(found, table.CLIENT_RECEIVED, table.CLIENT_SENT, **labels)
    assert 1 == of(found, table.ANSWERED_ERRORS, request="Fetch", error="UNKNOWN_TOPIC_OR_PARTITION")
    assert 2 == found["topicfs_listener_request_duration_seconds_count", (("request", "Fetch"),)]
    assert (0, 1000) == (of(found, table.CONNECTIONS), of(found, table.MAX_CONNECTIONS))


def test_a_remote_engine_is_asked_nothing():
    """A scrape sends no request to a remote engine. It reports only the values and cache counts in memory."""
    engine = StallingEngine()
    engine.counts.topic("orders")
    engine.make("orders").all[0].arrive(b"a", b"b")
    engine.line.stall()
    engine.counts.cache_hits += 5
    found = scraped(engine)
    assert [2, None] == all_of(found, table.TOPIC_RECORDS, table.TOPIC_BYTES, topic="orders")
    assert [5, 0] == all_of(found, table.CACHE_HITS, table.CACHE_MISSES)
    assert {} == dict(engine.line.calls)


def test_a_scrape_rests():
    """A scrape pauses each time after it has worked for `step_seconds`."""
    now, rests = [0.0], []
    pace = Pace(clock=lambda: now[0], sleep=rests.append, step_seconds=1.0)
    for step, _ in enumerate(pace.paced(range(10)), 1):
        now[0] += 0.5
        assert step // 2 - (step % 2 == 0) <= len(rests) <= step // 2
    assert [REST_SECONDS] * 5 == rests


def test_a_series_of_small_steps_rarely_reads_the_clock():
    """In a series of small steps, the clock is read only once in STEPS_PER_CLOCK_CHECK steps."""
    looks: list[float] = []

    def clock() -> float:
        looks.append(0.0)
        return 0.0

    pace = Pace(clock=clock)
    begun = len(looks)
    for _ in range(STEPS_PER_CLOCK_CHECK - 1):
        pace.count_step()
    assert begun == len(looks)
    pace.count_step()
    assert begun + 1 == len(looks)


async def test_the_file_is_there_by_name(orders: MountClient):
    """`@metrics` can be looked up and read, but it is neither listed nor writable."""
    assert "@metrics" not in orders.list()
    await orders.append("orders/0/log", b"a\n")
    text = (await orders.cat("@metrics")).decode()
    assert 1 == of(samples(text), table.RECORDS, topic="orders")
    with refused("EPERM"):
        await orders.append("@metrics", b"a\n")
    with refused("EPERM"):
        await orders.rmdir("@metrics")


async def test_each_open_of_the_metrics_file_collects_new_values(orders: MountClient):
    """Each open(2) of `@metrics` collects new values; a file that is already open keeps its text."""
    fh = await orders.open("@metrics")
    before = await orders.read_on(fh)
    await orders.append("orders/0/log", b"a\n")
    assert 1 == of(samples((await orders.cat("@metrics")).decode()), table.RECORDS, topic="orders")
    assert before == await orders.read_on(fh)
    await orders.close(fh)
    assert (await orders.stat("@metrics")).size > 0


def test_a_directory_whose_name_is_no_text_has_its_metrics(tmp_path: Path):
    """If a directory's name is not UTF-8, it is escaped in its label and does not fail the scrape."""
    folder = tmp_path / "d\udcff"
    engine = open_engine(folder)
    assert 1 == scraped(engine)["topicfs_directory_online", (("directory", rf"{tmp_path}/d\udcff"),)]
    engine.close()
