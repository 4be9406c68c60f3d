"""The broker's configuration for groups of the consumer protocol, and what single groups override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.config.group_overrides import GroupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The broker's configuration for groups of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    size_max: int
    assignors: tuple[str, ...]
    """The assignors that members may ask for; the first one is the default."""
    migration_policy: str = "bidirectional"
    """In which directions a group with members may change its protocol."""
    own_times: Mapping[str, GroupTimes] = field(default_factory=dict)
    """The times of groups with their own configuration, by group id; they may change at any time."""

    def times_of(self, group_id: str) -> GroupTimes | ConsumerSettings:
        """Returns the times that currently apply to a group."""
        return self.own_times.get(group_id, self)
