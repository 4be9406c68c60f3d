"""Whose settings a `kompakt configs` command is about, and how they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.text import count_text
from protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from server.broker_client import BrokerClient
from server.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from server.topic_facts import (
    BROKER_RESOURCE,
    LOGGER_RESOURCE,
    TOPIC_RESOURCE,
    absence,
    configs_of,
    refusal,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A topic, the broker that answers, or what holds for all brokers."""

    resource_type: int
    name: str | None
    """Kafka's name of it; None for the broker that answers, whose id has to be asked."""

    @property
    def words(self) -> str:
        """For people."""
        if self.resource_type == TOPIC_RESOURCE:
            return f"topic {self.name}"
        if self.resource_type == LOGGER_RESOURCE:
            return f"loggers of broker {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


def target_of(*, topic: str | None, broker: bool, all_brokers: bool, loggers: bool) -> Target:
    """The one that was named. Raises CommandFailed."""
    if (topic is not None) + broker + all_brokers + loggers != 1:
        raise CommandFailed(
            EXIT_USAGE, "say whose settings: --topic T, --broker, --all-brokers or --loggers"
        )
    if topic is not None:
        return Target(resource_type=TOPIC_RESOURCE, name=topic)
    if loggers:
        return Target(resource_type=LOGGER_RESOURCE, name=None)
    return Target(resource_type=BROKER_RESOURCE, name=None if broker else "")


async def named(client: BrokerClient, target: Target) -> Target:
    """The same with its name. Raises CommandFailed."""
    if target.name is not None:
        return target
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    brokers = (await client.call(request, MetadataResponse)).brokers
    if len(brokers) != 1:
        raise CommandFailed(
            EXIT_FAILED, f"{count_text(len(brokers), 'broker')} answered for, not one to ask about"
        )
    return Target(resource_type=target.resource_type, name=str(brokers[0].node_id))


async def settings_of(
    client: BrokerClient, target: Target, names: Sequence[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Its settings in the order of their names; None for all of them.

    Of all brokers there are only those that were set.

    Raises:
        CommandFailed: there is no such target, or a name is no setting of it.
    """
    (result,) = await configs_of(
        client, target.resource_type, [str(target.name)], names, is_full=True
    )
    if result.error_code:
        raise CommandFailed(EXIT_FAILED, await _why_not(client, target, result))
    unknown = sorted(set(names or ()) - {config.name for config in result.configs})
    if unknown and target.name:
        raise CommandFailed(
            EXIT_FAILED,
            f"{target.words} has no setting {', '.join(unknown)};"
            " kompakt configs describe --all lists them",
        )
    return sorted(result.configs, key=lambda config: config.name)


async def _why_not(client: BrokerClient, target: Target, result: DescribeConfigsResult) -> str:
    if target.resource_type == TOPIC_RESOURCE:
        return await absence(client, str(target.name), result.error_code, result.error_message)
    return f"{target.words}: {refusal(result.error_code, result.error_message)}"
