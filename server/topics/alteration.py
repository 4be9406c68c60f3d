"""Changes the configuration of a topic: checked first, then written to the store.

`topics.py` then applies it to the topic's logs (`alter`), and does the same for changed defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from protocol.wire.error_codes import ErrorCode
from server.metadata.store import Compare, MetadataStore, Put
from server.topics.keys import TOPICS, as_json
from server.topics.topic import Topic, TopicRefused
from server.topics.validation import fault_of_kept_records
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog

Change = Callable[[Mapping[str, str], LogConfig], Mapping[str, str] | TopicRefused]
"""Returns the new overrides for the old ones and the broker's defaults, or why the change is refused;
may raise ConfigError."""


def altered_topic(topic: Topic, change: Change, defaults: LogConfig) -> Topic | TopicRefused:
    """Returns the topic with its new overrides, or why they are not valid. Changes nothing."""
    try:
        overrides = change(topic.overrides, defaults)
        if isinstance(overrides, TopicRefused):
            return overrides
        config = LogConfig.from_overrides(overrides, defaults)
    except ConfigError as error:
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))
    refusal = fault_of_kept_records(topic.name, config)
    return refusal or replace(topic, overrides=dict(overrides), config=config)


async def write_overrides(store: MetadataStore, altered: Topic) -> TopicRefused | None:
    """Write a topic's overrides to the store. Returns why they were not written, or None.

    Raises:
        StorageError: the store failed; the next start finds out which overrides the topic has.
    """
    key = TOPICS + altered.name
    entry = await store.get(key)
    assert entry is not None, "only `Topics` creates and deletes topics"
    content = json.loads(entry.value) | {"configs": altered.overrides}
    result = await store.txn(
        [Compare(key=key, mod_revision=entry.mod_revision)],
        [Put(key=key, value=as_json(content))],
    )
    if result.succeeded:
        return None
    return TopicRefused(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        message=f"The configuration of '{altered.name}' was changed at the same time.",
    )


def wait_for_commits(logs: Sequence[PartitionLog]) -> None:
    """Wait until no manifest commit of these logs can use an old configuration. A worker thread."""
    for log in logs:
        log.wait_for_commit()
