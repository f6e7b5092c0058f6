"""Tests of each setting at both ends of its range, through append, roll, compaction, retention and reopening."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import read_records, record
from topicfs.coordination.engine import Engine
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.config import kinds
from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.topic import SETTINGS
from topicfs.storage.errors import RecordTooLargeError
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.model import LATEST_TIMESTAMP, Offset, ProducerId, Timestamp

DAY_MS = 86_400_000
ROUNDS = 3
REFUSED = {("remote.storage.enable", "true")}
"""Values that Kafka accepts and topicfs refuses."""

WORDS = {
    kinds.Boolean: ["false", "true"],
    kinds.TimestampTypeChoice: ["CreateTime", "LogAppendTime"],
    kinds.ThrottledReplicas: ["", "*"],
}
"""The values of each kind of setting that has no range."""


def ends(kind: kinds.ValueKind) -> list[str]:
    """Return the smallest and largest value of a kind, or all words of a kind without a range."""
    if isinstance(kind, kinds.WholeNumberOr):
        return [*ends(kind.number), str(kind.other)]
    if isinstance(kind, kinds.OptionalWholeNumber):
        return ["", *ends(kind.number)]
    if isinstance(kind, kinds.WholeNumber | kinds.Ratio):
        return [str(kind.minimum), str(kind.maximum)]
    if isinstance(kind, kinds.WordList):
        return ["", ",".join(kind.words)]
    return list(kind.words) if isinstance(kind, kinds.OneOf) else WORDS[type(kind)]


TOPIC_ENDS = [(name, value) for name, setting in SETTINGS.items() for value in ends(setting.row.kind)]
BROKER_ENDS = [(name, value) for name, one in broker_settings().items() for value in ends(one.row.kind)]


def opened(path: Path, clock: ManualClock, config: EngineConfig | None = None) -> LogManager:
    return open_engine(path, config=config or EngineConfig(recovery_threads=1), machine=Machine(clock=clock))


def use(engine: Engine, clock: ManualClock) -> Offset:
    """Append in every way, look up records, run all duties today and a day later, and return the log's end."""
    partition = engine.partition("t", 0)
    for number in range(ROUNDS):
        keyed, gone = record(0, b"k", b"x" * 200, clock()), record(1, b"%d" % number, None, clock())
        produced = BatchStamp(producer_id=ProducerId(9), producer_epoch=0, base_sequence=number)
        # Some topics refuse every batch because of its size.
        with suppress(RecordTooLargeError):
            partition.append(encode([keyed, gone], BatchStamp(codec=Codec.ZSTD)))
            partition.append(encode([keyed], produced))
            partition.append(encode([keyed]), encoded_here=True)
            partition.append(encode([keyed]), encoded_here=True)
        clock.advance(1000)
        engine.maintenance(clock())
    for _ in range(2):
        engine.plan_maintenance(clock())
        engine.maintain_now(clock())
        clock.advance(DAY_MS)
    assert partition.status().offline is None
    read_records(partition)
    assert partition.offset_for_timestamp(LATEST_TIMESTAMP) is None
    partition.offset_for_timestamp(Timestamp(0))
    assert () == engine.warnings
    return partition.log_end_offset


def use_and_reopen(path: Path, config: EngineConfig | None = None, **overrides: str) -> None:
    """Use a topic, close the engine, open it again, and run its duties."""
    clock = ManualClock()
    engine = opened(path, clock, config)
    engine.create_topic("t", partitions=1, overrides=overrides)
    end = use(engine, clock)
    engine.close()
    engine = opened(path, clock, config)
    assert end == engine.partition("t", 0).log_end_offset
    engine.maintain_now(clock())
    engine.close()


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize(("name", "value"), [one for one in TOPIC_ENDS if one not in REFUSED])
def test_a_topic_works_at_both_ends_of_each_setting(name: str, value: str, policy: str, tmp_path: Path):
    """No value that Kafka accepts makes an append or a duty fail."""
    base = {
        "cleanup.policy": policy,
        "internal.segment.bytes": "600",
        "min.cleanable.dirty.ratio": "0",
        "retention.ms": "-1",
    }
    use_and_reopen(tmp_path / "data", **(base | {name: value}))


@pytest.mark.parametrize(("name", "value"), BROKER_ENDS)
def test_an_engine_works_at_both_ends_of_each_setting(name: str, value: str, tmp_path: Path):
    """No value in `server.properties` makes opening, appends or duties fail."""
    properties = {"log.cleanup.policy": "compact,delete", "log.cleaner.min.cleanable.ratio": "0", name: value}
    use_and_reopen(tmp_path / "data", EngineConfig.from_properties(properties).config)
