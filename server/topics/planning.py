"""Plans the topics of a request: each is checked against the topics that exist and those before it."""

from __future__ import annotations

import uuid
from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence

from server.runtime.turns import Pace
from server.topics.computed_configs import TopicConfigs
from server.topics.names import collision_key
from server.topics.topic import OfflineLog, Topic, TopicDefaults, TopicRefused
from server.topics.validation import Admit, NewTopic, check_creation
from storage.formats.log_config import LogConfig


async def planned_topics(
    new_topics: Sequence[NewTopic],
    names_by_key: MutableMapping[str, str],
    defaults: TopicDefaults,
    *,
    new_id: Callable[[], uuid.UUID],
    pace: Pace,
    admit: Admit,
) -> list[Topic | TopicRefused]:
    """Returns each topic, planned and without logs, or why it is refused.

    Args:
        names_by_key: the names of the existing topics, by their collision keys; stays as it is.
        pace: the pace of the client's request.
        admit: called for each valid topic; may refuse it.
    """
    configs = TopicConfigs(defaults.config)
    existing = ChainMap[str, str]({}, names_by_key)
    planned: list[Topic | TopicRefused] = []
    async for new_topic in pace.paced(new_topics):
        checked = check_creation(new_topic, existing=existing, defaults=defaults, configs=configs)
        refusal = checked if isinstance(checked, TopicRefused) else admit(checked[0])
        if refusal is not None:
            planned.append(refusal)
            continue
        assert not isinstance(checked, TopicRefused)
        existing[collision_key(new_topic.name)] = new_topic.name
        topic_id = new_topic.topic_id or new_id()
        planned.append(_planned(new_topic, topic_id, *checked))
    return planned


def _planned(new_topic: NewTopic, topic_id: uuid.UUID, count: int, config: LogConfig) -> Topic:
    return Topic(
        name=new_topic.name,
        id=topic_id,
        config=config,
        overrides=dict(new_topic.overrides),
        partitions=(OfflineLog.planned(new_topic.name, 0),) * count,
    )
