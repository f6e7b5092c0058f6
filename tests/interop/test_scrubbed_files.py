"""Replicas that were damaged and healed, given to a real broker: it reads what was written, from either directory."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from testing.broker.broker import running_broker
from testing.broker.client import Client
from testing.broker.libraries import Java
from tests.soak.scrub import Sizes, flip, line, open_both, scrubbed, write
from topicfs.main import cli

pytestmark = pytest.mark.java

SIZES = Sizes(log_bytes=2 << 20, segment_bytes=1 << 20, flips=25)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_broker_reads_what_was_healed(java: Java, tmp_path: Path, name: str) -> None:
    """The replica that was damaged, and the one that healed it."""
    engine = open_both(tmp_path, SIZES)
    try:
        records = write(engine, SIZES)
        assert flip(engine, 1, SIZES, Random(5)) > 0
        counts, left = scrubbed(engine)
    finally:
        engine.close()
    assert ([], True) == (left, counts.batches_healed > 10)
    with running_broker(tmp_path / "node", java) as broker:
        words = ("handover", str(tmp_path / name), "--bootstrap-server", broker.bootstrap_server)
        words = (*words, "--log-dir", str(broker.log_dir), "--no-wait")
        assert (
            1 == CliRunner().invoke(cli, words).exit_code
        )  # It makes the topic, and waits for the broker's end.
        broker.stop()
        placed = CliRunner().invoke(cli, words)
        assert 0 == placed.exit_code, placed.output
        broker.start()
        read = Client(broker.bootstrap_server).records("orders")
    assert records == len(read)
    assert [line(number) for number in range(records)] == [record.value for record in read]
