"""The topics that exist: found by name and id, each configured by its overrides and the defaults.

`server/topics/topics.py` extends the table by the changes of topics; everything else only reads it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from server.topics.computed_configs import TopicConfigs
from server.topics.names import collision_key
from server.topics.topic import Topic, TopicDefaults
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread


@loop_thread
class TopicTable:
    """The topics, with their open logs, and the defaults."""

    __slots__ = ("_by_id", "_by_name", "_defaults", "_names_by_key", "revision")

    def __init__(self, defaults: TopicDefaults) -> None:
        # State
        self.revision = 0
        """Increases whenever a topic is created, changed or deleted; counts from the start."""
        self._defaults = defaults
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._names_by_key: dict[str, str] = {}

    # Reading.

    @any_thread
    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    @any_thread
    def all(self) -> list[Topic]:
        """Returns all topics in the order of their names."""
        # The copy is atomic, as it is one step of the interpreter; the loop's thread adds and deletes.
        topics = list(self._by_name.values())
        topics.sort(key=lambda topic: topic.name)
        return topics

    def __len__(self) -> int:
        return len(self._by_name)

    @any_thread
    def logs(self) -> list[PartitionLog]:
        """Returns every log that could be opened."""
        return [log for topic in list(self._by_name.values()) for log in topic.logs()]

    def check_defaults(self, config: LogConfig) -> None:
        """Check that all topics can have these defaults.

        Raises:
            ConfigError: a topic's overrides contradict them.
        """
        before, after = TopicConfigs(self._defaults.config), TopicConfigs(config)
        for topic in self._by_name.values():
            fault = after.fault_of(topic.overrides)
            # Overrides that are invalid with the current defaults are ignored already.
            if fault is not None and before.fault_of(topic.overrides) is None:
                raise ConfigError(f"topic {topic.name}: {fault}")

    # Changing, for `Topics`.

    def _publish(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic
        self._names_by_key[collision_key(topic.name)] = topic.name
        self.revision += 1

    def _publish_by(self, defaults: TopicDefaults, topic: Topic) -> Topic:
        """Publish a topic whose configuration was computed with `defaults`, which may be old."""
        if self._defaults is not defaults:
            config = TopicConfigs(self._defaults.config).of(topic.name, topic.overrides)
            topic = replace(topic, config=config)
            for log in topic.logs():
                log.update_config(config)
        self._publish(topic)
        return topic

    def _remove(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            del self._by_name[topic.name], self._by_id[topic.id]
            del self._names_by_key[collision_key(topic.name)]
        self.revision += 1

    def _set_defaults(self, config: LogConfig) -> list[PartitionLog]:
        """Change the defaults, and the configurations that depend on them. Returns the changed logs."""
        self._defaults = replace(self._defaults, config=config)
        configs = TopicConfigs(config)
        changed: list[PartitionLog] = []
        for topic in self.all():
            its_config = configs.of(topic.name, topic.overrides)
            if its_config != topic.config:
                altered = replace(topic, config=its_config)
                self._publish(altered)
                for log in altered.logs():
                    log.update_config(its_config)
                changed += altered.logs()
        return changed
