"""Who may see or change the configuration of a resource.

Source: Apache Kafka, ConfigHelper.scala, ControllerApis.scala `authorizeAlterResource`.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.config.rows import ResourceType as ConfigType
from server.request_context import RequestContext
from server.security.acls import CLUSTER_NAME, Operation, ResourceType
from server.security.api_rules import REFUSALS
from server.topics.topic import TopicRefused

GUARDED_BY: Mapping[int, ResourceType] = {
    ConfigType.TOPIC: ResourceType.TOPIC,
    ConfigType.GROUP: ResourceType.GROUP,
    ConfigType.BROKER: ResourceType.CLUSTER,
    ConfigType.BROKER_LOGGER: ResourceType.CLUSTER,
}
"""The resource whose ACLs guard a configuration, by the type in requests about configurations."""


def config_refusal(
    operation: Operation, config_type: int, name: str, context: RequestContext
) -> TopicRefused | None:
    """Returns why the client may not see or change a configuration; None if it may."""
    kind = GUARDED_BY.get(config_type)
    if kind is None:
        return None
    guarded = CLUSTER_NAME if kind is ResourceType.CLUSTER else name
    if context.may(operation, kind, guarded):
        return None
    code, text = REFUSALS[kind]
    return TopicRefused(error_code=code, message=text)
