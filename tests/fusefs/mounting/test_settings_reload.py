"""Reloads of the settings: which settings the engine gets, and what is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.doubles.engines import QUIET, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.fusefs.mounting.settings_reload import SettingsReload
from topicfs.fusefs.reports import Reports
from topicfs.replication import EmbeddedEngine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import InvalidConfigError


@pytest.fixture
def engine() -> EmbeddedEngine:
    engine = engine_on(SimulatedDisk())
    engine.create_topic("t")
    return engine


def reload_of(
    engine: EmbeddedEngine, rereads: Callable[[], EngineConfig] | None
) -> tuple[SettingsReload, Reports]:
    reports = Reports(ManualClock())
    return SettingsReload(rereads, engine, QUIET, reports, terminal=False), reports


def wanted() -> EngineConfig:
    return QUIET._replace(node_id=3, topic_defaults=QUIET.topic_defaults._replace(retention_bytes=7))


def test_the_engine_gets_new_settings_and_the_log_lists_them(
    engine: EmbeddedEngine, caplog: pytest.LogCaptureFixture
):
    """A reload gives the engine the new settings. The daemon logs each changed setting, or that none changed."""
    caplog.set_level(logging.INFO)
    reload, reports = reload_of(engine, wanted)
    reload.reload()
    reload.reload()
    assert 7 == engine.topic("t").config.retention_bytes
    assert [
        "settings: log.retention.bytes: 7 in place of -1",
        "settings: node.id: 3 in place of 1, from the next start on",
        "settings: reloaded, unchanged",
    ] == [record.getMessage() for record in caplog.records if record.name == "topicfs"]
    assert not reports.lines()


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (InvalidConfigError("num.partitions=many: must be a number"), "not changed: num.partitions=many"),
        (FileNotFoundError(2, "No such file", "f"), "not changed: "),
        (ZeroDivisionError(), "could not be reloaded; the log has the traceback"),
    ],
)
def test_settings_that_cannot_be_read_change_nothing(engine: EmbeddedEngine, error: Exception, reported: str):
    """If the settings cannot be read, nothing changes, and the reason is reported. Unexpected errors are logged."""

    def fails() -> EngineConfig:
        raise error

    before = engine.topic("t").config
    reload, reports = reload_of(engine, fails)
    reload.reload()
    assert before is engine.topic("t").config
    (line,) = reports.lines()
    assert f"settings: {reported}" in line


def test_a_service_without_settings_continues(engine: EmbeddedEngine, caplog: pytest.LogCaptureFixture):
    """Under a service manager, which reloads a service by SIGHUP, a mount without settings continues after SIGHUP."""
    caplog.set_level(logging.INFO)
    reload = SettingsReload(None, engine, None, Reports(ManualClock()), terminal=False, managed=True)
    assert reload.is_asked_for
    reload.reload()
    assert ["settings: nothing to reload: the mount has no --config"] == caplog.messages


def test_without_settings_to_reload_sighup_ends_the_daemon(engine: EmbeddedEngine):
    """If a mount has no settings to reload, SIGHUP ends the daemon."""
    assert not reload_of(engine, None)[0].is_asked_for
    assert reload_of(engine, wanted)[0].is_asked_for
