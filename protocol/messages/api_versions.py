"""ApiVersions (key 18): which APIs this broker serves, in which versions.

The response's header is always version 0, and a request of an unknown version is answered in
version 0.
Versions: v1 throttle_time_ms · v3 flexible, client software (KIP-511), features (KIP-584) ·
v4 features may start at level 0.
Source: ApiVersionsRequest.json, ApiVersionsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class ApiVersionsRequest(Message):
    """The client's software."""

    api_key = 18
    versions = (0, 4)
    flexible_since = 3

    client_software_name: str = wire(STRING, since=3, default="", ignorable=True)
    client_software_version: str = wire(STRING, since=3, default="", ignorable=True)


@wire_class
class ApiVersion:
    """One API with its first and last version."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@wire_class
class SupportedFeatureKey:
    """A feature that this broker supports. Up to v3, those that start at level 0 are left out."""

    name: str = wire(STRING, since=3)
    min_version: int = wire(INT16, since=3)
    max_version: int = wire(INT16, since=3)


@wire_class
class FinalizedFeatureKey:
    """A feature level that is active in the cluster."""

    name: str = wire(STRING, since=3)
    max_version_level: int = wire(INT16, since=3)
    min_version_level: int = wire(INT16, since=3)


@wire_class
class ApiVersionsResponse(Message):
    """The APIs that this broker serves."""

    api_key = 18
    versions = (0, 4)
    flexible_since = 3

    error_code: int = wire(INT16)
    api_keys: tuple[ApiVersion, ...] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        array(SupportedFeatureKey), since=3, default=(), tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(INT64, since=3, default=-1, tag=1, ignorable=True)
    """-1: unknown, and `finalized_features` means nothing."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        array(FinalizedFeatureKey), since=3, default=(), tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, since=3, default=False, tag=3, ignorable=True)
