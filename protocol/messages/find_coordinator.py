"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

Versions: v1 key_type, error_message · v3 flexible · v4 several keys at once (KIP-699) ·
v6 share groups (KIP-932).
Source: FindCoordinatorRequest.json, FindCoordinatorResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class FindCoordinatorRequest(Message):
    """The keys whose coordinator to find."""

    api_key = 10
    versions = (0, 6)
    flexible_since = 3

    key: str = wire(STRING, until=3, default="")
    """A group id or a transactional id, up to v3."""
    key_type: int = wire(INT8, since=1, default=0)
    """0: group, 1: transaction, 2: share group."""
    coordinator_keys: tuple[str, ...] = wire(array(STRING), since=4, default=())


@wire_class
class Coordinator:
    """The coordinator of one key."""

    key: str = wire(STRING, since=4)
    node_id: int = wire(INT32, since=4)
    host: str = wire(STRING, since=4)
    port: int = wire(INT32, since=4)
    error_code: int = wire(INT16, since=4)
    error_message: str | None = wire(STRING, since=4, nullable_since=4, default="", ignorable=True)


@wire_class
class FindCoordinatorResponse(Message):
    """The coordinator: since v4 of each key, before of the one key."""

    api_key = 10
    versions = (0, 6)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(
        STRING, since=1, until=3, nullable_since=1, default="", ignorable=True
    )
    node_id: int = wire(INT32, until=3, default=0)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=0)
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), since=4, default=())
