"""The broker-wide defaults of topic settings, with Kafka's names and units for broker properties.

`log.retention.hours` is the default of a topic's `retention.ms`: `storage/formats/log_config.py`
declares such synonyms beside the settings, the strongest first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from storage.formats.config_property import INT, ConfigProperty, Synonym, properties_of
from storage.formats.log_config import LogConfig


@functools.cache
def topic_synonyms() -> Mapping[str, tuple[str, ConfigProperty, int]]:
    """Returns the broker-wide synonyms of topic settings by name: field, broker property, scale."""
    return {
        synonym.name: (name, _as_broker_property(declared, synonym), synonym.scale)
        for name, declared in properties_of(LogConfig).items()
        for synonym in declared.synonyms
    }


def log_defaults_from(texts: Mapping[str, str]) -> LogConfig:
    """Returns the defaults of topics that broker-wide `texts` define. Raises ConfigError."""
    synonyms = topic_synonyms()
    overrides: dict[str, str] = {}
    for name, declared in properties_of(LogConfig).items():
        given = [synonym for synonym in declared.synonyms if synonym.name in texts]
        for synonym in given:
            synonyms[synonym.name][1].parse(texts[synonym.name])
        if given:
            text = texts[given[0].name]
            scaled = text if given[0].scale == 1 else _scaled(int(text), given[0].scale)
            overrides[properties_of(LogConfig)[name].name] = scaled
    return LogConfig.from_overrides(overrides, LogConfig())


def _scaled(count: int, scale: int) -> str:
    """Returns a duration in the topic property's unit; negative ones mean "never" and stay."""
    return str(count * scale if count > 0 else count)


def _as_broker_property(declared: ConfigProperty, synonym: Synonym) -> ConfigProperty:
    """Returns a topic property with the name and the unit of its broker-wide synonym."""
    scaled = synonym.scale != 1
    return ConfigProperty(
        name=synonym.name,
        type=INT if scaled else declared.type,
        default=None if scaled else declared.default,
        at_least=declared.at_least,
        at_most=declared.at_most,
        choices=declared.choices,
        unit={3_600_000: "hours", 60_000: "minutes"}.get(synonym.scale, declared.unit),
        # As in Kafka: only the strongest synonym of a setting is dynamic.
        dynamic=synonym is declared.synonyms[0],
        internal=declared.internal,
        synonyms=(),
        doc=f"The topics' default for {declared.name}. {declared.doc}",
    )
