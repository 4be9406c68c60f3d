"""Makes the topics of a link's mirrors, and keeps their partitions and properties as the source's.

Partitions are added when the source has more. A topic of the same name that is no mirror of this link
is left alone: two writers into one topic would conflict in every offset.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.wire.error_codes import ErrorCode
from server.replication.link_spec import LinkSpec
from server.replication.source_topics import FoundTopic
from server.runtime.tasks import to_its_end
from server.topics.mirrors import COMPACTION, LINK, SOURCE_ID, local_properties
from server.topics.names import parse_id
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from storage.files.paths import topic_id_text
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.replication")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The logs to copy into, and why topics are left out, by their names."""

    logs: list[PartitionLog] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


@loop_thread
class MirrorTopics:
    """The mirrors among this broker's topics."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def source_id(self, topic: str) -> uuid.UUID:
        """Returns the id of the topic that a mirror is a copy of."""
        found = self._topics.get(topic)
        assert found is not None, "a mirror is deleted only with its link"
        return source_id_of(found.overrides)

    def names_of(self, link: str) -> list[str]:
        """Returns the mirrors of a link."""
        return sorted(
            topic.name for topic in self._topics.all() if topic.config.mirror_link == link
        )

    async def follow(self, spec: LinkSpec, found: Iterable[FoundTopic]) -> Made:
        """Make and update the mirrors of these topics.

        Raises:
            StorageError: the metadata store failed.
        """
        made = Made()
        for source in found:
            topic = await self._follow_one(spec, source)
            if isinstance(topic, TopicRefused):
                made.problems[source.name] = topic.message or topic.error_code.message
                continue
            for log in topic.logs():
                if log.offline_reason is None:
                    made.logs.append(log)
                else:
                    number = log.topic_partition.partition
                    made.problems[source.name] = f"partition {number}: {log.offline_reason}"
        return made

    async def _follow_one(self, spec: LinkSpec, source: FoundTopic) -> Topic | TopicRefused:
        topic = self._topics.get(source.name)
        if topic is None:
            return await self._create(spec, source)
        if topic.config.mirror_link != spec.name:
            return _taken(topic, spec)
        if source_id_of(topic.overrides) != source.facts.topic_id:
            # Another topic of the same name: its partitions say so (`findings.py`), and nothing changes.
            return topic
        return await self._update(spec, topic, source)

    async def _create(self, spec: LinkSpec, source: FoundTopic) -> Topic | TopicRefused:
        own = {
            LINK: spec.name,
            SOURCE_ID: topic_id_text(source.facts.topic_id),
            COMPACTION: spec.compaction,
        }
        # Once the link has stopped it creates no topic, so it can be deleted.
        created = await to_its_end(
            self._topics.create(
                source.name,
                partitions_count=source.facts.partitions_count,
                overrides={**source.overrides, **own},
                topic_id=source.facts.topic_id if spec.is_standby else None,
            )
        )
        if isinstance(created, Topic):
            _log.info("link %s: mirrors %s", spec.name, source.name)
        return created

    async def _update(
        self, spec: LinkSpec, topic: Topic, source: FoundTopic
    ) -> Topic | TopicRefused:
        if source.facts.partitions_count > len(topic.partitions):
            grown = await self._topics.add_partitions(
                topic.name,
                source.facts.partitions_count,
                admit=lambda _: self._refusal_of_promoted(topic.name, spec),
            )
            if isinstance(grown, TopicRefused):
                return grown
            topic = grown

        def as_source(before: Mapping[str, str], _: LogConfig) -> Mapping[str, str] | TopicRefused:
            if before.get(LINK) != spec.name:
                return _promoted(topic.name)
            local = local_properties(before)
            own = {
                name: text
                for name, text in before.items()
                if name.startswith("mirror.") or name in local
            }
            return {**source.overrides, **own}

        if as_source(topic.overrides, topic.config) == topic.overrides:
            return topic
        return await self._topics.alter(topic.name, as_source)

    def _refusal_of_promoted(self, name: str, spec: LinkSpec) -> TopicRefused | None:
        topic = self._topics.get(name)
        is_ours = topic is not None and topic.config.mirror_link == spec.name
        return None if is_ours else _promoted(name)


def source_id_of(overrides: Mapping[str, str]) -> uuid.UUID:
    """Returns the id of the topic that a mirror with these properties is a copy of."""
    return parse_id(overrides[SOURCE_ID])


def _promoted(name: str) -> TopicRefused:
    text = f"{name} was promoted: it is an ordinary topic here"
    return TopicRefused(error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=text)


def _taken(topic: Topic, spec: LinkSpec) -> TopicRefused:
    link = topic.config.mirror_link
    owner = f"a mirror of link {link}" if link else "an ordinary topic"
    text = f"{topic.name} is {owner} here: delete it, or leave it out of link {spec.name}"
    return TopicRefused(error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=text)
