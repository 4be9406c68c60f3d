"""DeleteTopics (key 20).

Versions: v4 flexible · v5 error_message · v6 topics by name or id (KIP-516).
Source: DeleteTopicsRequest.json, DeleteTopicsResponse.json.
"""

from __future__ import annotations

from uuid import UUID as TopicId

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import INT16, INT32, STRING, UUID, Message, array, wire, wire_class


@wire_class
class DeleteTopicState:
    """A topic to delete, by name or, if that is null, by id."""

    name: str | None = wire(STRING, since=6, nullable_since=6, default=None)
    topic_id: TopicId = wire(UUID, since=6, default=ZERO_UUID)


@wire_class
class DeleteTopicsRequest(Message):
    """Topics to delete."""

    api_key = 20
    versions = (1, 6)
    flexible_since = 4

    topics: tuple[DeleteTopicState, ...] = wire(array(DeleteTopicState), since=6, default=())
    topic_names: tuple[str, ...] = wire(array(STRING), until=5, default=(), ignorable=True)
    timeout_ms: int = wire(INT32)


@wire_class
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None = wire(STRING, nullable_since=6)
    topic_id: TopicId = wire(UUID, since=6, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )


@wire_class
class DeleteTopicsResponse(Message):
    """The result for each topic."""

    api_key = 20
    versions = (1, 6)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(array(DeletableTopicResult))
