"""Resolves the target of a `kompakt configs` command, and requests its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.rules.text import count_text
from cli.base.broker_client import BrokerClient
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.topic_facts import (
    BROKER_RESOURCE,
    LOGGER_RESOURCE,
    TOPIC_RESOURCE,
    configs_of,
    refusal,
    topic_error,
)
from protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A topic, one broker, its loggers, or the defaults for all brokers."""

    resource_type: int
    name: str | None
    """Kafka's resource name. None: the broker that answers, whose id is not known yet."""

    @property
    def words(self) -> str:
        """The target as text for people."""
        if self.resource_type == TOPIC_RESOURCE:
            return f"topic {self.name}"
        if self.resource_type == LOGGER_RESOURCE:
            return f"loggers of broker {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


def target_of(*, topic: str | None, broker: bool, all_brokers: bool, loggers: bool) -> Target:
    """Returns the target that the options name. Raises CommandFailed unless it is exactly one."""
    if (topic is not None) + broker + all_brokers + loggers != 1:
        raise CommandFailed(
            EXIT_USAGE, "choose one of --topic T, --broker, --all-brokers and --loggers"
        )
    if topic is not None:
        return Target(resource_type=TOPIC_RESOURCE, name=topic)
    if loggers:
        return Target(resource_type=LOGGER_RESOURCE, name=None)
    return Target(resource_type=BROKER_RESOURCE, name=None if broker else "")


async def named(client: BrokerClient, target: Target) -> Target:
    """Returns the target with its name, requesting the broker's id if needed. Raises CommandFailed."""
    if target.name is not None:
        return target
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    brokers = (await client.call(request, MetadataResponse)).brokers
    if len(brokers) != 1:
        raise CommandFailed(
            EXIT_FAILED,
            f"the cluster has {count_text(len(brokers), 'broker')}, but this command needs exactly one",
        )
    return Target(resource_type=target.resource_type, name=str(brokers[0].node_id))


async def settings_of(
    client: BrokerClient, target: Target, names: Sequence[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Returns the target's settings sorted by name: those in `names`, or all of them for None.

    For all brokers, only settings that were set are listed.

    Raises:
        CommandFailed: the target does not exist, or has no setting of a given name.
    """
    (result,) = await configs_of(
        client, target.resource_type, [str(target.name)], names, is_full=True
    )
    if result.error_code:
        raise CommandFailed(EXIT_FAILED, await _error_text(client, target, result))
    unknown = sorted(set(names or ()) - {config.name for config in result.configs})
    if unknown and target.name:
        raise CommandFailed(
            EXIT_FAILED,
            f"{target.words} has no setting {', '.join(unknown)};"
            " kompakt configs describe --all lists them",
        )
    return sorted(result.configs, key=lambda config: config.name)


async def _error_text(client: BrokerClient, target: Target, result: DescribeConfigsResult) -> str:
    if target.resource_type == TOPIC_RESOURCE:
        return await topic_error(client, str(target.name), result.error_code, result.error_message)
    return f"{target.words}: {refusal(result.error_code, result.error_message)}"
