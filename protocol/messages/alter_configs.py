"""AlterConfigs (key 33): replace the whole configuration of a resource.

Versions: v2 flexible. IncrementalAlterConfigs replaces it, but old tools still send it.
Source: AlterConfigsRequest.json, AlterConfigsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class AlterableConfig:
    """One configuration."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@wire_class
class AlterConfigsResource:
    """The new configuration of one resource."""

    resource_type: int = wire(INT8)
    """As in DescribeConfigs."""
    resource_name: str = wire(STRING)
    configs: tuple[AlterableConfig, ...] = wire(array(AlterableConfig))
    """A configuration that is missing here is reset to its default."""


@wire_class
class AlterConfigsRequest(Message):
    """Configurations to replace."""

    api_key = 33
    versions = (0, 2)
    flexible_since = 2

    resources: tuple[AlterConfigsResource, ...] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


@wire_class
class AlterConfigsResourceResponse:
    """The result for one resource's configuration."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@wire_class
class AlterConfigsResponse(Message):
    """The result for each resource's configuration."""

    api_key = 33
    versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(array(AlterConfigsResourceResponse))
