"""What clients may not do to a mirror, whose only writer is its link.

A mirror is a topic with the properties `mirror.*`. They are stored with the topic, so it becomes a
mirror in the transaction that creates it, and an ordinary topic again in the one that removes them. Its
other properties are the source's, so it then has the source's policies.

    refused with POLICY_VIOLATION              Produce, DeleteRecords, CreatePartitions,
    AddPartitionsToTxn,
                                               DeleteTopics, changes of the properties below
    served                                     everything that reads, and groups that commit offsets
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import Topic, TopicRefused
from storage.formats.log_config import LogConfig

LINK = "mirror.link"
SOURCE_ID = "mirror.source.topic.id"
COMPACTION = "mirror.compaction"
OWN = frozenset({LINK, SOURCE_ID})
"""Properties that only a link sets."""

ALTERS_DATA = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms",
    }
)
"""Properties that decide what a log contains. On a mirror they are the source's."""


def without_own(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that stay when a mirror becomes an ordinary topic: the source's."""
    return {name: text for name, text in overrides.items() if not name.startswith("mirror.")}


def refusal_of_write(name: str, config: LogConfig) -> TopicRefused | None:
    """Returns why clients may not change what a topic contains; None if they may."""
    if not config.is_mirror:
        return None
    text = (
        f"Topic {name} is a mirror: only its link {config.mirror_link} writes to it."
        f" kompakt replica promote {name} makes it an ordinary topic."
    )
    return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)


def refusal_of_deletion(topic: Topic) -> TopicRefused | None:
    """Returns why a topic may not be deleted; None if it may."""
    if not topic.config.is_mirror:
        return None
    text = (
        f"Topic {topic.name} is a mirror, which its link {topic.config.mirror_link} would create again."
        f" kompakt replica promote {topic.name} makes it an ordinary topic."
    )
    return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)


def refusal_of_creation(name: str, overrides: Mapping[str, str]) -> TopicRefused | None:
    """Returns why a client may not create a topic with these properties; None if it may."""
    if OWN.isdisjoint(overrides):
        return None
    text = f"Only a link makes a topic a mirror: leave out {_listed(OWN & overrides.keys())} of {name}."
    return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)


def refusal_of_change(
    name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> TopicRefused | None:
    """Returns why a client may not change a topic's properties so; None if it may."""
    changed = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
    if changed & OWN:
        text = f"Only a link makes a topic a mirror: leave out {_listed(changed & OWN)} of {name}."
    elif before.get(LINK) and changed & ALTERS_DATA:
        text = (
            f"Topic {name} is a mirror, so {_listed(changed & ALTERS_DATA)} is what its source has."
            f" kompakt replica promote {name} makes it an ordinary topic."
        )
    else:
        return None
    return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
