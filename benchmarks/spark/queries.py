"""Three queries over the same records: counting them, adding up the lengths of their values, archiving them by date.

They are compared with Spark's own Kafka source on a broker with the same log, and with Spark's reader of the records
as Parquet. Arrow batches in memory, made before, show the speed that no source in Python can exceed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.frame import units
from benchmarks.frame.question import (
    OURS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    SkippedError,
    WrongResultError,
)
from benchmarks.frame.rounds import Figure, shared_cases
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.cpu_time import Timing
from benchmarks.peers.broker import SETTINGS, ServerJava
from benchmarks.spark.memory_source import NAME, PrebuiltSource, write_batches
from benchmarks.spark.records import KEY_BYTES, TOPIC, VALUE_BYTES, make_topic
from benchmarks.spark.session import session, timed
from testing.broker.broker import running_broker
from testing.broker.libraries import UnavailableError, find_java
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.place import cluster_address
from topicfs.migration.cluster import KafkaCluster
from topicfs.migration.handover import Handover
from topicfs.pipeline.jobs.archive import ArchiveOptions, archive
from topicfs.pipeline.places.place import SparkPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA, MEMORY, PARQUET = "Kafka source", "Arrow in memory", "Parquet"
SEVEN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
SLOW_ROUNDS = 3
"""Number of rounds of slow queries. They need no warm-up, because the session has already written the records as
Parquet.
"""
WARM_UPS = 2
"""Number of rounds of every side that are not measured, because the JVM still compiles its code."""


@dataclass(frozen=True, slots=True)
class SparkSetup:
    """The same records on every side, and a session."""

    spark: SparkSession
    directory: Path
    records: int
    sources: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """Format and options of each side except Parquet."""

    @property
    def sides(self) -> tuple[str, ...]:
        return (*self.sources, PARQUET)

    def read(self, side: str, *, headers: bool = False, schema: str | None = None) -> DataFrame:
        """Return the records, read from a side."""
        if side == PARQUET:
            frame = self.spark.read.parquet(str(self.directory / "parquet"))
            return frame if headers else frame.select(*SEVEN_COLUMNS)
        kind, options = self.sources[side]
        reader = self.spark.read.format(kind).options(**options)
        reader = reader.option("includeHeaders", str(headers).lower())
        return (reader if schema is None else reader.schema(schema)).load()

    def count(self, side: str) -> None:
        self._check(side, self.read(side).count(), self.records)

    def add_up(self, side: str, schema: str | None = None) -> None:
        (row,) = self.read(side, schema=schema).selectExpr("sum(length(value))").collect()
        self._check(side, row[0], self.records * VALUE_BYTES)

    def archive(self, side: str) -> None:
        """Write Parquet by topic and date: topicfs with its job `archive`, other sides with Spark's writer."""
        target = self.directory / "archive"
        if side == OURS:
            shutil.rmtree(target, ignore_errors=True)
            options = ArchiveOptions(path=str(self.directory / "data"), topics=TOPIC, target=target)
            self._check(
                side, sum(row.records for row in archive(self.spark, options).collect()), self.records
            )
            return
        dated = self.read(side, headers=True).selectExpr("*", "to_date(timestamp) AS date")
        dated.write.mode("overwrite").partitionBy("topic", "date").parquet(str(target))
        if not any(target.glob(f"topic={TOPIC}/date=*/*.parquet")):
            raise WrongResultError(f"{side}: nothing was archived")

    def _check(self, side: str, found: int, expected: int) -> None:
        if found != expected:
            raise WrongResultError(f"{side}: the query returned {found}, expected {expected}")


def cases(conditions: Conditions) -> Cases:
    """Yield the cases. In the short form there is no broker, because it takes longer to start than everything else."""
    records = conditions.choose(full=1_500_000, short=400_000)
    with directory_in_memory(conditions, 3 * records * (KEY_BYTES + VALUE_BYTES)) as memory:
        records = make_topic(conditions.directory / "data", records)
        with _setup(conditions, memory, records) as setup:
            yield from _cases(setup, "count()", setup.count, _goals(of_kafka=1.3, of_memory=0.28))
            yield from _cases(setup, "sum(length(value))", setup.add_up, _goals(of_kafka=1.5, of_memory=0.28))
            yield _projected(setup)
            if not conditions.short:
                goals = _goals(of_kafka=2.0, of_memory=1.5)
                yield from _cases(setup, "archive", setup.archive, goals, quick=False)


def _goals(*, of_kafka: float, of_memory: float) -> tuple[Goal, ...]:
    """Return the goals of a query; the goals of different queries differ only in their floors."""
    return (
        Goal(of=KAFKA, target=3.0, floor=of_kafka),
        Goal(of=MEMORY, target=0.6, floor=of_memory),
        Goal(of=PARQUET),
    )


def _cases(
    setup: SparkSetup, name: str, query: Callable[[str], None], goals: tuple[Goal, ...], *, quick: bool = True
) -> Iterator[Case]:
    """Return two cases about the same rounds: elapsed time, which has goals, and processor time."""
    max_rounds = None if quick else SLOW_ROUNDS
    kept = tuple(goal for goal in goals if goal.of in setup.sides)
    of_processor = tuple(Goal(of=goal.of) for goal in kept)
    elapsed, processor = units.MILLION_RECORDS_A_SECOND, units.MILLION_RECORDS_A_SECOND_OF_PROCESSOR
    return shared_cases(
        {side: partial(timed, partial(query, side)) for side in setup.sides},
        Figure(name, elapsed, partial(_speed, setup.records), kept),
        Figure(name, processor, partial(_speed_of_core, setup.records), of_processor),
        max_rounds=max_rounds,
        warm_up=quick,
    )


def _projected(setup: SparkSetup) -> Case:
    """Return a case that shows how much faster a query is if it names the column that it needs."""
    wholly, projected = partial(setup.add_up, OURS), partial(setup.add_up, OURS, "value binary")
    every = "topicfs, all columns"
    return Case(
        name='sum(length(value)) of .schema("value binary")',
        unit=units.MILLION_RECORDS_A_SECOND,
        sides=(
            Side(OURS, lambda: _speed(setup.records, timed(projected))),
            Side(every, lambda: _speed(setup.records, timed(wholly))),
        ),
        goals=(Goal(of=every),),
    )


def _speed(records: int, took: Timing) -> float:
    return records / 1e6 / took.elapsed


def _speed_of_core(records: int, took: Timing) -> float:
    return records / 1e6 / took.cpu


@contextmanager
def _setup(conditions: Conditions, memory: Path, records: int) -> Iterator[SparkSetup]:
    directory = conditions.directory
    data, batches = directory / "data", memory / "batches"
    sources = {
        OURS: ("topicfs", {"path": str(data), "subscribe": TOPIC}),
        MEMORY: (NAME, {"folder": str(batches)}),
    }
    with ExitStack() as stack:
        places = []
        if not conditions.short:
            place = stack.enter_context(_broker(directory / "broker", data))
            places.append(place)
            sources[KAFKA] = (place.format, {**place.options, "subscribe": TOPIC})
        spark = stack.enter_context(session(directory, places))
        write_batches(data, TOPIC, batches)
        stack.callback(shutil.rmtree, batches)
        spark.dataSource.register(PrebuiltSource)
        setup = SparkSetup(spark, directory, records, sources)
        setup.read(OURS, headers=True).write.parquet(str(directory / "parquet"))
        for _ in range(0 if conditions.short else WARM_UPS):
            for side in setup.sides:
                setup.count(side)
        yield setup


@contextmanager
def _broker(home: Path, data: Path) -> Iterator[SparkPlace]:
    """Run a broker that serves a copy of the topic's own files."""
    try:
        found = find_java()
    except UnavailableError as error:
        raise SkippedError(str(error)) from None
    with running_broker(home, ServerJava(found.program, found.jars), SETTINGS) as broker:
        handover = Handover([data], [broker.log_dir], report=lambda _: None)
        with closing(Brokers(cluster_address(f"kafka://{broker.bootstrap_server}"))) as brokers:
            handover.prepare(KafkaCluster(brokers))
            with broker.stopped():
                handover.place()
            handover.verify(KafkaCluster(brokers))
        yield SparkPlace(bootstrap_servers=broker.bootstrap_server)
        broker.stop()


BENCHMARK = Benchmark(
    name="spark", question="How fast does Spark read a topic, compared with other sources?", cases=cases
)
