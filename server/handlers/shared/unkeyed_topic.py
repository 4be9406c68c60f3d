"""Whether a client may let the cleaner move records without a key to another topic."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.wire.error_codes import ErrorCode
from server.durability.unkeyed_appends import fault_of_unkeyed_topic
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.topic import TopicRefused
from storage.formats.compaction_config import UNKEYED, UNKEYED_TOPIC


def refusal_of_unkeyed_topic(
    name: str, before: Mapping[str, str], after: Mapping[str, str], context: RequestContext
) -> TopicRefused | None:
    """Returns why a client may not set the topic that takes another one's records; None if it may.

    It must be able to take them now, and the client must have Write on it: else a client that may only
    configure a topic could write to another one. Settings that do not change are not looked at.

    Args:
        before, after: the properties of the topic `name` whose records would be moved.
    """
    chosen = after.get(UNKEYED), after.get(UNKEYED_TOPIC)
    target = after.get(UNKEYED_TOPIC, "")
    if not target or chosen == (before.get(UNKEYED), before.get(UNKEYED_TOPIC)):
        return None
    if not context.may(Operation.WRITE, ResourceType.TOPIC, target):
        text = f"{UNKEYED_TOPIC}: the client has no Write on {target}."
        return TopicRefused(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=text)
    fault = fault_of_unkeyed_topic(context.broker.topics.get(target), target, name)
    if fault is None:
        return None
    text = f"Invalid value {target[:100]!r} for configuration {UNKEYED_TOPIC}: {fault}"
    return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)
