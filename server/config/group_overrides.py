"""What single groups override of the broker's configuration, by group id.

    /group_configs/<group id>    {"<name>": "<value>", ...}

A group need not exist to have overrides. A change applies from each member's next heartbeat on.

Source: KIP-848; Apache Kafka, GroupConfig.java, GroupConfigManager.java.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.wire.error_codes import ErrorCode
from server.config.changes import ConfigChange, overrides_after
from server.config.group_config import GroupConfig, GroupProperties
from server.metadata.store import Delete, MetadataStore, Put
from server.topics.topic import TopicRefused
from storage.formats.config_property import ConfigError, parse_fields, properties_of
from storage.threads import loop_thread

_log = logging.getLogger("server.config.group_overrides")

PREFIX = "/group_configs/"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """A group's heartbeat interval and session timeout."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@loop_thread
class GroupOverrides:
    """Sole owner of the groups' overrides."""

    __slots__ = ("_bounds", "_lock", "_overrides", "_store", "defaults", "times")

    def __init__(self, store: MetadataStore, config: GroupConfig) -> None:
        # Constant after construction
        self._store = store
        self._lock = asyncio.Lock()
        self._bounds = _bounds(config)
        self.defaults = GroupProperties.of_broker(config)
        # State
        self._overrides: dict[str, Mapping[str, str]] = {}
        # Derived for the coordinator: the times of groups that have overrides.
        self.times: dict[str, GroupTimes] = {}

    async def open(self) -> None:
        """Read the stored overrides. Invalid ones are skipped with a warning."""
        for entry in (await self._store.range(PREFIX)).entries:
            name = entry.key.removeprefix(PREFIX)
            try:
                self._apply(name, json.loads(entry.value))
            except ConfigError as error:
                _log.warning("group %s: ignoring its invalid configuration: %s", name, error)

    def names(self) -> list[str]:
        """Returns the groups that have overrides."""
        return sorted(self._overrides)

    def of(self, name: str) -> Mapping[str, str]:
        """Returns the overrides of one group."""
        return self._overrides.get(name, {})

    async def alter(
        self, name: str, changes: Sequence[ConfigChange], *, replaces: bool, validate_only: bool
    ) -> TopicRefused | None:
        """Change a group's overrides. The change is durable and effective when this returns.

        Args:
            replaces: whether overrides that are not among the changes are removed.
        Returns:
            Why nothing was changed, or None.
        """
        async with self._lock:
            before = self.of(name)
            try:
                altered = overrides_after({} if replaces else before, changes, self.defaults)
                self._check(altered)
            except ConfigError as error:
                return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))
            if not validate_only and altered != before:
                value = json.dumps(altered, separators=(",", ":"))
                key = PREFIX + name
                change = Put(key=key, value=value) if altered else Delete(key=key)
                await self._store.txn((), [change])
                self._apply(name, altered)
                _log.info("configuration of group %r: %s", name, altered)
            return None

    def _apply(self, name: str, overrides: Mapping[str, str]) -> None:
        if not overrides:
            self._overrides.pop(name, None)
            self.times.pop(name, None)
            return
        properties = self._check(overrides)
        self._overrides[name] = dict(overrides)
        self.times[name] = GroupTimes(
            session_timeout_ms=properties.consumer_session_timeout_ms,
            heartbeat_interval_ms=properties.consumer_heartbeat_interval_ms,
        )

    def _check(self, overrides: Mapping[str, str]) -> GroupProperties:
        """Returns the group's properties. Raises ConfigError, in Kafka's words."""
        values: dict[str, Any] = parse_fields(GroupProperties, overrides)
        for field, value in values.items():
            self._check_bounds(field, value)
        return replace(self.defaults, **values)

    def _check_bounds(self, field: str, value: int) -> None:
        name = properties_of(GroupProperties)[field].name
        (least_name, least), (most_name, most) = self._bounds[field]
        if value < least:
            raise ConfigError(f"{name} must be greater than or equal to {least_name}")
        if value > most:
            raise ConfigError(f"{name} must be less than or equal to {most_name}")


Bound = tuple[str, int]
"""The name and the value of a broker property."""


def _bounds(config: GroupConfig) -> Mapping[str, tuple[Bound, Bound]]:
    """Returns the allowed minimum and maximum for a group, by field."""

    def bound(field: str) -> Bound:
        return properties_of(GroupConfig)[field].name, getattr(config, field)

    return {
        "consumer_session_timeout_ms": (
            bound("group_consumer_min_session_timeout_ms"),
            bound("group_consumer_max_session_timeout_ms"),
        ),
        "consumer_heartbeat_interval_ms": (
            bound("group_consumer_min_heartbeat_interval_ms"),
            bound("group_consumer_max_heartbeat_interval_ms"),
        ),
    }
