"""IncrementalAlterConfigs (key 44): set, delete, extend or shorten single configurations (KIP-339).

Versions: v1 flexible.
Source: IncrementalAlterConfigsRequest.json, IncrementalAlterConfigsResponse.json.
"""

from __future__ import annotations

from protocol.messages.alter_configs import AlterConfigsResourceResponse
from protocol.wire.schema import BOOL, INT8, INT32, STRING, Message, array, wire, wire_class


@wire_class
class AlterableConfig:
    """One change."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    """0: set, 1: delete, 2: append to a list, 3: subtract from a list."""
    value: str | None = wire(STRING, nullable_since=0)


@wire_class
class AlterConfigsResource:
    """The changes of one resource."""

    resource_type: int = wire(INT8)
    """As in DescribeConfigs."""
    resource_name: str = wire(STRING)
    configs: tuple[AlterableConfig, ...] = wire(array(AlterableConfig))


@wire_class
class IncrementalAlterConfigsRequest(Message):
    """Configurations to change."""

    api_key = 44
    versions = (0, 1)
    flexible_since = 1

    resources: tuple[AlterConfigsResource, ...] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


@wire_class
class IncrementalAlterConfigsResponse(Message):
    """The result of each resource's changes."""

    api_key = 44
    versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(array(AlterConfigsResourceResponse))
