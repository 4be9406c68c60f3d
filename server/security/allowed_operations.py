"""The operations that a client may perform on a resource, as answers carry them: as bits (KIP-430).

Source: Apache Kafka, AclEntry.java `supportedOperations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from server.security.acls import Operation, ResourceType

NOT_REQUESTED = -(2**31)
"""The value for a client that did not request the operations."""

SUPPORTED: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}
"""The operations that exist, by the types of resources for which answers carry them."""


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


ALL: Mapping[ResourceType, int] = {kind: _bits(each) for kind, each in SUPPORTED.items()}
"""Every operation, as bits: what a client may do if there is no authorizer."""


def allowed_bits(kind: ResourceType, may: Callable[[Operation], bool]) -> int:
    """Returns the operations on a resource of a type that `may` allows, as bits."""
    return _bits(each for each in SUPPORTED[kind] if may(each))
