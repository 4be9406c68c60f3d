"""Computes the configurations of topics from their overrides and one set of defaults.

`topics.py` changes them while the broker runs (`alter`, `follow_defaults`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from storage.formats.compaction_config import UNKEYED, UNKEYED_TOPIC
from storage.formats.compaction_history import HISTORY_PROPERTIES
from storage.formats.compaction_strategy import STRATEGY_PROPERTIES
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

_log = logging.getLogger("server.topics.computed_configs")

KEEPING_PROPERTIES = {*STRATEGY_PROPERTIES, *HISTORY_PROPERTIES, UNKEYED, UNKEYED_TOPIC}
"""Say which records of a key stay."""


class TopicConfigs:
    """Computes configurations; topics with the same overrides share one object."""

    __slots__ = ("_cache", "_defaults")

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._cache: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def of(self, name: str, overrides: Mapping[str, str]) -> LogConfig:
        """Returns the configuration of a topic; ignores overrides that this release does not accept."""
        try:
            return self.strictly(overrides)
        except ConfigError:
            return self._without_faults(name, overrides)

    def fault_of(self, overrides: Mapping[str, str]) -> str | None:
        """Returns why an override is not valid; None if all are."""
        try:
            self.strictly(overrides)
        except ConfigError as error:
            return str(error)
        return None

    def strictly(self, overrides: Mapping[str, str]) -> LogConfig:
        """Returns the configuration with all these overrides. Raises ConfigError."""
        key = frozenset(overrides.items())
        if key not in self._cache:
            self._cache[key] = LogConfig.from_overrides(overrides, self._defaults)
        return self._cache[key]

    def _without_faults(self, name: str, overrides: Mapping[str, str]) -> LogConfig:
        config, left = self._defaults, dict(overrides)
        faults: dict[str, ConfigError] = {}
        while True:
            for property_name, text in left.items():
                try:
                    config = LogConfig.from_overrides({property_name: text}, config)
                    faults.pop(property_name, None)
                except ConfigError as error:
                    faults[property_name] = error
            if len(faults) == len(left):
                break
            # One property may be valid only with another one that came after it.
            left = {each: left[each] for each in faults}
        for fault in faults.values():
            _log.warning("%s: setting ignored: %s", name, fault)
        if ignored := KEEPING_PROPERTIES & faults.keys():
            # Cleaning would drop values that should stay.
            _log.error("%s: not compacted, because %s is ignored", name, min(ignored))
            config = replace(config, cleanup_policy=())
        return config
