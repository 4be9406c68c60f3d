"""ListConfigResources (key 74), flexible since v0.

Versions: v0 client metrics alone, under the name of ListClientMetricsResources · v1 resource types
(KIP-1142).
Source: ListConfigResourcesRequest.json, ListConfigResourcesResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class ListConfigResourcesRequest(Message):
    """The types of resources to list; an empty array means all of them."""

    api_key = 74
    versions = (0, 1)
    flexible_since = 0

    resource_types: tuple[int, ...] = wire(array(INT8), since=1, default=())


@wire_class
class ConfigResource:
    """A resource that can have a configuration."""

    resource_name: str = wire(STRING)
    resource_type: int = wire(INT8, since=1, default=16, ignorable=True)


@wire_class
class ListConfigResourcesResponse(Message):
    """The resources."""

    api_key = 74
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    config_resources: tuple[ConfigResource, ...] = wire(array(ConfigResource))
