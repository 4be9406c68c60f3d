"""What the overrides of topics come to, over one set of defaults."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from storage.config_property import ConfigError
from storage.log_config import LogConfig

_log = logging.getLogger("server.topic_configs")


class TopicConfigs:
    """Makes configurations; topics that are configured alike share one."""

    __slots__ = ("_defaults", "_made")

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._made: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def of(self, name: str, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic, without what this release does not know or allow."""
        try:
            return self.strictly(overrides)
        except ConfigError:
            return self._without_faults(name, overrides)

    def fault_of(self, overrides: Mapping[str, str]) -> str | None:
        """Why some override cannot hold; None if all can."""
        try:
            self.strictly(overrides)
        except ConfigError as error:
            return str(error)
        return None

    def strictly(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration with all these overrides. Raises ConfigError."""
        key = frozenset(overrides.items())
        if key not in self._made:
            self._made[key] = LogConfig.from_overrides(overrides, self._defaults)
        return self._made[key]

    def _without_faults(self, name: str, overrides: Mapping[str, str]) -> LogConfig:
        config = self._defaults
        for property_name, text in overrides.items():
            try:
                config = LogConfig.from_overrides({property_name: text}, config)
            except ConfigError as error:
                _log.warning("%s: setting ignored: %s", name, error)
        return config
