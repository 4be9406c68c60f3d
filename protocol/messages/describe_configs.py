"""DescribeConfigs (key 32): the configuration of topics and brokers.

Versions: v1 synonyms, config_source · v3 config_type, documentation (KIP-569) · v4 flexible.
Source: DescribeConfigsRequest.json, DescribeConfigsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class DescribeConfigsResource:
    """A topic or a broker whose configuration to describe."""

    resource_type: int = wire(INT8)
    """2: topic, 4: broker, 8: the broker's loggers."""
    resource_name: str = wire(STRING)
    configuration_keys: tuple[str, ...] | None = wire(array(STRING), nullable_since=0)
    """None: all of them."""


@wire_class
class DescribeConfigsRequest(Message):
    """The resources whose configuration to describe, and the details to include."""

    api_key = 32
    versions = (1, 4)
    flexible_since = 4

    resources: tuple[DescribeConfigsResource, ...] = wire(array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, since=1, default=False)
    include_documentation: bool = wire(BOOL, since=3, default=False)


@wire_class
class DescribeConfigsSynonym:
    """A source of the value; the first source that has a value wins."""

    name: str = wire(STRING, since=1)
    value: str | None = wire(STRING, since=1, nullable_since=0)
    source: int = wire(INT8, since=1)


@wire_class
class DescribeConfigsResourceResult:
    """One configuration entry."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, since=1, default=-1, ignorable=True)
    """1: the topic's own, 4: the broker's file, 5: default, and Kafka's others."""
    is_sensitive: bool = wire(BOOL)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(
        array(DescribeConfigsSynonym), since=1, default=(), ignorable=True
    )
    config_type: int = wire(INT8, since=3, default=0, ignorable=True)
    """1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class,
    9: password."""
    documentation: str | None = wire(STRING, since=3, nullable_since=0, default="", ignorable=True)


@wire_class
class DescribeConfigsResult:
    """The configuration of one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(array(DescribeConfigsResourceResult))


@wire_class
class DescribeConfigsResponse(Message):
    """The configurations."""

    api_key = 32
    versions = (1, 4)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DescribeConfigsResult, ...] = wire(array(DescribeConfigsResult))
