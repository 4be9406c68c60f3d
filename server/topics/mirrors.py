"""What clients may not do to a mirror, whose only writer is its link.

A mirror is a topic with the properties `mirror.*`. They are stored with the topic, so it becomes a
mirror in the transaction that creates it, and an ordinary topic again in the one that removes them. Its
other properties are the source's, so it then has the source's policies.

A client may set the others: such a property is local from then on (`LOCAL`), and no longer follows the
source's until a client deletes it.

`REFUSED` and `ALTERS_DATA` are the table of what gets POLICY_VIOLATION. Everything else is served: what
reads, and groups that commit offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from server.topics.topic import TopicRefused
from storage.formats.compaction_history import HISTORY_PROPERTIES
from storage.formats.compaction_strategy import STRATEGY_PROPERTIES
from storage.formats.compaction_ttl import TTL_PROPERTIES
from storage.formats.log_config import LogConfig

LINK = "mirror.link"
SOURCE_ID = "mirror.source.topic.id"
COMPACTION = "mirror.compaction"
LOCAL = "mirror.local.properties"
OWN = frozenset({LINK, SOURCE_ID, LOCAL})
"""Properties that no client sets."""

ALTERS_DATA = frozenset(
    {
        "cleanup.policy",
        *STRATEGY_PROPERTIES,
        *HISTORY_PROPERTIES,
        *TTL_PROPERTIES,
        "compression.type",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms",
    }
)
"""Properties that decide what a log contains. On a mirror they are the source's."""

_ONLY_THE_LINK = ": only its link {} writes to it"
REFUSED: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: _ONLY_THE_LINK,
    ApiKey.DELETE_RECORDS: _ONLY_THE_LINK,
    ApiKey.CREATE_PARTITIONS: _ONLY_THE_LINK,
    ApiKey.ADD_PARTITIONS_TO_TXN: _ONLY_THE_LINK,
    ApiKey.WRITE_TXN_MARKERS: _ONLY_THE_LINK,
    ApiKey.DELETE_TOPICS: ", which its link {} would create again",
}
"""The APIs that a mirror refuses, and why, with the place of the link's name."""


def without_own(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that stay when a mirror becomes an ordinary topic: the source's."""
    return {name: text for name, text in overrides.items() if not name.startswith("mirror.")}


def refusal_on_mirror(key: ApiKey, name: str, config: LogConfig) -> TopicRefused | None:
    """Returns why an API of `REFUSED` may not change a topic; None if the topic is no mirror."""
    if not config.is_mirror:
        return None
    why = REFUSED[key].format(config.mirror_link)
    return _refused(f"Topic {name} is a mirror{why}. {_promote(name)}")


def refusal_of_creation(name: str, overrides: Mapping[str, str]) -> TopicRefused | None:
    """Returns why a client may not create a topic with these properties; None if it may."""
    if OWN.isdisjoint(overrides):
        return None
    text = f"Only a link makes a topic a mirror: leave out {_listed(OWN & overrides.keys())} of {name}."
    return _refused(text)


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
            f" {_promote(name)}"
        )
    else:
        return None
    return _refused(text)


def local_properties(overrides: Mapping[str, str]) -> frozenset[str]:
    """Returns the properties of a mirror that clients have set."""
    return frozenset(filter(None, overrides.get(LOCAL, "").split(",")))


def with_local(before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    """Returns a topic's properties after the change of a client: what it sets on a mirror is local."""
    if not before.get(LINK):
        return after
    changed = {name for name, text in after.items() if before.get(name) != text}
    local = (local_properties(before) | changed) & after.keys()
    names = sorted(name for name in local if not name.startswith("mirror."))
    kept = {name: text for name, text in after.items() if name != LOCAL}
    return {**kept, LOCAL: ",".join(names)} if names else kept


def _refused(text: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)


def _promote(name: str) -> str:
    return f"kompakt replica promote {name} makes it an ordinary topic."


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
