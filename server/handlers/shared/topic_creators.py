"""Who may create topics: CreateTopics and Metadata ask it."""

from __future__ import annotations

from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType


def may_create(name: str, context: RequestContext) -> bool:
    """Returns whether the client may create a topic: this one, or any one in the cluster."""
    on_cluster = context.may(Operation.CREATE, ResourceType.CLUSTER, quiet=True)
    return on_cluster or context.may(Operation.CREATE, ResourceType.TOPIC, name)
