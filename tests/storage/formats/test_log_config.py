"""The settings of a topic."""

from __future__ import annotations

import pytest

from storage.formats.config_property import LONG_MAX, ConfigError, properties_of
from storage.formats.log_config import LogConfig

DEFAULTS = LogConfig()


def texts_of(config: LogConfig) -> dict[str, str | None]:
    """Returns the values as DescribeConfigs shows them, by Kafka's names."""
    return {each.name: each.format(value) for each, value in config.rows() if not each.internal}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("delete.retention.ms", "86400000"),
        ("file.delete.delay.ms", "60000"),
        ("flush.messages", str(LONG_MAX)),
        ("flush.ms", str(LONG_MAX)),
        ("index.interval.bytes", "4096"),
        ("max.compaction.lag.ms", str(LONG_MAX)),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", str(LONG_MAX)),
        ("message.timestamp.type", "CreateTime"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.compaction.lag.ms", "0"),
        ("min.insync.replicas", "1"),
        ("preallocate", "false"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("segment.index.bytes", "10485760"),
        ("segment.jitter.ms", "0"),
        ("segment.ms", "604800000"),
        ("unclean.leader.election.enable", "false"),
    ],
)
def test_the_defaults_are_kafkas(name: str, text: str) -> None:
    assert texts_of(DEFAULTS)[name] == text


def test_every_default_is_within_its_own_bounds() -> None:
    for field, declared in properties_of(LogConfig).items():
        text = declared.format(getattr(DEFAULTS, field))
        if text is not None:
            assert declared.parse(text) == getattr(DEFAULTS, field), declared.name


def test_every_property_is_documented() -> None:
    for declared in properties_of(LogConfig).values():
        assert declared.doc.endswith("."), declared.name


def test_overrides_win_and_the_rest_is_the_brokers() -> None:
    broker = LogConfig(segment_ms=5, retention_ms=7)

    config = LogConfig.from_overrides(
        {"cleanup.policy": "compact", "retention.ms": "9"}, defaults=broker
    )

    assert config.is_compacted
    assert not config.is_deleted
    assert config.segment_ms == 5
    assert config.retention_ms == 9


def test_both_policies_and_neither_are_allowed() -> None:
    both = LogConfig.from_overrides({"cleanup.policy": "compact,delete"}, DEFAULTS)
    neither = LogConfig.from_overrides({"cleanup.policy": ""}, DEFAULTS)

    assert both.is_compacted
    assert both.is_deleted
    assert not neither.is_compacted
    assert not neither.is_deleted


def test_dedupe_is_an_older_name_of_compact() -> None:
    config = LogConfig.from_overrides({"cleanup.policy": "dedupe"}, DEFAULTS)

    assert config.is_compacted
    assert not config.is_deleted
    assert texts_of(config)["cleanup.policy"] == "dedupe"


def test_segments_below_a_mebibyte_need_the_internal_property() -> None:
    with pytest.raises(
        ConfigError, match=r"value 4096 for configuration segment\.bytes: Value must be"
    ):
        LogConfig.from_overrides({"segment.bytes": "4096"}, DEFAULTS)

    config = LogConfig.from_overrides({"internal.segment.bytes": "4096"}, DEFAULTS)

    assert config.segment_bytes == 4096
    assert "internal.segment.bytes" not in texts_of(config)


def test_an_unknown_property_is_refused_in_kafkas_words() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: segment\.byte$"):
        LogConfig.from_overrides({"segment.byte": "1"}, DEFAULTS)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(
            {
                "cleanup.policy": "compact",
                "segment.bytes": "52428800",
                "retention.ms": "-1",
                "message.timestamp.type": "CreateTime",
            },
            id="streams_changelog",
        ),
        pytest.param(
            {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"},
            id="streams_repartition",
        ),
        pytest.param(
            {"cleanup.policy": "compact", "min.insync.replicas": "1",
             "unclean.leader.election.enable": "false"},
            id="connect_internal",
        ),
        pytest.param({"cleanup.policy": "compact"}, id="schema_registry"),
        pytest.param(
            {"leader.replication.throttled.replicas": "0:1,1:1",
             "follower.replication.throttled.replicas": "*"},
            id="reassignment_tools",
        ),
    ],
)  # fmt: skip
def test_what_the_ecosystem_creates_topics_with_is_accepted(overrides: dict[str, str]) -> None:
    LogConfig.from_overrides(overrides, DEFAULTS)
