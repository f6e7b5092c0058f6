"""Tests of which settings a running engine reloads, and how it reports a change."""

from __future__ import annotations

from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.live_settings import differences, reloaded_config

BEFORE = EngineConfig()


def of(**properties: str) -> EngineConfig:
    """Return the settings of a server.properties that has `properties`."""
    return EngineConfig.from_properties(
        {name.replace("_", "."): value for name, value in properties.items()}
    ).config


def test_defaults_of_topics_and_periods_are_taken_over():
    """A reload changes topic defaults, periods and the other settings that Kafka calls dynamic."""
    wanted = of(log_retention_ms="1000", log_cleaner_enable="false", follower_replication_throttled_rate="7")
    assert wanted == reloaded_config(BEFORE, wanted)


def test_what_is_read_at_the_start_stays():
    """A reload does not change IDs, numbers of threads, and limits of groups."""
    wanted = of(node_id="7", num_recovery_threads_per_data_dir="9", group_max_size="3", num_partitions="5")
    assert BEFORE._replace(num_partitions=5, creation_overrides=wanted.creation_overrides) == reloaded_config(
        BEFORE, wanted
    )


def test_a_reload_keeps_follows():
    """A reload keeps `follows`, which no file can set."""
    assert reloaded_config(BEFORE._replace(follows=True), BEFORE).follows


def test_changes_have_kafkas_names_and_spelling():
    """A change is reported in Kafka's spelling, and with a note if it needs a restart. Topic settings come first."""
    wanted = of(
        log_retention_hours="1", log_cleanup_policy="compact,delete", node_id="7", log_cleaner_enable="false"
    )
    assert [
        "log.cleanup.policy: compact,delete in place of delete",
        "log.retention.ms: 3600000 in place of 604800000",
        "node.id: 7 in place of 1, from the next start on",
        "log.cleaner.enable: false in place of true",
    ] == [str(one) for one in differences(BEFORE, wanted)]


def test_the_same_settings_differ_in_nothing():
    """Settings with equal values have no differences, even if the values are written differently."""
    assert [] == list(differences(BEFORE, of(log_retention_hours="168")))


def test_each_setting_of_the_engine_shows_its_change():
    """Each broker setting reports its change, and whether the change needs a restart."""
    for name, own in broker_settings().items():
        other = not own.default if isinstance(own.default, bool) else own.default - 1
        (change,) = differences(BEFORE, BEFORE._replace(**{own.field: other}))
        assert name == change.name
        holds_now = other == getattr(
            reloaded_config(BEFORE, BEFORE._replace(**{own.field: other})), own.field
        )
        assert holds_now is not change.from_next_start
