"""Changes of a topic's settings that a client asks for: of the Kafka API and of the HTTP API alike.

`server/topics/topics.py` (`alter`) carries them out, or only checks them.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.config.changes import Examined, overrides_after
from server.topics.alteration import Change
from server.topics.mirrors import OWN, refusal_of_change, with_local
from server.topics.topic import Topic, TopicRefused
from storage.formats.config_property import ConfigError, fields_by_property
from storage.formats.log_config import LogConfig

TOPIC_PROPERTIES = frozenset(fields_by_property(LogConfig))


def known_properties_of(topic: Topic | None) -> frozenset[str]:
    """Returns the names that a change of a topic may have, with those that a later release has set."""
    return TOPIC_PROPERTIES | topic.overrides.keys() if topic else TOPIC_PROPERTIES


def topic_change(name: str, found: Examined, *, replaces: bool = False) -> Change:
    """Returns the change of a topic's overrides that a client asks for.

    Args:
        replaces: whether settings that the client does not name return to their defaults.
    """

    def after(before: Mapping[str, str], defaults: LogConfig) -> Mapping[str, str] | TopicRefused:
        if found.unknown:
            raise ConfigError(f"Unknown topic config name: {found.unknown[0]}")
        kept = {each: before[each] for each in OWN & before.keys()}
        first = kept if replaces else before
        changed = overrides_after(first, found.changes, defaults)
        return refusal_of_change(name, before, changed) or with_local(before, changed)

    return after
