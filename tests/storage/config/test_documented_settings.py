"""Tests that the settings in kafka-storage.md#settings have the defaults of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topicfs.storage.config.broker import broker_settings
from topicfs.storage.config.topic import SETTINGS

TEXT = (Path(__file__).parents[3] / "docs" / "kafka-storage.md").read_text()
TOPIC_ROWS = re.findall(
    r"(?m)^\| `([\w.]+)` \| ([^|]*) \|[^|]*\| ([^|]*) \|$", TEXT[TEXT.index("### Topic settings") :]
)
MINUS = "\N{MINUS SIGN}"
OF_OTHER_PARTS = re.compile(r"remote\.|local\.|errors\.|unclean\.|internal\.|\w+\.replication\.throttled")


def test_every_setting_of_a_log_has_a_row():
    """Each topic setting has a row in the document, except those of tiered storage, replication and share groups."""
    assert [name for name in SETTINGS if not OF_OTHER_PARTS.match(name)] == [row[0] for row in TOPIC_ROWS]


@pytest.mark.parametrize(("name", "default", "synonyms"), TOPIC_ROWS)
def test_a_row_has_the_default_and_the_brokers_name(name, default, synonyms):
    """A row of the document has the setting's default and the names of its broker settings.

    The name of a broker setting may be shortened to its end.
    """
    written = default.strip("`").replace(f"2⁶³{MINUS}1", str(2**63 - 1)).replace(MINUS, "-")
    assert SETTINGS[name].default_text == written
    told = re.findall(r"`([\w.]+)`", synonyms.replace("same", f"`{name}`"))
    known = [synonym.name for synonym in SETTINGS[name].row.synonyms]
    assert known[0] == told[0]
    assert all(any(full.endswith(end) for full in known) for end in told)


OUR_OWN = {"log.flush.scheduler.interval.ms", "group.initial.rebalance.delay.ms", "node.id"}


def test_every_setting_of_the_broker_has_its_default():
    """The document has the default of each broker setting, except the three settings of OUR_OWN."""
    section = " ".join(TEXT[TEXT.index("### Broker settings") : TEXT.index("## Versions")].split())
    for name in broker_settings().keys() - OUR_OWN:
        default = broker_settings()[name].row.kind.print(broker_settings()[name].default)
        assert re.search(rf"`{re.escape(name)}` {default}\b", section), name
