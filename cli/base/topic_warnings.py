"""Warnings about settings of topics that do harm (`cleaner/rules/harmful_settings.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleaner.rules.harmful_settings import Harm, harmful_settings
from cli.base.broker_client import BrokerClient
from cli.base.topic_facts import TOPIC_RESOURCE, configs_of
from storage.formats.config_property import ConfigError, fields_by_property
from storage.formats.log_config import LogConfig

TOPICS_A_REQUEST = 200


def harms_of(settings: Mapping[str, str | None]) -> tuple[Harm, ...]:
    """Returns what a topic's settings do that no one can want; nothing if they are another product's."""
    known = fields_by_property(LogConfig)
    texts = {name: text for name, text in settings.items() if text is not None and name in known}
    try:
        return harmful_settings(LogConfig.from_overrides(texts, LogConfig()))
    except ConfigError:
        return ()


async def harms_by_topic(
    client: BrokerClient, topics: Sequence[str]
) -> dict[str, tuple[Harm, ...]]:
    """Returns the harms of each topic whose settings are readable."""
    found = dict[str, tuple[Harm, ...]]()
    for at in range(0, len(topics), TOPICS_A_REQUEST):
        names = topics[at : at + TOPICS_A_REQUEST]
        for result in await configs_of(client, TOPIC_RESOURCE, names):
            if not result.error_code:
                settings = {config.name: config.value for config in result.configs}
                found[result.resource_name] = harms_of(settings)
    return found
